"""Sends events to a webhook or a command: each line of the events file, in order, at least once.

The delivered length of the file is stored after each success. If the process is killed between a delivery and this, the
line is delivered again: receivers recognise it by `id` and `state`. After a failure, the same line is tried again, with
pauses from one second to one minute.
"""

from __future__ import annotations

import http.client
import logging
import shlex
import subprocess
import threading
import urllib.request
from pathlib import Path

from core.errors import UsageError
from core.reading import read_json_object
from core.workspace import write_json

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_LOOK_EVERY_S = 0.2

_FAILURES = (OSError, http.client.HTTPException, subprocess.SubprocessError)


class Delivery:
    """Delivers in a separate thread, so that a slow receiver does not delay scores.

    events: the file of JSON lines. place: the file in which the delivered length is stored. webhook: URL to which each
    line is posted. command: command line of a program that gets each line as its standard input; its exit code must be
    0. Raises UsageError for a webhook that is not a web address.
    """

    def __init__(self, events: Path, place: Path, *, webhook: str | None, command: str | None):
        if webhook is not None and not webhook.startswith(("http://", "https://")):
            raise UsageError(f"{webhook} is not a web address", hint="--webhook https://…")
        self._events, self._place, self._webhook = events, place, webhook
        self._command = shlex.split(command) if command is not None else None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="delivery of events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Delivers the remaining lines and ends. After a failure, the next process delivers the rest."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        pause = _SHORTEST_PAUSE_S
        while True:
            stopping = self._stop.is_set()
            try:
                while self._deliver_next():
                    pause = _SHORTEST_PAUSE_S
                wait = _LOOK_EVERY_S
            except _FAILURES as error:
                log.warning("an event was not delivered: %s; it stays in %s and is tried again", error, self._events)
                wait, pause = pause, min(2 * pause, _LONGEST_PAUSE_S)
            if stopping:
                return
            self._stop.wait(wait)

    def _deliver_next(self) -> bool:
        """Delivers the next line. Returns False if there is no complete line. Raises one of `_FAILURES`."""
        done = read_json_object(self._place)["bytes"] if self._place.is_file() else 0
        with self._events.open("rb") as file:
            file.seek(done)
            line = file.readline()
        if not line.endswith(b"\n"):
            return False
        if self._webhook is not None:
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(self._webhook, data=line, headers=headers, method="POST")
            with urllib.request.urlopen(request, timeout=TIMEOUT_S):  # raises for a status of 400 and above
                pass
        if self._command is not None:
            subprocess.run(self._command, input=line, check=True, timeout=TIMEOUT_S, stdout=subprocess.DEVNULL)
        write_json(self._place, {"bytes": done + len(line)})
        return True
