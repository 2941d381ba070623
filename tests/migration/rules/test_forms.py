import pytest

from migration.analysis.facts import NotebookFacts
from migration.analysis.parameters import plan_parameters
from migration.python.source import CellSource
from migration.rules import forms
from migration.rules.rewriting import rewrite
from tests.support.compiling import compiles


def _rewrite(text, *, facts=None):
    facts = facts or NotebookFacts(parameters=plan_parameters([CellSource(text)]))
    new, found = rewrite(CellSource(text, language=facts.language), cell_type="code", rules=forms.RULES, facts=facts)
    return new.text, found


@pytest.mark.parametrize(
    "before, after",
    [
        ('#@title Train it { display-mode: "form" }\nx = 1\n', "# Train it\nx = 1\n"),
        ("# @title Train it {run: 'auto'}\n", "# Train it\n"),
        ("#@ title A", "# A"),
        ("# @title 2\\. A", "# 2. A"),
        ("#@title Use {x} here", "# Use {x} here"),
        ("if a:\n    #@title B\n    b()", "if a:\n    # B\n    b()"),
        ("x = 1 #@title C", "x = 1 # C"),
        ("x = 1  #@title {run: 'auto'}\ny = 2", "x = 1\ny = 2"),
        ("#@title\nx = 1", "x = 1"),
        ('#@title { run: "auto" }\n\n\n  x = 1\n\ny = 2', "  x = 1\n\ny = 2"),
        ('x = 1\n\n#@title { run: "auto" }\n', "x = 1"),
        ("#@markdown ---\n#@markdown ### Text\n#@markdown\n", "# Text"),
        ("#@markdown A\n#@markdown\n#@markdown\n#@markdown B", "# A\n#\n#\n# B"),
        ("#@markdown\nx = 1\n#@markdown\n#@markdown B", "x = 1\n# B"),
        ("#@markdown A\n#@markdown\n#@markdown <br>\n#@markdown\n#@markdown B", "# A\n#\n#\n# B"),
        ("#@markdown A\n\n#@markdown\n\nx = 1\n\n#@markdown ---\ny = 2", "# A\n\nx = 1\n\ny = 2"),
        ("#@markdown <br><hr/>\n#@markdown Text<br>\n", "# Text<br>\n"),
        ("#@markdown <hr size=2>\n#@markdown <b>Text</b>\n#@markdown <font size=1>&nbsp;</font>\n", "# <b>Text</b>"),
        ("#@markdown <img src=a.png>\n", "# <img src=a.png>\n"),
        ("#@markdown ##Text\n#@markdown #Text\n#@markdown #1 of 2\n", "# Text\n# Text\n# #1 of 2\n"),
        ("#@title ## Part #1 in C# too {run: 'auto'}", "# Part #1 in C# too"),
        ("#@title #@markdown A", "# # A"),
        ("#@title A\n%%time\nb()", "# A\n%%time\nb()"),
        ("#@title A\n%%writefile f.py\n#@title B\n", "# A\n%%writefile f.py\n#@title B\n"),
        ("%%bash\n#@title A\nls", "%%bash\n# A\nls"),
        ("print 'old'\n#@title A\n", "print 'old'\n# A\n"),
        ("!ls a b c d e f g\n#@title A\n", "!ls a b c d e f g\n# A\n"),
        ("# #@markdown A", "# # A"),
        ("##@markdown A", "## A"),
    ],
)
def test_titles_and_text_become_comments(before, after):
    new, found = _rewrite(before)
    assert new == after
    assert all(finding.changed for finding in found)
    assert _rewrite(new)[0] is new


@pytest.mark.parametrize(
    "text, is_named",
    [
        ("#@title A {run: 'auto'}\nx = 1 #@param\na(x)", True),
        ("#@title A {run: 'auto'}\nx = 1", False),
        ("#@title A\nx = 1 #@param\na(x)", False),
    ],
)
def test_a_form_that_colab_runs_by_itself_is_reported(text, is_named):
    (found,) = (finding for finding in _rewrite(text)[1] if finding.rule == "LF601")
    assert ("after each change" in found.action) is is_named


def test_a_field_in_a_shell_cell_becomes_a_plain_comment():
    new, (finding,) = _rewrite('%%bash\nN=3 # @param {type: "integer"}\necho "# @param"\n')
    assert new == '%%bash\nN=3\necho "# @param"\n'
    assert finding.rule == "LF603"
    assert "its cell cannot be parsed" in finding.message


@pytest.mark.parametrize(
    "text",
    [
        "s = '#@title A'",
        's = """\n#@title A\n"""',
        "#@test {}",
        "#@save\nx",
        "# at @title",
        "@title\ndef f(): pass",
        "",
    ],
)
def test_other_text_is_unchanged(text):
    assert _rewrite(text)[0] is text


@pytest.mark.parametrize(
    "before, after, reason",
    [
        ("if a:\n    x = 1 #@param {type:'number'}", "if a:\n    x = 1", "inside a branch"),
        ("x = y #@param", "x = y", "expression"),
        ("x = y #@param {type:'string', placeholder:'a.csv'}", "x = y # a.csv", "expression"),
        ("# x = 1 #@param [1, 2]", "# x = 1 # one of [1, 2]", "commented out"),
        ("x = 1 #@param\nx = 2", "x = 1\nx = 2", "also assigned in cell 0"),
        ("x = 1 #@param\nprint 2", "x = 1\nprint 2", "cannot be parsed"),
    ],
)
def test_fields_that_stay_have_a_reason(before, after, reason):
    new, found = _rewrite(before)
    assert new == after
    assert [finding.rule for finding in found] == ["LF603"]
    assert reason in found[0].message
    assert compiles(new) == compiles(before)


def test_text_of_a_form_next_to_a_field_is_kept():
    new, _ = _rewrite('x = y #@param {type:"string"} #@markdown the file')
    assert new == "x = y # the file"


def test_fields_that_are_hoisted_are_left_to_their_rule():
    text = "x = 1 #@param"
    assert _rewrite(text)[0] is text


def test_notebooks_of_other_languages_are_unchanged():
    assert _rewrite("#@title A", facts=NotebookFacts(language="r"))[0] == "#@title A"
