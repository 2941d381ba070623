"""Trains Swin-MAE on vibration scalograms: `python -m trainers.train_swinmae_ssl --config FILE [key=value …]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from core.signals import install_signal_handlers
from trainers import elastic


def main(argv: Sequence[str] | None = None) -> int:
    if argv is None:
        install_signal_handlers(elastic.record_exit)
        elastic.record_process()
    from trainers.command import main_for  # after the signal handlers, because the import is slow

    return main_for("swinmae", "Swin-MAE on vibration scalograms", argv)


if __name__ == "__main__":
    sys.exit(main())
