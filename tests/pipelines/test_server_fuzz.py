"""Ten thousand invalid requests to the dashboard server in its own process."""

from __future__ import annotations

import contextlib
import math
import random
import re
import socket
import subprocess
import sys
import time

import psutil
import pytest

from pipelines.serve_dashboard import MOST_CONNECTIONS
from pipelines.serve_dashboard import PATIENCE_S as PATIENCE_OF_SERVER_S
from tests.dashboard.builders import REPOSITORY, write
from tests.support.small_workspace import install_page
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

SECRET = b"this must not be served"
NUM_REQUESTS = 10_000

PIECES = (
    b"..", b"..", b"/", b"/", b"\\", b"%2e", b"%2E%2e", b"%2f", b"%5c", b"%00", b"\x00", b"%", b"%%32%65", b"%252e",
    b".hidden", b"secret.txt", b"js", b"data", b"link.txt", b"//", b"/./", b"?", b"#", b"\xff", b"%c0%ae", b"%u002e",
    "．．".encode(), b"..;", b"~", b":", b"C:", b"\\\\?\\", b"etc/passwd", b"a" * 300, b"index.html", b" ",
    b"\t", b"\r", b"\n",
)  # fmt: skip
ORIGINS = (
    b"http://127.0.0.1",
    b"http://attacker.example/",
    b"file://",
    b"//localhost",
    b"http://[",
    b"http://127.0.0.1@x",
)
METHODS = (
    b"GET",
    b"GET",
    b"GET",
    b"HEAD",
    b"POST",
    b"OPTIONS",
    b"TRACE",
    b"CONNECT",
    b"get",
    b"G\x00T",
    b"",
    b"\x16\x03\x01",
)
VERSIONS = (
    b"HTTP/1.1",
    b"HTTP/1.1",
    b"HTTP/1.0",
    b"HTTP/0.9",
    b"HTTP/9",
    b"HTTP/1.1e9",
    b"HTTP/" + b"9" * 40,
    b"",
    b"x y z",
)
HOSTS = (
    b"127.0.0.1",
    b"127.0.0.1",
    b"localhost:8765",
    b"attacker.example",
    b"",
    b"127.0.0.1\x00",
    b"[::1]",
    b"127.0.0.1:x",
)
HEADERS = (
    b"If-None-Match: " + b'",' * 50, b"Range: bytes=0-", b"Range: bytes=-1,9999999999999999999-",
    b"If-Modified-Since: never",
    b"X: " + b"y" * 70_000, b": ", b"no colon", b" folded", b"Host: 127.0.0.1", b"Transfer-Encoding: chunked",
    b"Content-Length: -1", b"Content-Length: 9" + b"9" * 30, b"Expect: 100-continue", b"Upgrade: h2c", b"Cookie: \xff",
    b"\r\n".join(b"X-%d: y" % number for number in range(150)), b"Connection: keep-alive",
)  # fmt: skip


@pytest.fixture
def page(tmp_path):
    folder = install_page(tmp_path)
    write(folder / "data" / "dashboard-state.json", {"schema_version": 1})
    write(tmp_path / "secret.txt", SECRET.decode())
    write(folder / ".hidden", SECRET.decode())
    (folder / "data" / "link.txt").symlink_to(tmp_path / "secret.txt")
    return folder


@pytest.fixture
def server(page):
    """The port it listens on, and its process."""
    command = [sys.executable, "-m", "pipelines.serve_dashboard", "--port", "0", "--no-open"]
    with subprocess.Popen(
        [*command, "--repo-root", str(page.parent)], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True
    ) as started:
        try:
            port = next(int(found[1]) for line in started.stderr if (found := re.search(r"127\.0\.0\.1:(\d+)", line)))
            yield port, psutil.Process(started.pid)
            started.terminate()
            assert "Traceback" not in started.communicate(timeout=PATIENCE_S)[1]
        finally:
            started.kill()


def sentof(draw: random.Random) -> bytes:
    """One request; now and then several in one piece, random bytes, or one that is cut off."""
    if draw.random() < 0.03:
        return draw.randbytes(draw.randint(0, 3000))
    origin = draw.choice(ORIGINS) if draw.random() < 0.1 else b""
    target = origin + b"/" * draw.randint(0, 1) + b"".join(draw.choices(PIECES, k=draw.randint(0, 6)))
    lines = [b" ".join((draw.choice(METHODS), target, draw.choice(VERSIONS))), b"Host: " + draw.choice(HOSTS)]
    lines += draw.sample(HEADERS, k=draw.choice((0, 0, 0, 0, 1, 2)))
    whole = b"\r\n".join(lines) + draw.choice((b"\r\n\r\n", b"\r\n\r\n", b"\n\n", b"\r\n", b"\r\n\r\nbody"))
    if draw.random() < 0.1:
        whole *= 3
    return whole[: draw.randint(0, len(whole))] if draw.random() < 0.1 else whole


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def answer_to(port: int, request: bytes) -> bytes:
    """The complete response; empty if the server closes the connection."""
    with connected(port) as connection:
        answer = b""
        with contextlib.suppress(OSError):
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while block := connection.recv(1 << 16):
                answer += block
        return answer


def answers_well(port: int) -> bool:
    return b" 200 " in answer_to(port, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").split(b"\r\n")[0]


def settled(process: psutil.Process, *, threads: int, descriptors: float = math.inf) -> bool:
    """Waits until it returns to this number of threads and descriptors. A thread that has given its place to the next
    connection exists for a moment longer."""
    return until(lambda: process.num_threads() <= threads and process.num_fds() <= descriptors)


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege on Windows, which counts handles otherwise")
@pytest.mark.nightly
def test_ten_thousand_invalid_requests_leak_nothing(server, page):
    port, process = server
    own = {path.read_bytes() for path in page.rglob("*") if path.is_file() and path.name not in (".hidden", "link.txt")}
    assert answers_well(port)
    before = {"threads": process.num_threads(), "descriptors": process.num_fds()}
    draw, lingering, num_served = random.Random(8), [], 0
    for number in range(NUM_REQUESTS):
        request = sentof(draw)
        if number % 50 == 0:  # says a part of it, and then nothing for long
            slow = connected(port)
            slow.sendall(request[: len(request) // 2])
            lingering.append(slow)
            for late in lingering[:-20]:
                late.close()
            del lingering[:-20]
        head, _, body = answer_to(port, request).partition(b"\r\n\r\n")
        assert SECRET not in head + body, request
        if b" 200 " in head.split(b"\r\n")[0]:
            assert body in own | {b""}, request
            num_served += bool(body)
    for slow in lingering:
        slow.close()
    assert num_served > 50  # some of them are answered, so the others are not refused for a reason of their own
    assert answers_well(port)
    assert settled(process, **before)


def test_too_many_connections_do_not_block_the_server(server):
    port, process = server
    assert answers_well(port)
    before = {"threads": process.num_threads(), "descriptors": process.num_fds()}
    idle = [connected(port) for _ in range(3 * MOST_CONNECTIONS)]
    for oldest in idle[: 2 * MOST_CONNECTIONS]:
        with contextlib.suppress(ConnectionError):
            assert oldest.recv(1) == b"", "closed by the server"
    assert settled(process, threads=before["threads"] + MOST_CONNECTIONS)
    for connection in idle:
        connection.close()
    assert settled(process, **before)
    assert answers_well(port)


@pytest.mark.parametrize("sent", [b"GET / HT", b"GET /data/large.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"])
def test_slow_clients_in_all_places_do_not_delay_others(server, page, sent):
    """They send half a request, or do not read a response that is larger than the buffers of the sockets."""
    port, process = server
    (page / "data" / "large.json").write_bytes(bytes(2**24))
    threads = process.num_threads()
    assert answers_well(port)
    descriptors = process.num_fds()
    with contextlib.ExitStack() as clients:
        for _ in range(MOST_CONNECTIONS):
            clients.enter_context(connected(port)).sendall(sent)
        until(lambda: process.num_threads() >= threads + MOST_CONNECTIONS)
        began = time.monotonic()
        assert all(answers_well(port) for _ in range(20))
        assert time.monotonic() - began < 0.8 * PATIENCE_OF_SERVER_S, "it did not wait until slow ones were closed"
        assert settled(process, threads=threads + MOST_CONNECTIONS)
    assert settled(process, threads=threads, descriptors=descriptors)
