"""`google.colab` as text only: comments, strings, commands, other languages, cells that are not Python 3."""

from dataclasses import replace

import pytest

from migration.analysis.facts import collect_facts
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.rules import colab_text
from migration.rules.rewriting import rewrite


def _one(text):
    source = CellSource(text)
    facts = collect_facts([source, CellSource("from google.colab import files", index=1)])
    new, found = rewrite(source, cell_type="code", rules=colab_text.RULES, facts=facts)
    assert rewrite(new, cell_type="code", rules=colab_text.RULES, facts=facts)[0] is new
    return new.text, found


@pytest.mark.parametrize(
    "before, after, rule",
    [
        ("# from google.colab import files\n", "# from landfall_runtime import files\n", "LF230"),
        ("a()  # import google.colab.files as f", "a()  # import landfall_runtime.files as f", "LF230"),
        ("#from google.colab.patches import cv2_imshow", "#from landfall_runtime.patches import cv2_imshow", "LF230"),
        ("# from google import colab", "# import landfall_runtime as colab", "LF230"),
        ("# google.colab.output.clear()\n%%time\na()", "# landfall_runtime.output.clear()\n%%time\na()", "LF230"),
        (
            """url = eval_js(f"google.colab.kernel.proxyPort({port}, {{'cache': true}})")""",
            """url = eval_js(f"landfall_runtime.kernel.proxyPort({port}, {{'cache': true}})")""",
            "LF230",
        ),
        ("!python -c 'import google.colab'", "!python -c 'import landfall_runtime'", "LF230"),
        (
            "%%writefile a.py\nfrom google.colab import drive",
            "%%writefile a.py\nfrom landfall_runtime import drive",
            "LF230",
        ),
        ("%%bash\npython -c 'import google.colab'", "%%bash\npython -c 'import landfall_runtime'", "LF230"),
        ("print 1\nfrom google.colab import files", "print 1\nfrom landfall_runtime import files", "LF230"),
        (
            "print 1\nA = 'google.colab' in sys.modules\nimport google.colab",
            "print 1\nA = 'google.colab' in sys.modules\nimport landfall_runtime",
            "LF230",
        ),
        (
            "%%writefile a.py\nif find_spec('google.colab'):\n    import google.colab",
            "%%writefile a.py\nif find_spec('google.colab'):\n    import landfall_runtime",
            "LF230",
        ),
    ],
)
def test_unambiguous_text_is_rewritten(before, after, rule):
    new, found = _one(before)
    assert new == after
    assert [finding.rule for finding in found] == [rule]


@pytest.mark.parametrize(
    "comment, folders",
    [
        ("# The keys are in google.colab.userdata", {"work", "drive"}),
        ("# from google.colab import drive", {"work"}),
        ("#   import google.colab.drive as d; d.mount('/content/drive')", set()),
    ],
)
def test_a_comment_that_is_prose_or_names_a_drive_without_folder_stays(comment, folders):
    source = CellSource(f"{comment}\nfiles.upload()")
    facts = replace(collect_facts([CellSource("from google.colab import files")]), folders=frozenset(folders))
    new, (finding,) = rewrite(source, cell_type="code", rules=colab_text.RULES, facts=facts)
    assert new is source
    assert (finding.rule, finding.changed) == ("LF230", False)


@pytest.mark.parametrize(
    "text",
    [
        "# from google.colab import files\n# x = files.upload()\nx = 'a.mp4'",
        "# from google.colab import drive\n# drive.mount('/content/drive')\na()",
        'raise OSError("no file: mount the Drive: from google.colab import drive")',
    ],
)
def test_text_is_reported_where_no_code_imports_the_package(text):
    source = CellSource(text)
    new, (finding,) = rewrite(source, cell_type="code", rules=colab_text.RULES, facts=collect_facts([source]))
    assert new is source
    assert (finding.rule, finding.changed) == ("LF230", False)


@pytest.mark.parametrize(
    "text, rule, lines",
    [
        ("js = '<script>google.colab.kernel.invokeFunction(\"a\")</script>'", "LF232", [1]),
        ("js = 'google.colab.kernel.proxyPort(80).then(open)'", "LF232", [1]),
        ("%%javascript\nsetInterval(() => document.querySelector('colab-connect-button').click(), 6e4)", "LF232", [2]),
        ("Javascript('document.querySelector(\"colab-toolbar-button#connect\").click()')", "LF232", [1]),
        ("%%javascript\ngoogle.colab.kernel.comms.open()\nconst a = google.colab.b", "LF232", [2, 3]),
        ('%%html\n<link href="/nbextensions/google.colab/tabbar.css">', "LF232", [2]),
        ("%%writefile a.html\n<script>google.colab.kernel.invokeFunction(1)</script>", "LF232", [2]),
    ],
)
def test_ambiguous_text_is_a_manual_step(text, rule, lines):
    new, found = _one(text)
    assert new == text
    assert [(finding.rule, finding.line) for finding in found] == [(rule, line) for line in lines]
    assert all(finding.keeps is Keeps.NEEDS_HUMAN and finding.action for finding in found)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x = 'colab'",
        "# on Colab",
        "%load_ext google.colab.data_table",
        "from google import genai",
        "from js2py import eval_js\nx = eval_js('const a = 1')",
        "def eval_js(a): pass\nx = eval_js('document.title')",
        "x = eval_js(a)  # Python",
        "# eval_js('<script>')",
    ],
)
def test_other_text_is_unchanged(text):
    assert _one(text) == (text, [])


def test_other_languages_are_unchanged():
    source = CellSource("# from google.colab import files", language="r")
    facts = collect_facts([source], language="r")
    assert rewrite(source, cell_type="code", rules=colab_text.RULES, facts=facts) == (source, [])


@pytest.mark.parametrize("text", ["can't use google.colab.files.upload()", "t = f'{a} google.colab.files.upload()'"])
def test_messages_of_the_author_are_unchanged(text):
    cell = text if text.startswith("t =") else f'print("{text}")'
    new, found = _one(cell)
    assert new == cell
    assert found == []
