"""The dashboard server: only the page's files, only for this machine."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from core.errors import EXIT_USAGE, UsageError
from pipelines.serve_dashboard import DashboardHandler, export_hint, has_display, main, make_server
from tests.dashboard.builders import REPOSITORY, write
from tests.support.small_workspace import install_page
from tests.support.waiting import PATIENCE_S, until, when

SECRET = "this must not be served"


@pytest.fixture
def page(tmp_path):
    folder = install_page(tmp_path)
    write(folder / "data" / "dashboard-state.json", {"schema_version": 1})
    write(tmp_path / "secret.txt", SECRET)
    write(folder / ".hidden", SECRET)
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
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE_S)
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
    "path, kind",
    [
        ("/", "text/html"),
        ("/js/app.mjs", "text/javascript"),
        ("/style.css", "text/css"),
        ("/data/dashboard-state.json", "application/json"),
        ("/data/dashboard-state.json?again", "application/json"),
    ],
)
def test_files_have_a_content_type_and_are_revalidated(server, path, kind):
    response, body = ask(server, path)
    assert response.status == 200
    assert int(response.headers["Content-Length"]) == len(body) > 0
    assert response.headers["Content-Type"].startswith(kind)
    assert response.headers["Cache-Control"] == "no-cache"
    assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_the_page_may_load_and_run_only_what_is_served_here(server):
    policy = ask(server, "/")[0].headers["Content-Security-Policy"]
    allowed = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert allowed["default-src"] == "'none'"
    assert allowed["script-src"] == allowed["style-src"] == allowed["connect-src"] == "'self'"
    assert not {"unsafe-inline", "unsafe-eval", "http"} & set(policy.replace("'", " ").replace(":", " ").split())


@pytest.mark.parametrize("path", ["/js/app.mjs", "/data/dashboard-state.json"])
def test_an_unchanged_file_is_not_sent_again(server, path):
    first, _ = ask(server, path)
    again, body = ask(server, path, If_None_Match=f'"other", {first.headers["ETag"]}')
    assert (again.status, body) == (304, b"")
    assert again.headers["ETag"] == first.headers["ETag"]


def test_a_file_that_changed_within_the_same_second_is_sent_again(server, page):
    document = page / "data" / "dashboard-state.json"
    second_ns = 10**9
    os.utime(document, ns=(second_ns, second_ns))
    first, _ = ask(server, "/data/dashboard-state.json")
    write(document, {"schema_version": 2})
    os.utime(document, ns=(second_ns + 1000, second_ns + 1000))
    again, body = ask(server, "/data/dashboard-state.json", If_None_Match=first.headers["ETag"])
    assert (again.status, body) == (200, b'{"schema_version": 2}')


def test_a_head_request_returns_the_length_without_a_body(server):
    response, body = ask(server, "/style.css", method="HEAD")
    assert (response.status, body) == (200, b"")
    assert int(response.headers["Content-Length"]) > 0


def test_a_missing_live_run_is_not_an_error(server):
    assert ask(server, "/data/live/patchtst.json")[0].status == 204
    assert ask(server, "/data/series/patchtst.json")[0].status == 404


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
        "/artifacts/notebooks/r/a.ipynb",
        "/artifacts/notebooks/r/../../../secret.html",
        "/artifacts/notebooks/r/%2e%2e/%2e%2e/%2e%2e/secret.html",
        "/artifacts/report.html",
        "/js/artifacts/notebooks/r/a.html",
    ],
)
def test_no_other_file_is_served(server, page, path):
    for file in ("artifacts/notebooks/r/a.ipynb", "artifacts/report.html", "secret.html"):
        write(page.parent / file, SECRET)
    response, body = ask(server, path)
    assert response.status == 404
    assert SECRET.encode() not in body
    assert b"app.mjs" not in body


def test_a_page_of_a_notebook_can_run_and_load_nothing(server, page):
    write(page.parent / "artifacts/notebooks/r/a.html", "<p>cells</p>")
    response, body = ask(server, "/artifacts/notebooks/r/a.html")
    assert (response.status, body) == (200, b"<p>cells</p>")
    (policy,) = response.headers.get_all("Content-Security-Policy")
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "script-src" not in policy


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_link_to_the_outside_is_not_followed(server, page):
    (page / "data" / "link.txt").symlink_to(page.parent / "secret.txt")
    (page / "data" / "folder").symlink_to(page.parent)
    assert ask(server, "/data/link.txt")[0].status == 404
    assert ask(server, "/data/folder/secret.txt")[0].status == 404


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_circular_link_is_not_found(server, page):
    (page / "data" / "a").symlink_to("b")
    (page / "data" / "b").symlink_to("a")
    assert ask(server, "/data/a")[0].status == 404


def test_a_slow_client_is_disconnected(server, monkeypatch):
    """Its pauses are shorter than the time-out, which would never apply."""
    monkeypatch.setattr(DashboardHandler, "timeout", 1.0)
    deadline = time.monotonic() + PATIENCE_S
    with socket.create_connection(server.server_address) as client, contextlib.suppress(OSError):
        client.sendall(b"GET / HTTP/1.0\r\nX-Slow: ")
        while time.monotonic() < deadline:
            client.sendall(b"x")
            client.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                if client.recv(1) == b"":
                    break
    assert time.monotonic() < deadline


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_slow_clients_do_not_use_all_descriptors(page, monkeypatch):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (16, 16))
    with make_server(page, 0) as server, contextlib.ExitStack() as stack:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        for _ in range(20):
            stack.enter_context(socket.create_connection(server.server_address)).sendall(b"GET / HT")
        assert ask(server, "/")[0].status == 200
        assert len(server.connections) <= 4
        server.shutdown()
        thread.join()


def test_a_client_waits_for_a_thread_that_ends_late(page, monkeypatch):
    """The only place is taken by a request that waits for its disk, also after its connection was closed."""
    monkeypatch.setattr("pipelines.serve_dashboard.MOST_CONNECTIONS", 1)
    monkeypatch.setattr("pipelines.serve_dashboard._HANDOVER_S", 0.01)
    disk_answers = threading.Event()
    monkeypatch.setattr(DashboardHandler, "_send_nothing", lambda handler, path: disk_answers.wait(PATIENCE_S))
    with make_server(page, 0) as server, socket.create_connection(server.server_address) as first:
        tried = []
        acquire = server._places.acquire
        monkeypatch.setattr(server._places, "acquire", lambda **how: tried.append(how) or acquire(**how))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        first.sendall(f"GET /missing.json HTTP/1.0\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode())
        until(lambda: tried)
        when(lambda: len(tried) > 4, disk_answers.set)
        assert ask(server, "/")[0].status == 200
        server.shutdown()
        thread.join()


def test_a_thread_that_cannot_be_started_takes_no_place(page, monkeypatch):
    monkeypatch.setattr("pipelines.serve_dashboard.MOST_CONNECTIONS", 2)
    with make_server(page, 0) as server, contextlib.ExitStack() as stack:
        monkeypatch.setattr(threading.Thread, "start", lambda self: refuse())
        for _ in range(5):
            stack.enter_context(socket.create_connection(server.server_address))
            server.handle_request()
        assert not server.connections
        monkeypatch.undo()
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert ask(server, "/")[0].status == 200
        thread.join()


def refuse():
    raise RuntimeError("can't start new thread")


def test_a_request_from_another_site_is_rejected(server):
    for host in ("attacker.example:80", "127.0.0.1.attacker.example", "localhost.", "", "[::1]"):
        response, body = ask(server, "/data/dashboard-state.json", host=host or " ")
        assert response.status == 421
        assert b"schema_version" not in body
    assert ask(server, "/", host=f"localhost:{server.server_port}")[0].status == 200
    assert ask(server, "/", host="LOCALHOST")[0].status == 200


@pytest.mark.parametrize("hosts", [b"", b"Host: 127.0.0.1\r\nHost: attacker.example\r\n"])
def test_a_request_without_one_host_is_rejected(server, hosts):
    assert b" 421 " in raw(server, b"GET / HTTP/1.1\r\n" + hosts + b"\r\n").splitlines()[0]


def raw(server, request):
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=PATIENCE_S) as connection:
        connection.sendall(request)
        with contextlib.suppress(OSError):  # the server may have hung up first
            connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65_536), b""))


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_write_requests_are_rejected(server, method):
    assert ask(server, "/data/dashboard-state.json", method=method)[0].status == 501


def test_the_server_listens_on_localhost_only(server):
    assert server.server_address[0] == "127.0.0.1"


def test_an_occupied_port_has_a_hint(page, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--port", str(port), "--no-open", "--repo-root", str(page.parent)]) == EXIT_USAGE
    message = capsys.readouterr().err
    assert f"port {port} is in use" in message
    assert "--port 0" in message


def test_invalid_ports_and_folders_without_page_are_usage_errors(page, tmp_path):
    with pytest.raises(UsageError, match="not a valid port"):
        make_server(page, 70_000)
    with pytest.raises(UsageError, match=re.escape("index.html")):
        make_server(tmp_path / "nowhere", 0)


def test_no_browser_opens_over_ssh(monkeypatch):
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 5000 10.0.0.2 22")
    assert not has_display()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C is sent differently on Windows")
def test_ctrl_c_ends_the_server_cleanly(page):
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
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert out == ""
    assert "Traceback" not in err


def test_a_page_that_is_older_than_the_scores_names_the_command(page):
    root, scores = page.parent, page.parent / "artifacts/scores/patchtst_summary.json"
    assert export_hint(root) == ""
    write(scores, {})
    state = page / "data/dashboard-state.json"
    os.utime(state, (1, 1))
    assert "landfall export" in export_hint(root)
    os.utime(scores, (1, 1))
    assert export_hint(root) == ""
    state.unlink()
    assert "nothing exported" in export_hint(root)
