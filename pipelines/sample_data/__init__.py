"""`landfall sample-data`: synthetic sensor files of both streams, for a first run and for tests.

Layers, lowest first:

- `chamber`: a simulated etch chamber
- `rig`: a simulated bearing rig
- `command`: `landfall sample-data`
"""
