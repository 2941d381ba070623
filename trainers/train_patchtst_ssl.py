"""Trains PatchTST-SSL on process sensors: `python -m trainers.train_patchtst_ssl --config FILE [key=value …]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from trainers.command import main_for


def main(argv: Sequence[str] | None = None) -> int:
    return main_for("patchtst", "PatchTST-SSL on process sensors", argv)


if __name__ == "__main__":
    sys.exit(main())
