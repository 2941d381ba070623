"""The notebook as a file: reading, repair, cleaning, writing; findings; edits of its texts."""
