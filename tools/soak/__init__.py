"""Kills every kind of work at random moments and checks what is left: `python -m tools.soak`."""
