"""Serves the training dashboard to this machine only.

    python -m pipelines.serve_dashboard

Only files of `training_dashboard/` are served, only on 127.0.0.1, and only to pages that asked for this machine by
name: the data may not leave the site, not even by a browser tab that another site opened.
"""

from __future__ import annotations

import argparse
import errno
import logging
import os
import sys
import webbrowser
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO

from core.cli import add_root_argument, root_of, run_command
from core.errors import EXIT_OK, UsageError

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
DEFAULT_PORT = 8765
CONTENT_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class DashboardHandler(SimpleHTTPRequestHandler):
    """GET and HEAD of the files below `directory`; no listings, no hidden files, nothing through a link outwards."""

    server_version = "Landfall"
    sys_version = ""
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

    def send_head(self) -> BinaryIO | None:
        if self.headers.get("Host", "").rsplit(":", 1)[0] not in {HOST, "localhost"}:
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST, "This server answers to 127.0.0.1 only")
            return None
        if not self._is_servable(Path(self.translate_path(self.path))):
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        return super().send_head()

    def _is_servable(self, path: Path) -> bool:
        root = Path(self.directory).resolve()
        try:
            target = path / "index.html" if path.resolve() == root else path
            real = target.resolve()
            inside = real.is_relative_to(root) and real.is_file()
        except (OSError, ValueError):
            # A name no file system takes: too long, or with a null byte.
            return False
        return inside and not any(part.startswith(".") for part in real.relative_to(root).parts)

    def end_headers(self) -> None:
        path = self.path.partition("?")[0]
        # `no-cache` lets the browser keep a file but ask each time whether it changed.
        self.send_header("Cache-Control", "no-store" if path.endswith(".json") else "no-cache")
        self.send_header("Content-Security-Policy", CONTENT_POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


class DashboardServer(ThreadingHTTPServer):
    daemon_threads = True
    # On Windows this option would let a second server take the port of the first without an error.
    allow_reuse_address = os.name != "nt"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/"


def make_server(page: Path, port: int = DEFAULT_PORT) -> DashboardServer:
    """A server of the folder `page` on `port` of this machine; port 0 takes a free one. Raises UsageError."""
    if not (page / "index.html").is_file():
        raise UsageError(f"{page} holds no dashboard (index.html)", hint="pass the workspace with --repo-root")
    try:
        return DashboardServer((HOST, port), partial(DashboardHandler, directory=str(page)))
    except OverflowError as error:
        raise UsageError(f"{port} is no port", hint="use 1 to 65535, or 0 for any free one") from error
    except OSError as error:
        if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
            raise
        problem = "is taken" if error.errno == errno.EADDRINUSE else "may not be used"
        hint = f"perhaps the dashboard already runs at http://{HOST}:{port}/; otherwise pass --port 0 for a free one"
        raise UsageError(f"port {port} {problem}", hint=hint) from error


def has_display() -> bool:
    """Whether a browser window could open: on Linux only with a display, and never over SSH."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    return not sys.platform.startswith("linux") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def serve(page: Path, port: int, *, open_browser: bool) -> None:
    """Serves the folder `page` until interrupted. Raises UsageError where the port or the page is unusable."""
    with make_server(page, port) as server:
        log.info("dashboard at %s — Ctrl-C ends it", server.url)
        if not (page / "data" / "dashboard-state.json").is_file():
            log.info("nothing exported yet: make validate, or python -m pipelines.export_training_dashboard_state")
        if open_browser and has_display():
            webbrowser.open(server.url)
        server.serve_forever()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.serve_dashboard",
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
        serve(root_of(arguments) / "training_dashboard", arguments.port, open_browser=not arguments.no_open)
    except KeyboardInterrupt:
        # The one way to end it, so no failure.
        log.info("dashboard ended")
    return EXIT_OK


if __name__ == "__main__":
    raise SystemExit(main())
