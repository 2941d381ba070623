"""Detection benchmark of both models on real faults: `python -m benchmarks.detection PACK`. sets: the files of a pack
that form a unit, and its protocol. detectors: Landfall with and without its model, and simple methods on the same rows.
metrics: of a unit and of a set. vus: one of them. report: JSON, table, figures.
"""
