"""The table of rules, and the engine that applies it to a cell.

Layers, lowest first:

- `folding`: removes statements, or keeps one branch
- `rule`: a rule and its matches
- `cell_magics`: cell magics, and comments above them
- `colab_api`: imports and full names of `google.colab`
- `colab_calls`: the local effect of each part of `google.colab`
- `colab_prose`: texts about Colab
- `colab_text`: `google.colab` in comments, commands and JavaScript
- `commands`: shell commands with another effect here
- `configurations`: configurations of Colab with a local version
- `credentials`: secrets written in a notebook
- `files`: the file, its structure and its outputs
- `forms`: form comments
- `hazards`: commands that need the user's decision here
- `indentation`: cells whose first line is indented
- `magics`: magics that exist on Colab only
- `paths_found`: findings about Colab's folders
- `prose`: badges and links in Markdown
- `restarts`: restarts of the kernel
- `rewriting`: applies the rules to a cell until none matches
- `system_installs`: packages of the system and of conda
- `detection`: conditions that ask for Colab
- `human`: constructs that need manual changes
- `installs`: installations by pip
- `paths_shell`: Colab's folders in shell text
- `paths_strings`: Colab's folders in Python strings
- `paths_texts`: Colab's folders in comments and text cells
- `paths`: Colab's folders
- `preamble`: the first two cells: parameters and set-up
- `table`: all rules, in order of priority
"""
