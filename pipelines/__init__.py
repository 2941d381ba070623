"""What runs over a whole workspace: the main job, its checks, the dashboard's state."""

import sys

# nbformat imports jsonschema, which builds 38 grammars for addresses when this package is there: 1.3 s of every process
# that opens a notebook, and no schema of a notebook or of ours uses those formats.
sys.modules.setdefault("rfc3987_syntax", None)
