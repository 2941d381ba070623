"""The source of one code cell: its commands, its tree, its strings, and how statements leave it."""
