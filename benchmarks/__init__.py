"""Speed beside named peers, each side in a process of its own, in turn: `make bench`."""
