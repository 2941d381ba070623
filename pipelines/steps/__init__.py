"""The steps of the pipeline. Modules import only modules above them in this list, which has the lowest first:

- `stages`: the stages that the dashboard shows, and the documents of a run
- `table`: the steps, with the command, inputs and outputs of each
- `fingerprints`: digests of the inputs of a step
- `jobs`: a running step
- `display`: shows running steps
- `records`: records of steps and of runs
- `planning`: selects the steps to run
- `running`: runs them
"""
