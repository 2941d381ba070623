import sys

import pytest

from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.rules import commands
from migration.rules.commands import needs_bash
from migration.rules.rewriting import rewrite
from tests.support.compiling import compiles
from tests.support.kernels import running_kernel
from tests.support.waiting import PATIENCE_S, until

RULES = commands.RULES


def _rewrite(text):
    facts = NotebookFacts()
    new, found = rewrite(CellSource(text), cell_type="code", rules=RULES, facts=facts)
    again, repeated = rewrite(new, cell_type="code", rules=RULES, facts=facts)
    assert again is new
    assert not any(finding.changed for finding in repeated)
    return new.text, found


@pytest.mark.parametrize(
    "before, after",
    [
        ("!serve &", '!(trap "" HUP; (serve) > /dev/null 2>&1 &)'),
        ("!serve > log &", '!(trap "" HUP; (serve > log) > /dev/null 2>&1 &)'),
        ("!serve &> log &  ", '!(trap "" HUP; (serve &> log) > /dev/null 2>&1 &)  '),
        ("!nohup serve -p {port} &", '!(trap "" HUP; (nohup serve -p {port}) >> nohup.out 2>&1 &)'),
        ("!nohup serve > log &", '!(trap "" HUP; (nohup serve > log) > /dev/null 2>&1 &)'),
        ("!cd a && serve &", '!(trap "" HUP; (cd a && serve) > /dev/null 2>&1 &)'),
        ("!(cd a; serve) &", '!(trap "" HUP; ( (cd a; serve)) > /dev/null 2>&1 &)'),
        ("if a:\n  x = !serve &", 'if a:\n  x = !(trap "" HUP; (serve) > /dev/null 2>&1 &)'),
        ("!serve \\\n  --port 1 &\nx = 1", '!(trap "" HUP; (serve \\\n  --port 1) > /dev/null 2>&1 &)\nx = 1'),
    ],
)
def test_a_background_command_is_detached(before, after):
    new, (finding,) = _rewrite(before)
    assert new == after
    assert compiles(new)
    assert (finding.rule, finding.keeps) == ("LF540", Keeps.EQUIVALENT)


@pytest.mark.parametrize(
    "text",
    [
        "!a && b",
        "!a & b",
        "!echo 'a &'",
        "%%bash\nserve &\n",
        "os.system('serve &')",
        "x = 1 &",
        "!echo a \\&",
        "# !a &",
    ],
)
def test_commands_accepted_by_ipython_are_unchanged(text):
    assert _rewrite(text)[0] == text


WRITER = """\
import os, sys, time
print("started", flush=True)
print("started", file=sys.stderr, flush=True)
for count in range(10_000):
    with open("part", "w") as file:
        file.write(str(count))
    os.replace("part", "count")
    time.sleep(0.05)
    if os.path.exists("stop") or not os.path.exists("writer.py"):
        break
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    "line", ["{python} writer.py &", "nohup {python} writer.py > log &", "cd . && {python} writer.py &"]
)
def test_a_background_command_outlives_its_line_in_a_kernel(tmp_path, line):
    (tmp_path / "writer.py").write_text(WRITER)
    before = "!" + line.format(python=sys.executable)
    with running_kernel(tmp_path) as client:
        run = [client.execute_interactive(text, timeout=PATIENCE_S) for text in (before, _rewrite(before)[0], "!true")]
        assert [reply["content"]["status"] for reply in run] == ["error", "ok", "ok"]
        first = until(lambda: _text(tmp_path / "count"))
        until(lambda: _text(tmp_path / "count") != first)
        (tmp_path / "stop").touch()


def _text(path):
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(
    "before, after",
    [
        ("!kill -9 -1\nx = 1", "!true\nx = 1"),
        ("if a:\n  !pkill -9 python3\n  b()", "if a:\n  !true\n  b()"),
        ("!pip list; pkill python", "!pip list; true"),
        ("!sudo shutdown now", "!true"),
        ("if a:\n    !kill -9 -1 &\nb()", "if a:\n    !true\nb()"),
        ("%%bash\nls\nkill -9 $PPID\n", "%%bash\nls\ntrue\n"),
        ("os.system('killall python')\nx = 1", "os.system('true')\nx = 1"),
    ],
)
def test_commands_that_end_kernel_or_machine_are_removed(before, after):
    new, (finding,) = _rewrite(before)
    assert new == after
    assert (finding.rule, finding.keeps) == ("LF541", Keeps.NEEDS_HUMAN)
    assert "restart the kernel" in finding.action


@pytest.mark.parametrize(
    "text",
    ["!kill 123", "!kill -9 {process.pid}", "!pkill -f server.py", "!killall ngrok", "!pkill -f 'python serve.py'"],
)
def test_commands_that_end_other_processes_are_unchanged(text):
    assert _rewrite(text) == (text, [])


def test_google_cloud_programs_are_reported_once_per_cell():
    text = "!gsutil cp gs://b/a .\n!gcloud config set project p\n"
    new, (finding,) = _rewrite(text)
    assert new == text
    assert (finding.rule, finding.line, finding.keeps) == ("LF545", 1, Keeps.NEEDS_HUMAN)
    assert "cloud.google.com/sdk" in finding.action
    assert _rewrite("!echo gsutil\n# !bq ls")[1] == []


@pytest.mark.parametrize(
    "text",
    [
        "![[ -e a ]] && ls",
        "!diff <(ls a) <(ls b)",
        "!mkdir -p a/{b,c}",
        "!echo {1..3}",
        "x = !cat <<< text",
        "!source activate x",
        "!echo -e 'a\\tb'",
        "!a &> log",
        "%pip install a &> log",
        "!a |& tee log",
        "!echo ${x//a/b}",
        '!echo "${x//a/b}"',
        "!set -o pipefail; a | b",
        "![ a == b ] && ls",
        "!pushd a && ls",
        "%sx names=(a b); ls",
        "!echo $RANDOM",
    ],
)
def test_bash_syntax_is_recognised(text):
    assert needs_bash(CellSource(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x = 1",
        "!ls {folder}",
        "!ls > log 2>&1",
        "!ls >&2",
        "!a --source b",
        "!echo '[[ {1..3} <(a)'",
        '!mkdir -p "a/{b,c}"',
        "!echo ${HOME} ${x:-y}",
        "!echo -n a",
        "!python -c 'print([[1]])'",
        "%%bash\n[[ -e a ]]",
        "os.system('[[ -e a ]]')",
        "%cd {a,b}",
        '!(trap "" HUP; serve > /dev/null 2>&1 &)',
    ],
)
def test_portable_shell_lines_are_recognised(text):
    assert not needs_bash(CellSource(text))


@pytest.mark.parametrize(
    "text", ["!", "! &", "!&", "!kill", "!ln -s", "!|", "!(", "!nvidia-smi |", "%%bash\n&", "os.system('&')"]
)
def test_incomplete_lines_do_not_raise(text):
    _rewrite(text)
    needs_bash(CellSource(text))
