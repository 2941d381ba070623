"""JupyterLab as `make lab` starts it, over a small workspace and without the user's settings."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import websocket

from tests.support import REPO_ROOT
from tests.support.small_workspace import CONFIGS, build_small_workspace
from tests.support.waiting import until

NOTEBOOK = "local_patchtst_ssl.ipynb"


class Lab:
    """A server for the workspace `root`, and the requests of a browser."""

    def __init__(self, root: Path, url: str, token: str):
        self.root, self.url, self.token = root, url, token

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"token {self.token}"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=120) as answer:
            return json.load(answer)

    def connect(self, kernel: str) -> websocket.WebSocket:
        address = f"{self.url.replace('http', 'ws')}/api/kernels/{kernel}/channels?token={self.token}"
        return websocket.create_connection(address, timeout=120)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@contextmanager
def running_lab(folder: Path) -> Iterator[Lab]:
    root = build_small_workspace(folder / "workspace")
    notebook = root / "notebooks" / NOTEBOOK
    text = notebook.read_text(encoding="utf-8")
    notebook.write_text(text.replace("configs/patchtst_ssl_local.yaml", CONFIGS["patchtst"]), encoding="utf-8")
    for _ in range(5):  # another process may be faster to use a free port
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        lab = Lab(root, f"http://127.0.0.1:{port}", secrets.token_hex(16))
        with _running(lab, port, folder) as process:
            if _answers(lab, process):
                yield lab
                return
    pytest.fail((folder / "server.log").read_text(encoding="utf-8", errors="replace"))


@contextmanager
def _running(lab: Lab, port: int, folder: Path) -> Iterator[subprocess.Popen]:
    command = [
        sys.executable, "-m", "pipelines.open_lab", "--", "--no-browser", "--ip=127.0.0.1", f"--port={port}",
        "--ServerApp.port_retries=0", f"--IdentityProvider.token={lab.token}", "--allow-root",
    ]  # fmt: skip
    own = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    own["PYTHONPATH"] = str(REPO_ROOT)
    with (folder / "server.log").open("wb") as file:
        process = subprocess.Popen(command, cwd=lab.root, env=os.environ | own, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(lab: Lab, process: subprocess.Popen) -> bool:
    """Waits until the server answers, or has ended."""

    def has_status() -> bool:
        try:
            lab.ask("/api/status")
        except OSError:
            return False
        return True

    return until(lambda: has_status() or process.poll() is not None, patience_s=300) and process.poll() is None
