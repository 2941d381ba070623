"""Long tests of reliability, for the nightly tier.

- `python -m tools.soak`: kills every kind of process at random moments and checks the remaining files
- `python -m tools.soak.chaos`: random commands on random workspaces with random faults
"""
