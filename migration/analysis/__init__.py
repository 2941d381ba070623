"""Facts of a whole notebook: pure passes in a fixed order, each a function of the cells and of earlier facts.

Layers, lowest first:

- `names`: names that refer to `google.colab`
- `preinstalled`: what Colab has preinstalled
- `root_paths`: paths below the root of the file system
- `variables`: names that the cells bind and use
- `flags`: names whose value says whether the notebook runs on Colab
- `imports`: packages that a notebook imports and that Colab has preinstalled
- `mounts`: where a notebook mounts its drive
- `parameters`: form fields that become parameters of papermill
- `unused`: imports that a notebook does not need here
- `userdata`: names of the secrets that a notebook reads
- `facts`: facts about a complete notebook, collected once
- `requirements`: packages to install here, as files
"""
