"""How well the two models find real faults: `python -m benchmarks.detection PACK`.

sets: which files of a pack make a unit, and by which protocol. detectors: Landfall with and without its model, and
simple methods on the same rows. figures: what is measured. report: JSON, table, pictures.
"""
