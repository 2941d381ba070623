"""Commands that work on a complete workspace: the pipeline, its checks, the export of the dashboard."""

import sys

# nbformat imports jsonschema, which builds 38 grammars for addresses if this package is installed. That takes 1.3 s in
# every process that opens a notebook, and no schema of a notebook or of Landfall uses those formats.
sys.modules.setdefault("rfc3987_syntax", None)
