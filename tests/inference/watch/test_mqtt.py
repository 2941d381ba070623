"""Rows of a real MQTT broker (Debian's mosquitto), over TLS with a password: none is lost or repeated."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pandas as pd
import pytest

from core.errors import EXIT_OK, UsageError
from inference.watch.mqtt import Recorder, read_broker
from tests.inference.watch.following import (
    arguments_of,
    assert_equal_to_files,
    lines_of,
    num_lines_of,
    scored_by_files,
    watch_once,
)
from tests.support import REPO_ROOT
from tests.support.waiting import PATIENCE_S, until

mqtt = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed (extra mqtt)")
MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
pytestmark = pytest.mark.skipif(MOSQUITTO is None, reason="no mosquitto: apt-get install mosquitto")
PASSWORD, CHANNELS = "not-a-secret", ("p", "q", "r", "s")


class RunningBroker(NamedTuple):
    port: int
    ca_file: Path
    log: Path

    def has_subscriber(self) -> bool:
        """Whether it gets messages, also those that come while it is away. The client logs a moment earlier."""
        return "Sending SUBACK to landfall" in self.log.read_text()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker with TLS that asks for a password."""
    folder = tmp_path / "broker"
    folder.mkdir()

    def run(*command: str) -> None:
        subprocess.run(command, cwd=folder, check=True, capture_output=True)

    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "ca.pem", *name)
    passwords = Path(MOSQUITTO).parents[1] / "bin/mosquitto_passwd"
    run(str(passwords), "-b", "-c", "passwords", "plant", PASSWORD)
    for path in folder.iterdir():
        path.chmod(0o644)
    folder.chmod(0o755)
    process, port = next(started for started in map(_start, [folder] * 10) if started is not None)
    yield RunningBroker(port, folder / "ca.pem", folder / "log")
    process.terminate()
    process.wait()


def _start(folder: Path) -> tuple[subprocess.Popen, int] | None:
    """A broker on a free port; None if another process was faster to use it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "mosquitto.conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous false\npassword_file {folder}/passwords\nlog_type all\n"
        f"certfile {folder}/ca.pem\nkeyfile {folder}/key.pem\nmax_queued_messages 0\nuser root\n"
    )
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([MOSQUITTO, "-c", str(folder / "mosquitto.conf")], stderr=log)
    until(lambda: process.poll() is not None or " running" in (folder / "log").read_text())
    return None if process.poll() is not None else (process, port)


def settings_of(root: Path, broker: RunningBroker, **more: Any) -> Path:
    path = root / "broker.json"
    settings = {"host": "localhost", "port": broker.port, "topic": "plant/+/rows", "username": "plant",
                "ca_file": str(broker.ca_file)}  # fmt: skip
    path.write_text(json.dumps(settings | more))
    return path


class Publisher:
    def __init__(self, broker: RunningBroker):
        self._client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
        self._client.username_pw_set("plant", PASSWORD)
        self._client.tls_set(ca_certs=str(broker.ca_file))
        self._client.connect("localhost", broker.port)
        self._client.loop_start()

    def send(self, topic: str, payload: Any) -> None:
        self._client.publish(topic, json.dumps(payload), qos=1).wait_for_publish(PATIENCE_S)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def publisher(broker: RunningBroker) -> Iterator[Publisher]:
    made = Publisher(broker)
    yield made
    made.close()


@pytest.mark.nightly
def test_rows_of_a_broker_are_scored_as_those_of_files_also_after_a_kill(trained, broker, publisher):
    settings = settings_of(trained, broker)
    frame = pd.read_csv(trained / "data/fdc/test_1.csv")
    rows = [
        {name: value for name, value in row.items() if value == value}  # without the missing values
        for row in frame.to_dict("records")
    ]
    command = [sys.executable, "-m", "inference.watch.command", *arguments_of(trained), "--detector", "charts"]
    environment = {**os.environ, "PYTHONPATH": f"{REPO_ROOT}:{os.environ.get('PYTHONPATH', '')}",
                   "MQTT_PASSWORD": PASSWORD}  # fmt: skip

    def start() -> subprocess.Popen:
        said = (trained / "said.log").open("a")
        return subprocess.Popen([*command, "--mqtt", str(settings)], env=environment, stderr=said)

    process = start()
    until(broker.has_subscriber)
    for row in rows[:150]:
        publisher.send("plant/chamber 1/rows", row)
    until(lambda: num_lines_of(trained, "scores") > 40)
    process.kill()
    process.wait()
    publisher.send("plant/chamber 1/rows", "no row")
    for row in rows[150:]:  # while nothing runs
        publisher.send("plant/chamber 1/rows", row)
    process = start()
    until(lambda: num_lines_of(trained, "scores") >= len(rows))
    process.send_signal(signal.SIGKILL)
    process.wait()

    live = "data.splits.test.files=[data/live/*.csv]"
    assert watch_once(trained, "--detector", "charts", live) == EXIT_OK
    assert [path.name for path in (trained / "data/live").iterdir()] == ["plant%2Fchamber%201%2Frows_2026-01-07.csv"]
    assert_equal_to_files(trained, scored_by_files(trained, live))
    by_file = scored_by_files(trained).scores.query("recording == 'data/fdc/test_1.csv'")
    assert [line["score"] for line in lines_of(trained, "scores")] == pytest.approx(by_file["score"].tolist(), rel=1e-6)
    assert "not a JSON object" in (trained / "said.log").read_text()


@pytest.fixture
def recorder(tmp_path: Path, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    monkeypatch.setenv("MQTT_PASSWORD", PASSWORD)
    made = Recorder(read_broker(settings_of(tmp_path, broker)), root=tmp_path, channels=CHANNELS)
    made.start()
    yield made
    made.stop()


def test_bad_messages_are_named_and_good_ones_written(tmp_path, recorder, broker, publisher, caplog):
    caplog.set_level(logging.INFO)
    until(broker.has_subscriber)
    stamp = "2026-02-01T01:00:00+01:00"
    bad = (
        {"timestamp": 7, "p": 1.0},
        {"timestamp": "now"},
        {"timestamp": stamp, "x": 1.0},
        {"timestamp": stamp, "p": "1"},
    )
    for payload in ([1], *bad):
        publisher.send("plant/a/rows", payload)
    publisher.send("plant/a/rows", {"timestamp": stamp, "p": 1, "r": None, "s": -2.5})
    path = tmp_path / "data/live/plant%2Fa%2Frows_2026-02-01.csv"
    until(lambda: path.is_file() and path.read_text().endswith("-2.5\n"))  # the file exists before its row
    assert path.read_text() == "timestamp,p,q,r,s\n2026-02-01 00:00:00,1.0,,,-2.5\n"
    assert sum("plant/a/rows" in said and "left out" in said for said in caplog.messages) == 5


def test_a_row_that_does_not_fit_on_the_disk_leaves_no_part_and_is_sent_again(
    tmp_path, recorder, broker, publisher, monkeypatch, caplog
):  # fmt: skip
    path = tmp_path / "data/live/plant%2Fa%2Frows_2026-02-01.csv"
    until(broker.has_subscriber)
    full_disk = SimpleNamespace(**vars(os) | {"write": lambda handle, text: os.write(handle, text[:-3])})
    monkeypatch.setattr("inference.watch.mqtt.os", full_disk)
    publisher.send("plant/a/rows", {"timestamp": "2026-02-01T00:00:00", "p": 1.0})
    until(lambda: any("disk is full" in said for said in caplog.messages))
    assert path.read_text() == ""
    monkeypatch.setattr("inference.watch.mqtt.os", os)
    recorder.stop()
    recorder.start()
    until(lambda: path.read_text().endswith("1.0,,,\n"))
    assert path.read_text() == "timestamp,p,q,r,s\n2026-02-01 00:00:00,1.0,,,\n"


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"username": "stranger"}, {"ca_file": None}], ids=["password", "certificate"])
def test_a_broker_that_refuses_or_is_not_trusted_is_logged_and_tried_again(
    tmp_path, broker, more, monkeypatch, caplog
):  # fmt: skip
    monkeypatch.setenv("MQTT_PASSWORD", PASSWORD)
    made = Recorder(read_broker(settings_of(tmp_path, broker, **more)), root=tmp_path, channels=CHANNELS)
    made.start()
    try:
        until(lambda: any("again" in said for said in caplog.messages))
    finally:
        made.stop()
    assert not any("connected" in said for said in caplog.messages)


def test_a_missing_file_of_the_broker_is_the_users(tmp_path):
    with pytest.raises(UsageError, match=r"broker\.yaml") as caught:
        read_broker(tmp_path / "broker.yaml")
    assert "docs/watch.md" in caught.value.hint


def test_a_refused_topic_is_an_error_and_not_a_connection(tmp_path, caplog):
    """Of a server that accepts each connection and no subscription: mosquitto refuses none with its file of rights."""
    caplog.set_level(logging.INFO)
    with socket.create_server(("127.0.0.1", 0)) as server:
        path = tmp_path / "broker.json"
        port = server.getsockname()[1]
        path.write_text(json.dumps({"host": "127.0.0.1", "port": port, "topic": "secret/rows", "tls": False}))
        made = Recorder(read_broker(path), root=tmp_path, channels=CHANNELS)
        made.start()
        try:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"\x20\x02\x00\x00")  # CONNACK: accepted
                identifier = connection.recv(1024)[2:4]
                assert not any("connected" in said for said in caplog.messages)
                connection.sendall(b"\x90\x03" + identifier + b"\x80")  # SUBACK: failure
                (record,) = until(lambda: [each for each in caplog.records if "secret/rows" in each.getMessage()])
        finally:
            made.stop()
    assert record.levelno == logging.ERROR
    assert not any("connected" in said for said in caplog.messages)


def test_settings_that_cannot_be_used_name_key_and_remedy(tmp_path, broker, monkeypatch):
    monkeypatch.delenv("MQTT_PASSWORD", raising=False)
    path = tmp_path / "broker.yaml"
    bad = {
        "topic: a": "host",
        "host: ''\ntopic: b": "host",
        "host: a\ntopic: b\nprt: 3": "prt",
        "host: [": "broker.yaml",
    }
    for text, words in (bad | {f"host: a\ntopic: '{topic}'": "topic" for topic in ("", "a/#/b", "a+", "#/")}).items():
        path.write_text(text)
        with pytest.raises(UsageError, match=words):
            read_broker(path)
    with pytest.raises(UsageError, match="MQTT_PASSWORD"):
        Recorder(read_broker(settings_of(tmp_path, broker)), root=tmp_path, channels=CHANNELS)
    monkeypatch.setenv("MQTT_PASSWORD", PASSWORD)
    other = read_broker(settings_of(tmp_path, broker, ca_file="missing.pem"))
    with pytest.raises(UsageError, match="TLS"):
        Recorder(other, root=tmp_path, channels=CHANNELS)
