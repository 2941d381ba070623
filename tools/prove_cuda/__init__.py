"""Proof that Landfall runs on the CUDA device of a machine: `python -m tools.prove_cuda`, see docs/devices.md.

- `rows`: the results of a section, and the device on which it runs
- `sections`: the tests and measurements, in order of importance
- `speed`: the sections that compare implementations
- `__main__`: runs each section in a separate process and writes the report
"""
