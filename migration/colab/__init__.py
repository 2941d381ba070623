"""Colab-specific parts of a notebook: names, paths and forms, and code that asks whether it runs there.

Layers, lowest first:

- `forms`: form comments: `#@title`, `#@markdown`, `#@param`
- `local_value`: the value here of an expression that asks for Colab
- `names`: names of a cell that refer to `google.colab`
- `paths`: Colab's folders in plain text
- `effects`: effects of statements: downloads, installations, prompts, files
- `local_branch`: the branch that runs on this machine
"""
