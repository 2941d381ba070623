"""Runs notebooks before and after migration with recorders instead of external systems, and compares the traces.
Layers, lowest first: `recorders` (replacements for processes, packages, the network and Colab), `runner` (executes
notebooks in a sandbox), `compare` (effects of the two runs), `__main__` (chooses notebooks, prints the table).
"""
