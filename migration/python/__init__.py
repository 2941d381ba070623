"""The Python of a code cell as IPython reads it: its commands, tree, strings, scopes, and removal of statements."""
