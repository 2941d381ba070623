"""`python -m pipelines.sample_data`: the same as `landfall sample-data`."""

from __future__ import annotations

import sys

from pipelines.sample_data.command import main

if __name__ == "__main__":
    sys.exit(main())
