"""Trains Swin-MAE on vibration scalograms: `python -m trainers.train_swinmae_ssl --config FILE [key=value …]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from trainers.command import main_for


def main(argv: Sequence[str] | None = None) -> int:
    return main_for("swinmae", "Swin-MAE on vibration scalograms", argv)


if __name__ == "__main__":
    sys.exit(main())
