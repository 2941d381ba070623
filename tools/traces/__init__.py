"""Runs notebooks before and after migration with recorders instead of external systems, and compares the traces.
Layers, lowest first: `stubs` (packages), `recorders` (processes, the network, files, clocks and Colab), `runner`
(executes notebooks in a sandbox), `compare` (effects of the two runs), `dependents` (cells that use what a finding
asks about), `__main__` (chooses notebooks, prints the table).
"""
