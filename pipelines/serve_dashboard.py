"""Serves the training dashboard to this machine only.

    python -m pipelines.serve_dashboard

Only files of `training_dashboard/`, pages of executed notebooks, and those of the machines of a fleet are served, only
on 127.0.0.1, and only for requests with this machine as host: the data must not leave the site, not even through a
browser tab that another site opened. The page can only write annotations of time spans
(`core.data.annotations`).
"""

from __future__ import annotations

import argparse
import errno
import logging
import math
import os
import re
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO

from core.cli import add_root_argument, root_of, run_command
from core.config.schema import STREAMS
from core.data.annotations import NewAnnotation
from core.documents import explain
from core.errors import EXIT_OK, UsageError
from core.page import PAGE, STATE
from pipelines.dashboard.annotating import annotate
from pipelines.notebook_page import POLICY as NOTEBOOK_POLICY

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
DEFAULT_PORT = 8765
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    # The browser caches a file, but checks each time whether it changed.
    "Cache-Control": "no-cache",
    # No page of another site may load the data, not even as an image or a script.
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
# A connection without data for this time is closed.
PATIENCE_S = 30
# Maximum body of a request that writes.
LONGEST_BODY = 64 * 1024
# A browser opens six connections. Each needs a thread and two descriptors, its own and that of the file it reads. Most
# processes may have a thousand descriptors.
MOST_CONNECTIONS = 128
# After this time the next connection is closed, if the thread of the one before has not ended.
_HANDOVER_S = 1.0
_NOTEBOOKS = "/artifacts/notebooks/"
_MACHINE = re.compile(r"/machines/[A-Za-z0-9][A-Za-z0-9._-]{0,63}/")


class DashboardHandler(SimpleHTTPRequestHandler):
    """Serves the files below `directory`, without listings, hidden files, or links to other folders."""

    _policy = CONTENT_POLICY
    server_version = "Landfall"
    sys_version = ""
    timeout = PATIENCE_S
    # Explicit, because some Windows machines register .js as text/plain and browsers then refuse modules.
    extensions_map = {  # noqa: RUF012
        "": "application/octet-stream",
        ".html": "text/html; charset=utf-8",
        ".css": "text/css; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".mjs": "text/javascript; charset=utf-8",
        ".json": "application/json; charset=utf-8",
        ".svg": "image/svg+xml",
        ".png": "image/png",
    }

    def do_POST(self) -> None:
        """Adds or removes an annotation: `POST /annotations/<stream>` with JSON, from the page itself only.

        A page of another site cannot send it: its origin differs, and a cross-origin request with JSON needs a CORS
        header, which this server never sends.
        """
        self.close_connection = True
        self._enter_machine()
        stream = self.path.removeprefix("/annotations/")
        if not self._is_own_page():
            self.send_error(HTTPStatus.FORBIDDEN, "Only the dashboard's own page may write")
        elif stream not in STREAMS:
            self.send_error(HTTPStatus.NOT_FOUND)
        elif (body := self._body()) is not None:
            try:
                added = annotate(Path(self.directory).parent, stream, NewAnnotation.model_validate_json(body))
            except ValueError as error:
                self.send_error(HTTPStatus.BAD_REQUEST, "Not an annotation", explain(error))
            except OSError as error:
                self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, "Not written", explain(error))
            else:
                self._send_json(added.model_dump_json().encode())

    def _is_own_page(self) -> bool:
        hosts, origins = (self.headers.get_all(name, []) for name in ("Host", "Origin"))
        port = self.server.server_port
        known = [f"{host}:{port}" for host in (HOST, "localhost")]
        return hosts in [[host] for host in known] and origins == [f"http://{hosts[0]}"]

    def _body(self) -> bytes | None:
        """The body of a request with JSON; None if the request was refused."""
        length = self.headers.get("Content-Length", "")
        if self.headers.get_content_type() != "application/json":
            self.send_error(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        elif not (length.isascii() and length.isdigit()) or "Transfer-Encoding" in self.headers:
            self.send_error(HTTPStatus.LENGTH_REQUIRED)
        elif int(length) > LONGEST_BODY:
            self.send_error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        else:
            return self.rfile.read(int(length))
        return None

    def _send_json(self, content: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _enter_machine(self) -> None:
        """`/machines/<id>/…` is the page of a machine of a fleet, in the machine's own workspace."""
        if found := _MACHINE.match(self.path):
            workspace = Path(self.directory).parent / found[0].strip("/")
            self.directory, self.path = str(workspace / PAGE), self.path[found.end() - 1 :]

    def _enter_notebooks(self) -> None:
        """`/artifacts/notebooks/<run>/<name>.html` is the page of an executed notebook, with a stricter policy."""
        if self.path.startswith(_NOTEBOOKS) and self.path.endswith(".html"):
            self.directory = str(Path(self.directory).parent / _NOTEBOOKS.strip("/"))
            self.path = self.path.removeprefix(_NOTEBOOKS.rstrip("/"))
            self._policy = NOTEBOOK_POLICY

    def send_head(self) -> BinaryIO | None:
        """The requested file, after its headers were sent; None if the response needs no file."""
        hosts = self.headers.get_all("Host", [])
        if [host.rsplit(":", 1)[0].lower() for host in hosts] not in ([HOST], ["localhost"]):
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "This server answers to 127.0.0.1 only")
            return None
        self._enter_machine()
        self._enter_notebooks()
        path = Path(self.translate_path(self.path))
        file = self._servable(path)
        if file is None:
            self._send_nothing(path)
            return None
        try:
            content = file.open("rb")
        except OSError:
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        facts = os.fstat(content.fileno())
        # Live documents change more than once per second, the resolution of Last-Modified.
        tag = f'"{facts.st_mtime_ns:x}-{facts.st_size:x}"'
        is_known = tag in (known.strip() for known in self.headers.get("If-None-Match", "").split(","))
        self.send_response(HTTPStatus.NOT_MODIFIED if is_known else HTTPStatus.OK)
        self.send_header("ETag", tag)
        if is_known:
            content.close()
            content = None
        else:
            self.send_header("Content-Type", self.guess_type(file))
            self.send_header("Content-Length", str(facts.st_size))
        self.end_headers()
        return content

    def _servable(self, path: Path) -> Path | None:
        """The real file of a path; None unless it is a file of the page."""
        root = Path(self.directory).resolve()
        try:
            real = path.resolve()
            real = real / "index.html" if real == root else real
            is_own = real.is_relative_to(root) and real.is_file()
        except (OSError, ValueError, RuntimeError):  # circular links are a RuntimeError in older Pythons
            # An invalid file name: too long, or with a null byte.
            return None
        is_hidden = is_own and any(part.startswith(".") for part in real.relative_to(root).parts)
        return real if is_own and not is_hidden else None

    def _send_nothing(self, path: Path) -> None:
        """Live documents are missing when no run is active. A browser reports every 404 as an error, so they are not a
        404."""
        if path.suffix == ".json" and path.parts[-2:-1] == ("live",):
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        self.server.connections[self.connection] = math.inf  # the request was received
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", self._policy)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


def _num_places() -> int:
    """For connections: fewer where the process may have few descriptors, as with `ulimit -n 64`."""
    if os.name == "nt":
        return MOST_CONNECTIONS
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if limit == resource.RLIM_INFINITY else max(1, min(MOST_CONNECTIONS, limit // 4))


class DashboardServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS  # a browser whose connection is rejected tries again after a second
    # On Windows this option would let a second server use the port of the first without an error.
    allow_reuse_address = os.name != "nt"

    def __init__(self, *args: Any, **options: Any):
        self._places = threading.BoundedSemaphore(_num_places())
        # The open connections, the oldest first, with the time by which the request must have been received, in seconds
        # of `time.monotonic`. `timeout` of the handler counts from byte to byte: with it alone, a client that sends a
        # byte from time to time would stay connected without limit.
        self.connections: dict[socket.socket, float] = {}
        super().__init__(*args, **options)

    def service_actions(self) -> None:
        """Closes connections whose request is overdue; `serve_forever` calls it twice per second."""
        now = time.monotonic()
        for connection, deadline in list(self.connections.items()):
            if deadline < now:
                self._close(connection)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Closes the oldest connections until there is a place. A request of the page is answered in milliseconds, so
        the oldest belongs to a client that is slow to send or to read. Its thread may still wait for a disk."""
        is_free = self._places.acquire(blocking=False)
        while not is_free:
            for oldest in list(self.connections)[:1]:
                self._close(oldest)
            is_free = self._places.acquire(timeout=_HANDOVER_S)
        self.connections[request] = time.monotonic() + DashboardHandler.timeout
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system starts no further thread
            self.connections.pop(request, None)
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.pop(request, None)
            self._places.release()

    def _close(self, connection: socket.socket) -> None:
        """Closes a connection, so that its thread, which waits for the client, ends."""
        self.connections.pop(connection, None)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs errors, except a browser that closes the connection early."""
        log.debug("a request failed", exc_info=True)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/"


def make_server(page: Path, port: int = DEFAULT_PORT) -> DashboardServer:
    """A server of the folder `page` on `port` of this machine; port 0 selects a free one. Raises UsageError."""
    if not (page / "index.html").is_file():
        raise UsageError(f"{page} contains no dashboard (index.html)", hint="pass the workspace with --repo-root")
    try:
        return DashboardServer((HOST, port), partial(DashboardHandler, directory=str(page)))
    except OverflowError as error:
        raise UsageError(f"{port} is not a valid port", hint="use 1 to 65535, or 0 for any free one") from error
    except OSError as error:
        if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
            raise
        problem = "is in use" if error.errno == errno.EADDRINUSE else "is not permitted"
        hint = f"the dashboard may already run at http://{HOST}:{port}/; otherwise pass --port 0 for a free one"
        raise UsageError(f"port {port} {problem}", hint=hint) from error


def has_display() -> bool:
    """Whether a browser window can be opened: on Linux only with a display, and never over SSH."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    return not sys.platform.startswith("linux") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def export_hint(root: Path) -> str:
    """What to do if the page does not show the newest scores; otherwise empty."""
    if not (root / STATE).is_file():
        return "nothing exported yet: landfall export"
    exported = (root / STATE).stat().st_mtime
    if any(file.stat().st_mtime > exported for file in (root / "artifacts/scores").glob("*_summary.json")):
        return "the page is older than the newest scores: `landfall export` brings it up to date"
    return ""


def serve(page: Path, port: int, *, open_browser: bool) -> None:
    """Serves the folder `page` until interrupted. Raises UsageError if the port or the page cannot be used."""
    with make_server(page, port) as server:
        log.info("dashboard at %s — Ctrl-C ends it", server.url)
        if hint := export_hint(page.parent):
            log.warning("%s", hint)
        if open_browser and has_display():
            webbrowser.open(server.url)
        server.serve_forever()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="landfall dashboard",
        description=__doc__.partition("\n")[0],
        epilog="From another machine: ssh -L 8765:127.0.0.1:8765 WORKSTATION, then open http://127.0.0.1:8765/.",
    )
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help="port to listen on, 0 for a free one (default: %(default)s)"
    )
    parser.add_argument("--no-open", action="store_true", help="do not open the browser")
    add_root_argument(parser)
    return run_command(_serve, parser, argv)


def _serve(arguments: argparse.Namespace) -> int:
    try:
        serve(root_of(arguments) / PAGE, arguments.port, open_browser=not arguments.no_open)
    except KeyboardInterrupt:
        # The normal way to end it, so not a failure.
        log.info("dashboard ended")
    return EXIT_OK


if __name__ == "__main__":
    raise SystemExit(main())
