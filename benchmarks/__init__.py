"""Speed, memory and detection, measured; speed against named peers, in paired rounds: `make bench`."""
