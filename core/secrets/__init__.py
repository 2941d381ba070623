"""Secrets in what Landfall reads and writes. Layers, lowest first:

- `names`: recognises names of secrets
- `finding`: finds secrets in text
- `literals`: finds secrets in Python code
- `redaction`: hides them in everything that is written
"""
