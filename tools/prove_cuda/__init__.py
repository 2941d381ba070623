"""Proof that Landfall runs on the CUDA device of a machine: `python -m tools.prove_cuda`, see docs/devices.md.

- `rows`: what a section finds, and where it runs
- `sections`: what is tested and measured, in order of importance
- `speed`: the sections that compare implementations
- `__main__`: runs each section in a process of its own and reports
"""
