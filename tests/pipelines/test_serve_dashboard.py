"""The dashboard server: only the page's files, only for this machine."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import pytest

from core.errors import EXIT_USAGE, UsageError
from pipelines.serve_dashboard import has_display, main, make_server
from tests.dashboard.builders import REPOSITORY, install_page, write


@pytest.fixture
def page(tmp_path):
    folder = install_page(tmp_path)
    write(folder / "data" / "dashboard-state.json", {"schema_version": 1})
    write(tmp_path / "secret.txt", "secret")
    write(folder / ".hidden", "secret")
    return folder


@pytest.fixture
def server(page):
    with make_server(page, 0) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(server, path, *, method="GET", host=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


@pytest.mark.parametrize(
    "path, kind, caching",
    [
        ("/", "text/html", "no-cache"),
        ("/js/app.mjs", "text/javascript", "no-cache"),
        ("/style.css", "text/css", "no-cache"),
        ("/favicon.svg", "image/svg+xml", "no-cache"),
        ("/data/dashboard-state.json", "application/json", "no-store"),
        ("/data/dashboard-state.json?again", "application/json", "no-store"),
    ],
)
def test_files_come_with_their_type_and_caching(server, path, kind, caching):
    response, body = ask(server, path)
    assert response.status == 200
    assert body
    assert response.headers["Content-Type"].startswith(kind)
    assert response.headers["Cache-Control"] == caching
    assert "default-src 'self'" in response.headers["Content-Security-Policy"]


def test_an_unchanged_file_is_not_sent_again(server):
    first, _ = ask(server, "/js/app.mjs")
    again, body = ask(server, "/js/app.mjs", If_Modified_Since=first.headers["Last-Modified"])
    assert (again.status, body) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/js/../../secret.txt",
        "/..%2fsecret.txt",
        "/..%5csecret.txt",
        "//secret.txt",
        "/js/",
        "/js",
        "/data/",
        "/.hidden",
        "/missing.json",
        "/%00",
    ],
)
def test_nothing_else_is_served(server, path):
    response, body = ask(server, path)
    assert response.status == 404
    assert b"secret" not in body
    assert b"app.mjs" not in body


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_link_that_leads_outwards_is_not_followed(server, page):
    (page / "data" / "link.txt").symlink_to(page.parent / "secret.txt")
    assert ask(server, "/data/link.txt")[0].status == 404


def test_a_page_of_another_site_gets_nothing(server):
    response, body = ask(server, "/data/dashboard-state.json", host="attacker.example:80")
    assert response.status == 421
    assert b"schema_version" not in body
    assert ask(server, "/", host=f"localhost:{server.server_port}")[0].status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_written(server, method):
    assert ask(server, "/data/dashboard-state.json", method=method)[0].status == 501


def test_it_listens_on_this_machine_only(server):
    assert server.server_address[0] == "127.0.0.1"


def test_a_taken_port_says_the_way_out(page, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--port", str(port), "--no-open", "--repo-root", str(page.parent)]) == EXIT_USAGE
    message = capsys.readouterr().err
    assert f"port {port} is taken" in message
    assert "--port 0" in message


def test_a_port_that_cannot_exist_and_a_folder_without_page_are_usage_errors(page, tmp_path):
    with pytest.raises(UsageError, match="no port"):
        make_server(page, 70_000)
    with pytest.raises(UsageError, match=re.escape("index.html")):
        make_server(tmp_path / "nowhere", 0)


def test_no_browser_opens_over_ssh(monkeypatch):
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 5000 10.0.0.2 22")
    assert not has_display()


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is sent differently on Windows")
def test_ctrl_c_ends_it_cleanly(page):
    command = [sys.executable, "-m", "pipelines.serve_dashboard", "--port", "0", "--no-open"]
    process = subprocess.Popen(
        [*command, "--repo-root", str(page.parent)],
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background hands down that Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert "http://127.0.0.1:" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out == ""
    assert "Traceback" not in err
