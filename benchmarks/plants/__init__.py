"""Ten simulated plants, each with one fault, and the faults that Landfall finds: `python -m benchmarks.plants`.

Layers, lowest first: plant (signals and faults), files (exports as of a user), journey (the commands and the metrics).
"""
