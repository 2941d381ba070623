"""Appends rows from an MQTT broker to csv files, which are then followed like those of any logger.

No row is lost. A message is acknowledged after its row is in a file, so the broker keeps the rows that arrive while no
monitor runs (persistent session, quality of service 1). Repeated rows are left out by their time stamps. Each topic has
a file per day, in UTC.

A message is a JSON object with `timestamp` and one number for each channel; a channel that is missing or null has no
value.
"""

from __future__ import annotations

import logging
import math
import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pydantic import Field, field_validator

from core.config.fields import Section
from core.config.yaml_files import read_validated
from core.errors import UsageError
from core.reading import parse_json

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage

log = logging.getLogger(__name__)

_QUALITY_OF_SERVICE = 1
_LONGEST_PAUSE_S, _LONGEST_NAME = 60, 200
_TOPIC = re.compile(r"((\+|[^+#/]*)/)*(#|\+|[^+#/]*)")


class Broker(Section):
    """The connection to a broker, as a YAML or JSON file."""

    host: str = Field(min_length=1, description="Name or address of the broker.")
    port: int = Field(8883, ge=1, le=65535, description="Port of the broker.")
    topic: str = Field(description="Topic to subscribe to; `+` and `#` match as in MQTT.")
    folder: str = Field("data/live", description="Folder of the csv files, relative to the workspace.")
    client_id: str = Field("landfall", description="Name of this client; the broker keeps its messages under it.")
    username: str | None = Field(None, description="User name; the password is in the variable `password_variable`.")
    password_variable: str = Field("MQTT_PASSWORD", description="Environment variable with the password.")
    tls: bool = Field(True, description="Whether to connect with TLS, and to check the certificate of the broker.")
    ca_file: str | None = Field(None, description="Certificates to trust; empty: those of the system.")
    certificate: str | None = Field(None, description="Certificate of this client.")
    key: str | None = Field(None, description="Private key of this client.")

    @field_validator("topic")
    @classmethod
    def _is_a_filter(cls, topic: str) -> str:
        if not topic or "\0" in topic or not _TOPIC.fullmatch(topic):
            raise ValueError(f"{topic!r} is not a topic: + and # stand for whole levels, and # is the last one")
        return topic


def read_broker(path: Path) -> Broker:
    """The connection to a broker. Raises UsageError for a file that cannot be read, ConfigError with every fault."""
    return read_validated(str(path), Broker, root=Path(), hint="docs/watch.md has an example")


class Recorder:
    """Appends messages to csv files, in a thread of the client.

    root: the workspace. channels: columns of the files, in order.
    """

    def __init__(self, broker: Broker, *, root: Path, channels: Sequence[str]):
        self._broker, self._channels, self._folder = broker, tuple(channels), root / broker.folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._client = _client(broker)
        self._client.on_connect = self._on_connect
        self._client.on_connect_fail = self._on_connect_fail
        self._client.on_subscribe = self._on_subscribe
        self._client.on_disconnect = self._on_disconnect
        self._client.on_message = self._on_message

    def start(self) -> None:
        """Connects in the background, and again whenever the connection is lost."""
        self._client.connect_async(self._broker.host, self._broker.port)
        self._client.loop_start()

    def stop(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    # -------------------------------------------------------------------------------------------------------- callbacks
    def _on_connect(self, client: Client, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            log.warning("the broker %s refused the connection: %s; it is tried again", self._broker.host, reason)
            return
        client.subscribe(self._broker.topic, qos=_QUALITY_OF_SERVICE)

    def _on_connect_fail(self, client: Client, data: Any) -> None:
        reason = sys.exc_info()[1]  # this callback is called in an except block
        log.warning("no connection to %s, port %d: %s; it is tried again", self._broker.host, self._broker.port, reason)

    def _on_subscribe(self, client: Client, data: Any, mid: Any, reasons: Sequence[Any], properties: Any) -> None:
        if any(reason.is_failure for reason in reasons):
            log.error(
                "the broker %s refused topic %s, so no row arrives; correct the topic, or the rights of the user, and "
                "start again", self._broker.host, self._broker.topic,
            )  # fmt: skip
        else:
            log.info("connected to %s, topic %s", self._broker.host, self._broker.topic)

    def _on_disconnect(self, client: Client, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            log.warning("the connection to %s was lost: %s; connecting again", self._broker.host, reason)

    def _on_message(self, client: Client, data: Any, message: MQTTMessage) -> None:
        try:
            path, line = self._row(message.topic, message.payload)
        except ValueError as error:
            log.warning("topic %s: %s: the message is left out", message.topic, error)
        else:
            try:
                self._append(path, line)
            except OSError as error:  # not acknowledged: the broker sends it again after the next connection
                log.error("%s: %s; the row stays with the broker", path, error)
                return
        client.ack(message.mid, message.qos)

    # ------------------------------------------------------------------------------------------------------------- rows
    def _row(self, topic: str, payload: bytes) -> tuple[Path, str]:
        """File and csv line of a message. Raises ValueError for a message that is not a valid row."""
        row = parse_json(payload)
        if not isinstance(row, dict) or not isinstance(row.get("timestamp"), str):
            raise ValueError("not a JSON object with a timestamp as text")
        time = datetime.fromisoformat(row["timestamp"])
        time = time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo is not None else time
        if unknown := sorted(row.keys() - {"timestamp", *self._channels}):
            raise ValueError(f"{unknown[0]!r} is not a channel of the detector")
        cells = [_cell(name, row.get(name)) for name in self._channels]
        # Quoted, so that topics do not share a file, and no file is hidden or outside of the folder.
        name = f"{quote(topic, safe='').replace('.', '%2E')}_{time:%Y-%m-%d}.csv"
        if len(name) > _LONGEST_NAME:
            raise ValueError("the topic is too long for the name of a file")
        return self._folder / name, ",".join([time.isoformat(sep=" "), *cells]) + "\n"

    def _append(self, path: Path, line: str) -> None:
        """Appends in one write, so that a killed process does not leave an incomplete line."""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            size = os.fstat(handle).st_size
            header = "" if size else ",".join(["timestamp", *map(_quoted, self._channels)]) + "\n"
            text = (header + line).encode("utf-8")
            if os.write(handle, text) < len(text):
                os.ftruncate(handle, size)  # an incomplete row would be joined with the next one
                raise OSError("the disk is full")
        finally:
            os.close(handle)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} = {value!r} is not a number")
    return repr(float(value)) if math.isfinite(value) else ""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if re.search('[",]', name) else name


def _client(broker: Broker) -> Client:
    try:
        from paho.mqtt.client import CallbackAPIVersion, Client
    except ImportError as error:
        raise UsageError("MQTT needs the package paho-mqtt", hint="python -m pip install 'paho-mqtt>=2'") from error
    client = Client(
        CallbackAPIVersion.VERSION2, client_id=broker.client_id, clean_session=False, manual_ack=True
    )  # fmt: skip
    client.reconnect_delay_set(1, _LONGEST_PAUSE_S)
    if broker.username is not None:
        password = os.environ.get(broker.password_variable)
        if password is None:
            hint = f"set it to the password of {broker.username}"
            raise UsageError(f"the environment variable {broker.password_variable} is not set", hint=hint)
        client.username_pw_set(broker.username, password)
    if broker.tls:
        try:
            client.tls_set(ca_certs=broker.ca_file, certfile=broker.certificate, keyfile=broker.key)
        except (OSError, ValueError) as error:
            raise UsageError(f"TLS: {error}", hint="check ca_file, certificate and key") from error
    return client
