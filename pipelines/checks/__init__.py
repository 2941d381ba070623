"""The checks of `landfall validate`. Modules import only modules above them in this list, which has the lowest first:

- `base`: what a check is
- `environment`: interpreter, packages and device
- `static`: code, notebooks and configurations
- `scoring`: the scores of the model
- `runtime`: the outputs of a run
"""
