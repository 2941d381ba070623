"""Runs notebooks before and after migration with recorders in place of the outside world, and compares the traces.

Layers, lowest first: `recorders` (what stands in for processes, packages, the network and Colab), `runner` (executes
notebooks in a sandbox), `compare` (effects of the two runs), `__main__` (chooses notebooks, prints the table).
"""
