"""Events reach a webhook and a command in order, at least once, also after failures and a restart."""

from __future__ import annotations

import json
import shlex
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from core.errors import UsageError
from inference.watch import delivery
from inference.watch.delivery import Delivery
from tests.support.waiting import PATIENCE_S, until


@pytest.fixture
def receiver() -> Iterator[HTTPServer]:
    """A real server. `answers`: status codes of the next requests, then 200; `got`: what was accepted."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = self.server.answers.pop(0) if self.server.answers else 200
            if status == 200:
                self.server.got.append(json.loads(body)["id"])
            self.send_response(status)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.answers, server.got = [], []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def write(events: Path, *ids: int) -> None:
    with events.open("a") as file:
        file.writelines(json.dumps({"id": each}) + "\n" for each in ids)


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "TIMEOUT_S", PATIENCE_S)


def test_events_are_posted_in_order_and_again_after_a_failure(events, tmp_path, receiver, monkeypatch, caplog):
    monkeypatch.setattr(delivery, "_SHORTEST_PAUSE_S", 0.05)
    address = f"http://127.0.0.1:{receiver.server_port}/hook"
    receiver.answers += [503, 404]
    write(events, 1, 2)
    first = Delivery(events, tmp_path / "delivered.json", webhook=address, command=None)
    first.start()
    until(lambda: receiver.got == [1, 2])
    with events.open("a") as file:
        file.write('{"id": 3')  # not complete yet
    time.sleep(0.4)
    with events.open("a") as file:
        file.write("}\n")
    until(lambda: receiver.got == [1, 2, 3])
    first.finish()
    assert sum("was not delivered" in said for said in caplog.messages) == 2

    write(events, 4)
    again = Delivery(events, tmp_path / "delivered.json", webhook=address, command=None)
    again.start()
    again.finish()
    assert receiver.got == [1, 2, 3, 4]


def test_a_command_gets_each_event_and_a_failing_one_gets_it_again(events, tmp_path):
    out = tmp_path / "got.jsonl"
    program = tmp_path / "act.py"
    program.write_text(
        "import pathlib, sys\nout = pathlib.Path(sys.argv[1])\n"
        "if not out.exists():\n    out.touch()\n    sys.exit(3)\n"
        "out.open('a').write(sys.stdin.read())\n"
    )
    write(events, 1, 2)
    command = shlex.join([sys.executable, str(program), str(out)])
    for _ in range(2):
        each = Delivery(events, tmp_path / "delivered.json", webhook=None, command=command)
        each.start()
        each.finish()
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == [1, 2]


def test_another_address_is_refused(events, tmp_path):
    with pytest.raises(UsageError):
        Delivery(events, tmp_path / "delivered.json", webhook="file:///etc/passwd", command=None)
