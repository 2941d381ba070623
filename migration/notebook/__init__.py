"""The notebook as a file: reading, repair, cleaning, writing; findings; secrets and edits of its texts."""
