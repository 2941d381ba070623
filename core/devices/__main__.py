"""`python -m core.devices`: the same as `landfall devices`."""

from __future__ import annotations

import sys

from core.devices.report import main

if __name__ == "__main__":
    sys.exit(main())
