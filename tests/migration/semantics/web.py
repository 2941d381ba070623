"""A web in one folder: a proxy that serves the files of `folder` for every http:// host, without a network."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit


class _Proxy(http.server.SimpleHTTPRequestHandler):
    def translate_path(self, path: str) -> str:
        return super().translate_path(urlsplit(path).path)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


@contextmanager
def web(folder: Path) -> Iterator[str]:
    """The proxy's address; the folder gets `data.csv`, and, where git is there, `project.git`."""
    folder.mkdir()
    (folder / "data.csv").write_text("a,b\n1,2\n")
    if shutil.which("git"):
        _make_repository(folder / "project.git", folder.parent / "checkout")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Proxy, directory=os.fspath(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _make_repository(bare: Path, checkout: Path) -> None:
    """A repository with one file, which git can clone over plain HTTP."""
    checkout.mkdir()
    (checkout / "tool.py").write_text("ANSWER = 42\n")
    author = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    for arguments in (
        ["init", "-q"],
        ["add", "."],
        ["commit", "-q", "-m", "first"],
        ["clone", "-q", "--bare", ".", bare],
    ):
        subprocess.run(["git", *author, *arguments], cwd=checkout, check=True, capture_output=True)
    subprocess.run(["git", "update-server-info"], cwd=bare, check=True)
