"""The notebook as a file: reading, repair, cleaning, writing; findings; edits of its texts.

Layers, lowest first:

- `difference`: a unified diff of each cell
- `findings`: findings, one per position, and notes
- `positions`: positions of a cell's lines in the file
- `texts`: the text of a cell, and its edits
- `writing`: writes a notebook with the bytes of nbformat
- `repairing`: converts a notebook of any version to nbformat 4
- `outputs`: cleans saved outputs
- `reading`: reads notebooks of any version
- `structure`: converts it to valid nbformat 4.5 for papermill
"""
