import pytest

from migration.analysis.facts import collect_facts
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.rules import restarts
from migration.rules.rewriting import rewrite
from tests.support.compiling import compiles

NOTE = "# The kernel was restarted here."


def _one(text):
    source = CellSource(text)
    facts = collect_facts([source])
    new, found = rewrite(source, cell_type="code", rules=restarts.RULES, facts=facts)
    assert rewrite(new, cell_type="code", rules=restarts.RULES, facts=facts)[0] is new
    assert compiles(new.text)
    return new.text, found


@pytest.mark.parametrize(
    "before, after",
    [
        ("import os\nos.kill(os.getpid(), 9)", f"import os\n{NOTE}"),
        ("os.kill( os.getpid(),\n  signal.SIGKILL )\na()", f"{NOTE}\na()"),
        ("import os; os._exit(0); a()", "import os; a()"),
        ("!pip install a\nexit()\n", f"!pip install a\n{NOTE}\n"),
        ("quit(0)  # restart", f"{NOTE}\n# restart"),
        ("os._exit(0);  # b\nexit()  # c\na()", f"{NOTE}\n# b\n# c\na()"),
        ("b(); exit()  # c", "b()  # c"),
        ("with a:\n    b()\n    os._exit(0)  # c", f"with a:\n    b()\n    {NOTE}\n    # c"),
        ("get_ipython().kernel.do_shutdown(restart=True)", NOTE),
        (
            "app = Application.instance()\napp.kernel.do_shutdown(True)\nprint(app)",
            f"app = Application.instance()\n{NOTE}\nprint(app)",
        ),
        ("with a:\n    os.kill(os.getpid(), 9)\nb()", f"with a:\n    {NOTE}\n    pass\nb()"),
        ("with a: os._exit(0)", "with a: pass"),
        (
            "try:\n    import os\n    os.kill(os.getpid(), 9)\nfinally:\n    b()",
            f"try:\n    import os\n    {NOTE}\nfinally:\n    b()",
        ),
        ("def restart():\n    os.kill(os.getpid(), 9)", f"def restart():\n    {NOTE}\n    pass"),
        ("display_html('<script>Jupyter.notebook.kernel.restart()</script>', raw=True)", NOTE),
    ],
)
def test_restarts_are_removed(before, after):
    new, found = _one(before)
    assert new == after
    assert {(finding.rule, finding.keeps) for finding in found} == {("LF250", Keeps.EQUIVALENT)}
    assert all("restart the kernel here" in finding.action for finding in found)
    assert all("cells below need a new state" in finding.action for finding in found)
    assert all("its state is not reset" in finding.message for finding in found)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sys.exit()",
        "if failed:\n    exit()",
        "try:\n    a()\nexcept OSError:\n    quit()",
        "def f():\n    exit()",
        "def child():\n    os._exit(0)",
        "os.kill(process.pid, 9)",
        "exit = 1",
        "print('exit()')",
    ],
)
def test_other_exits_are_unchanged(text):
    assert _one(text) == (text, [])


@pytest.mark.parametrize(
    "text",
    [
        "if old:\n    print('Restarting: run this cell again.')\n    os.kill(os.getpid(), 9)\na()",
        "if a:\n    try:\n        import b\n\n        b.kernel.do_shutdown(True)\n    except Exception:\n        c()",
    ],
)
def test_a_restart_below_a_condition_needs_a_human(text):
    (finding,) = _one(text)[1]
    assert finding.keeps is Keeps.NEEDS_HUMAN
    assert "run this cell again" in finding.action
    assert "reword" in finding.action
