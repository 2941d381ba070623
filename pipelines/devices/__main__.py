"""`python -m pipelines.devices`: the same as `landfall devices`."""

from __future__ import annotations

import sys

from pipelines.devices.command import main

if __name__ == "__main__":
    sys.exit(main())
