import pytest
from IPython.core.interactiveshell import InteractiveShell

from migration.analysis.facts import NotebookFacts
from migration.python.source import CellSource
from migration.rules import cell_magics, forms, magics
from migration.rules.rewriting import rewrite

RULES = (*cell_magics.RULES, *magics.RULES)


def _rewrite(text, *, rules=RULES, language="python"):
    facts = NotebookFacts(language=language)
    new, found = rewrite(CellSource(text, language=language), cell_type="code", rules=rules, facts=facts)
    again, repeated = rewrite(new, cell_type="code", rules=rules, facts=facts)
    assert again is new
    assert not any(finding.changed for finding in repeated)
    return new.text, found


@pytest.mark.parametrize(
    "before, after, keeps",
    [
        ("# a\n%%time\nx = 1", "%%time\n# a\nx = 1", "exact"),
        ("# a\n\n# b\n%%capture out\nx = 1\n", "%%capture out\n# a\n\n# b\nx = 1\n", "exact"),
        ("# a\n%%bash", "%%bash\n# a", "exact"),
        ("# a\n%%bash -s $name\nls\n", "%%bash -s $name\n# a\nls\n", "exact"),
        ("# a\n  %%time\n  x = 1", "  %%time\n  # a\n  x = 1", "exact"),
        ("    # a\n%%time\n\n  x = 1\n  y = 2", "%%time\n  # a\n\n  x = 1\n  y = 2", "exact"),
        ("%%capture\n# a\n%%time\nx = 1", "%%capture\n%%time\n# a\nx = 1", "exact"),
        ("# a\n%%html\n<b>", "%%html\n<b>", "equivalent"),
        ("# a -- b\n%%html\n<b>", "%%html\n<b>", "equivalent"),
        ("## a\n#\n%%javascript\nf()", "%%javascript\nf()", "equivalent"),
        ("# a\n%%bigquery df\nSELECT 1", "%%bigquery df\nSELECT 1", "equivalent"),
        ("# a\n%%latex\n$x$", "%%latex\n$x$", "equivalent"),
        ("# a\n%%writefile f.txt\nbody\n", "%%writefile f.txt\nbody\n", "equivalent"),
        ("# a\n%%bash -c 'cat > f.sv'\nbody\n", "%%bash -c 'cat > f.sv'\nbody\n", "equivalent"),
        ("# a\n%%script tee f.txt\nbody\n", "%%script tee f.txt\nbody\n", "equivalent"),
        ("# a\n%%my_magic\nbody\n", "%%my_magic\nbody\n", "equivalent"),
    ],
)
def test_a_comment_above_a_magic_is_moved(before, after, keeps):
    new, found = _rewrite(before)
    assert new == after
    changes = [finding for finding in found if finding.changed]
    assert [(finding.rule, finding.keeps.value) for finding in changes] == [("LF560", keeps)]


def test_a_comment_that_would_become_content_is_moved_to_a_cell_above():
    text = "#@title The classes {display-mode: 'form'}\n# one a line\n%%writefile names.txt\ncat"
    new, _ = rewrite(CellSource(text), cell_type="code", rules=cell_magics.RULES, facts=NotebookFacts())
    assert (new.text, new.prose) == ("%%writefile names.txt\ncat", "#### The classes  \none a line")


@pytest.mark.parametrize(
    "text",
    [
        "\n\n%%time\nx = 1",
        "%%time\n# a\nx = 1",
        "%%capture\n%%time\nx = 1",
        "%%writefile f.py\n# a\n%%time\nx = 1",
        "%%bash\n# a\n%%time",
        "# a\nx = 1",
        "s = '''\n# a\n%%time\n'''",
        "",
        "#",
    ],
)
def test_other_cells_are_unchanged(text):
    assert _rewrite(text) == (text, [])


def test_the_title_of_a_form_ends_below_the_magic():
    new, _ = _rewrite("#@title Run it\n%%time\nx = 1", rules=(*forms.RULES, *cell_magics.RULES))
    assert new == "%%time\n# Run it\nx = 1"


def test_other_languages_are_unchanged():
    assert _rewrite("# a\n%%time\nx", language="r") == ("# a\n%%time\nx", [])


def test_the_moved_magic_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shell = InteractiveShell()
    before = "# what it says\n%%writefile made.txt\nbody\n"
    assert shell.run_cell(before).error_in_exec or not (tmp_path / "made.txt").exists()
    shell.run_cell(_rewrite(before)[0]).raise_error()
    assert (tmp_path / "made.txt").read_text() == "body\n"
    shell.run_cell(_rewrite("# a\n%%capture out\n# b\n%%time\nprint('x')")[0]).raise_error()
    assert shell.user_ns["out"].stdout.startswith("x\n")


@pytest.mark.parametrize(
    "before, after",
    [
        ("%%shell\nls\n", "%%bash\nls\n"),
        ("%%shell --ignore-errors\nfalse", "%%bash --no-raise-error\nfalse"),
        ("# a\n%%shell\nls", "%%bash\n# a\nls"),
        ("%%time\n%%shell\nls\n", "%%time\n%%bash\nls\n"),
        ("# a\n%%capture out\n%%time\n%%shell\nls", "%%capture out\n%%time\n%%bash\n# a\nls"),
    ],
)
def test_a_shell_cell_is_a_bash_cell(before, after):
    new, found = _rewrite(before)
    assert new == after
    assert "LF561" in [finding.rule for finding in found]


def test_a_bash_cell_ignores_errors_as_the_shell_cell_did():
    shell = InteractiveShell()
    shell.run_cell(_rewrite("%%shell --ignore-errors\nfalse\n")[0]).raise_error()
    assert shell.run_cell(_rewrite("%%shell\nfalse\n")[0]).error_in_exec is not None
