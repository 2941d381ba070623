"""Replaces a training process that reads data: `python -m … died|asked FOLDER`; see test_launching."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from core.errors import EXIT_FAILURE, EXIT_OK, EXIT_RESUMABLE
from core.signals import SignalStop, install_signal_handlers, raise_signals
from tests.support.waiting import until
from trainers import elastic


def main() -> int:
    what, folder = sys.argv[1], Path(sys.argv[2])
    install_signal_handlers(elastic.record_exit)
    raise_signals()
    elastic.record_process()
    if (code := elastic.final_exit_code()) is not None:
        return code
    rank, number = os.environ["RANK"], len(list(folder.glob("started-0-*")))
    (folder / f"started-{rank}-{os.getpid()}").touch()
    if what == "died" and number > 0 and os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":
        return EXIT_OK
    until(lambda: list(folder.glob("started-0-*")) and list(folder.glob("started-1-*")))
    elastic.record_connection()
    try:
        if rank == "1":
            os.kill(os.getpid(), signal.SIGKILL if what == "died" else signal.SIGTERM)
        until(lambda: what == "asked" and elastic.final_exit_code() is not None, patience_s=120)
    except SignalStop:
        return elastic.record_exit(EXIT_RESUMABLE)
    return EXIT_FAILURE  # it has lost the other one


if __name__ == "__main__":
    sys.exit(main())
