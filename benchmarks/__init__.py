"""Speed against named peers, each pair measured in turn in one process: `make bench`."""
