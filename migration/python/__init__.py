"""The Python of a code cell as IPython reads it: its commands, tree, strings, scopes, and removal of statements.

Layers, lowest first:

- `scanning`: finds the IPython commands of a cell
- `trees`: walks syntax trees quickly
- `source`: a code cell as IPython reads it
- `scopes`: every access to a name, by Python's rules of scope
- `statements`: positions of statements, and their removal
- `strings`: positions of string literals and comments
- `shell_texts`: texts that a notebook passes to a shell
"""
