"""Kills every kind of process at random moments and checks the remaining files: `python -m tools.soak`."""
