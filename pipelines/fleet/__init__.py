"""One command on many machines of a plant, each with its own workspace. Layers, lowest first:

- `machines`: the fleet file, and the workspace of each machine
- `isolation`: a process whose settings are restored after a job
- `jobs`: one command on one machine, in this process
- `cluster`: jobs on the workers of Dask distributed
- `attention`: which machines need attention, as a document of the dashboard and as a table
- `command`: the command `landfall fleet`
"""
