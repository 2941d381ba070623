"""The table of rules, and the engine that applies it to a cell."""
