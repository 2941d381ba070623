"""What is found in a cell and written in its place: one table of rules, and the means to apply it."""
