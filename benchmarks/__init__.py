"""Benchmarks of speed, memory and detection; speed compared with named peers, in paired rounds: `make bench`."""
