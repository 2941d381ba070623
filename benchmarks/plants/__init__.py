"""Ten made-up plants, each with one fault, and what Landfall finds in them: `python -m benchmarks.plants`.

Layers, lowest first: plant (signals and faults), files (as a user would export them), baseline (PCA residuals), journey
(the commands and the figures).
"""
