import functools
import http.server
import os
import shutil
import subprocess
import threading

import pytest

from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.rules import downloads
from migration.rules.rewriting import rewrite

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
needs_wget = pytest.mark.skipif(shutil.which("wget") is None, reason="wget is not installed")
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")

HOST = "http://files.example.org"


def _rewrite(text):
    facts = NotebookFacts(rerunnable=True)
    new, found = rewrite(CellSource(text), cell_type="code", rules=downloads.RULES, facts=facts)
    again, repeated = rewrite(new, cell_type="code", rules=downloads.RULES, facts=facts)
    assert again is new
    assert repeated == []
    return new.text, found


@pytest.mark.parametrize(
    "before, after",
    [
        ("!git clone https://h/a/repo.git", "![ -d repo/.git ] || git clone https://h/a/repo.git"),
        ("!git clone https://h/a/repo/", "![ -d repo/.git ] || git clone https://h/a/repo/"),
        ("!git clone git@h:repo.git", "![ -d repo/.git ] || git clone git@h:repo.git"),
        ("!git clone -q -b main --depth 1 https://h/r", "![ -d r/.git ] || git clone -q -b main --depth 1 https://h/r"),
        ("!git clone --depth=1 https://h/r to/x/", "![ -d to/x/.git ] || git clone --depth=1 https://h/r to/x/"),
        ('!git clone https://h/r "my dir"', '![ -d "my dir"/.git ] || git clone https://h/r "my dir"'),
        ("!git clone {url} {name}", "![ -d {name}/.git ] || git clone {url} {name}"),
        ("!git clone https://h/{name}.git", "![ -d {name}/.git ] || git clone https://h/{name}.git"),
        ("!git clone $url $name", "![ -d $name/.git ] || git clone $url $name"),
        ("!git -C /content clone https://h/r", "![ -d /content/r/.git ] || git -C /content clone https://h/r"),
        ("!A=1 git clone https://h/r > log 2>&1", "![ -d r/.git ] || A=1 git clone https://h/r > log 2>&1"),
        ("!git clone https://h/r && cd r && ls", "!([ -d r/.git ] || git clone https://h/r) && cd r && ls"),
        ("!cd a && git clone https://h/r", "!cd a && ([ -d r/.git ] || git clone https://h/r)"),
        ("!cd a; git clone https://h/r; cd r", "!cd a; [ -d r/.git ] || git clone https://h/r; cd r"),
        ("!git clone https://h/r | tail -1", "![ -d r/.git ] || git clone https://h/r | tail -1"),
        ("x = !git lfs clone https://h/r", "x = ![ -d r/.git ] || git lfs clone https://h/r"),
        ("%%bash\nset -e\ngit clone https://h/r\n", "%%bash\nset -e\n[ -d r/.git ] || git clone https://h/r\n"),
        ("for r in rs:\n  !git clone {r} d", "for r in rs:\n  ![ -d d/.git ] || git clone {r} d"),
        ('os.system("git clone https://h/r")', 'os.system("[ -d r/.git ] || git clone https://h/r")'),
        ("os.system(f'git clone {u} d; ls')", "os.system(f'[ -d d/.git ] || git clone {u} d; ls')"),
    ],
)
def test_an_existing_clone_is_kept(before, after):
    new, (finding,) = _rewrite(before)
    assert new == after
    assert (finding.rule, finding.keeps) == ("LF535", Keeps.EQUIVALENT)


@pytest.mark.parametrize(
    "text",
    [
        "!git clone {url}",
        "!git clone $url",
        "!git clone https://h/$name.git",
        "!git clone --mirror https://h/r",
        "!git clone https://h/r `date +%F`",
        "![ -d r ] || git clone https://h/r",
        "!if [ ! -d r ]; then git clone https://h/r; fi",
        "!git clone https://h/r || (cd r && git pull)",
        "!rm -rf r && git clone https://h/r",
        "!rm -rf r\n!git clone https://h/r",
        "if not os.path.exists('r'):\n  !git clone https://h/r",
        "status = os.system('git clone https://h/r')",
        "os.system(f'git clone https://h/{r}')",
        "!echo git clone https://h/r",
        "# !git clone https://h/r",
        "!git clone",
        "%%writefile a.sh\ngit clone https://h/r\n",
    ],
)
def test_a_clone_with_an_unknown_or_tested_folder_is_unchanged(text):
    assert _rewrite(text) == (text, [])


@pytest.mark.parametrize(
    "before, after",
    [
        ("!wget https://h/a.zip", "!wget -nc https://h/a.zip"),
        ("!wget -q -P data {url} && unzip a", "!wget -nc -q -P data {url} && unzip a"),
        ("!wget -nv --no-check-certificate https://h/a", "!wget -nc -nv --no-check-certificate https://h/a"),
        ("!wget -i list.txt", "!wget -nc -i list.txt"),
        ("!sudo wget https://h/a", "!sudo wget -nc https://h/a"),
        ("for u in urls:\n  !wget $u", "for u in urls:\n  !wget -nc $u"),
        ("%%bash\nwget https://h/a\nwget https://h/b", "%%bash\nwget -nc https://h/a\nwget -nc https://h/b"),
        ("os.system('wget https://h/a')", "os.system('wget -nc https://h/a')"),
    ],
)
def test_wget_keeps_the_file(before, after):
    new, found = _rewrite(before)
    assert new == after
    assert {finding.rule for finding in found} == {"LF536"}


@pytest.mark.parametrize(
    "text",
    [
        "!wget -nc https://h/a",
        "!wget -qnc https://h/a",
        "!wget -nvc https://h/a",
        "!wget -c https://h/a",
        "!wget -N https://h/a",
        "!wget -m https://h/",
        "!wget -qO- https://h/a | tar xz",
        "!wget -O - https://h/a | sh",
        "!wget --output-document=- https://h/a",
        "!wget --spider https://h/a",
        "!wget --version",
        "!wget https://h/a/x.zip\n!wget https://h/b/x.zip",
        "for i in r:\n  !wget https://h/{i}/x.zip",
        "%%bash\nfor i in 1 2; do wget https://h/$i/x.zip; done",
        "!pip install wget",
        "import wget",
        "if not os.path.isfile('a'):\n  !wget https://h/a",
    ],
)
def test_a_rerunnable_wget_is_unchanged(text):
    assert _rewrite(text) == (text, [])


@pytest.mark.parametrize(
    "before, after",
    [
        ("!wget https://h/a -O x.zip", "![ -s x.zip ] || wget https://h/a -O x.zip"),
        ("!wget -qOx.zip https://h/a?b=1", "![ -s x.zip ] || wget -qOx.zip https://h/a?b=1"),
        ("!wget -O x https://h/a && tar xf x", "!([ -s x ] || wget -O x https://h/a) && tar xf x"),
        ("!curl -LO https://h/b.zip", "![ -s b.zip ] || curl -LO https://h/b.zip"),
        ("!curl -sSLo x https://h/b", "![ -s x ] || curl -sSLo x https://h/b"),
        ('!curl https://h/b -o "my x" -H "A: b"', '![ -s "my x" ] || curl https://h/b -o "my x" -H "A: b"'),
        ("!curl -o /content/x https://h/b", "![ -s /content/x ] || curl -o /content/x https://h/b"),
        ("!gdown --id 1ab -O x.zip", "![ -s x.zip ] || gdown --id 1ab -O x.zip"),
        ("!gdown -q 'https://d/uc?id=1' -O x", "![ -s x ] || gdown -q 'https://d/uc?id=1' -O x"),
        ("if a:\n  !curl -O https://h/b.zip", "if a:\n  ![ -s b.zip ] || curl -O https://h/b.zip"),
    ],
)
def test_an_existing_named_file_is_kept(before, after):
    new, (finding,) = _rewrite(before)
    assert new == after
    assert (finding.rule, finding.keeps) == ("LF537", Keeps.EQUIVALENT)


@pytest.mark.parametrize(
    "text",
    [
        "!wget $url -O x.png",
        "!wget https://h/a -O {x}",
        "!wget https://h/a -O x\n!wget https://h/b -O x",
        "for i in r:\n  !wget https://h/a -O x",
        "def f():\n  !curl -o x https://h/a",
        "!for i in 1 2; do curl -o x https://h/a; done",
        "!curl -o x http://localhost:8501/v1/models",
        "!curl -X POST https://h/a -o x",
        "!curl -d '{{}}' https://h/a -o x",
        "!curl https://h/install.sh | sh",
        "!curl -o /dev/null https://h/a",
        "!wget -O /tmp/data.zip https://h/a",
        "!curl -o ~/x https://h/a",
        "!curl -O https://h/a?b=1",
        "![ -f x ] || wget -O x https://h/a",
        "!wget -O x https://h/a || wget -O x https://h/b",
        "!wget -c -O x https://h/a",
        "!gdown --id 1ab",
        "!gdown --folder -O x https://d/1",
        "!gdown -O data/ https://d/1",
        "!aria2c -c https://h/a -d x -o y",
        "x = $(wget -O x https://h/a)",
        "!tar xf $(wget -O x https://h/a)",
    ],
)
def test_a_download_that_may_change_is_unchanged(text):
    assert _rewrite(text) == (text, [])


@pytest.mark.parametrize(
    "text", ["!git", "!wget", "!curl -o", "!wget -O", "!git -C", "!git -C x", "%%bash\n", "!curl -", "!gdown -O"]
)
def test_incomplete_commands_do_not_raise(text):
    assert _rewrite(text) == (text, [])


@pytest.fixture
def origin(tmp_path):
    """A repository to clone, with one commit."""
    git = functools.partial(subprocess.run, check=True, capture_output=True)
    folder = tmp_path / "origin.git"
    git(["git", "init", "-q", folder])
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    git(["git", "-C", folder, *identity, "commit", "-q", "--allow-empty", "-m", "first"])
    return folder


@pytest.fixture
def server(tmp_path):
    """The address of a server with the file `a.txt`; it counts its requests in `requests`."""
    (tmp_path / "web").mkdir()
    (tmp_path / "web/a.txt").write_text("first")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            self.server.requests.append(self.path)
            super().do_GET()

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=tmp_path / "web")
    ) as found:
        found.requests = []
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def _run(line, folder, shell="sh"):
    """The exit status and output of a migrated `!` line, as IPython gives it to the shell."""
    folder.mkdir(exist_ok=True)
    new, _ = _rewrite("!" + line)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    done = subprocess.run([shell, "-c", new[1:]], cwd=folder, capture_output=True, text=True, env=environment)
    return done.returncode, done.stdout


@needs_git
@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(
    "line, folder",
    [
        ("git clone -q {origin}", "origin"),
        ("git clone -q {origin} there", "there"),
        ('git clone -q {origin} "a b"', "a b"),
        ("git clone -q {origin} && cd origin", "origin"),
    ],
)
def test_a_second_clone_succeeds(tmp_path, origin, line, folder, shell):
    work = tmp_path / "work"
    line = line.format(origin=origin)
    assert _run(f"{line} && echo done", work, shell) == (0, "done\n")
    (work / folder / "mine.txt").write_text("mine")
    assert _run(f"{line} && echo done", work, shell) == (0, "done\n")
    assert (work / folder / "mine.txt").exists()
    # Without the guard the list ends there.
    assert subprocess.run(["sh", "-c", line], cwd=work, capture_output=True).returncode != 0


@needs_git
def test_an_empty_folder_is_still_cloned_into(tmp_path, origin):
    work = tmp_path / "work"
    (work / "there").mkdir(parents=True)
    assert _run(f"git clone -q {origin} there", work)[0] == 0
    assert (work / "there/.git").is_dir()


@needs_git
def test_a_clone_that_fails_still_fails(tmp_path):
    assert _run(f"git clone -q {tmp_path / 'none'} && echo done", tmp_path / "work")[1] == ""


@needs_wget
def test_wget_makes_no_second_copy(tmp_path, server):
    work = tmp_path / "work"
    line = f"wget -q http://127.0.0.1:{server.server_port}/a.txt && echo done"
    assert _run(line, work) == (0, "done\n")
    assert _run(line, work) == (0, "done\n")
    assert [path.name for path in work.iterdir()] == ["a.txt"]
    assert server.requests == ["/a.txt"]


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"wget -q -O x {HOST}/a.txt && cat x", marks=needs_wget),
        pytest.param(f"curl -s -o x {HOST}/a.txt && cat x", marks=needs_curl),
        pytest.param(f"curl -sO {HOST}/a.txt && cat a.txt", marks=needs_curl),
    ],
)
def test_a_named_file_is_fetched_once(tmp_path, server, line):
    work = tmp_path / "work"
    work.mkdir()
    new, _ = _rewrite("!" + line)
    command = new[1:].replace(HOST, f"http://127.0.0.1:{server.server_port}")
    for _ in range(2):
        done = subprocess.run(["sh", "-c", command], cwd=work, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "first")
    assert server.requests == ["/a.txt"]


@needs_wget
def test_an_empty_file_of_a_failed_download_is_fetched_again(tmp_path, server):
    work = tmp_path / "work"
    work.mkdir()
    (work / "x").touch()
    new, _ = _rewrite(f"!wget -q -O x {HOST}/a.txt")
    command = new[1:].replace(HOST, f"http://127.0.0.1:{server.server_port}")
    subprocess.run(["sh", "-c", command], cwd=work, check=True)
    assert (work / "x").read_text() == "first"
