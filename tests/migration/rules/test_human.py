import pytest

from migration.analysis.facts import NotebookFacts
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.rules import credentials, hazards, human
from migration.rules.rewriting import rewrite

RULES = (*credentials.RULES, *human.LOGIN_RULES, *hazards.RULES, *human.RULES)


def _found(text, *, language="python"):
    facts = NotebookFacts(language=language)
    source, found = rewrite(CellSource(text, language=language), cell_type="code", rules=RULES, facts=facts)
    assert source.text == text
    assert all(finding.action for finding in found)
    return [(finding.rule, finding.line) for finding in found]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a = 1\nb = int(input('how many? '))", [("LF811", 2)]),
        ("from getpass import getpass\nkey = os.getenv('K') or getpass('key')", [("LF811", 2)]),
        ("import getpass\ngetpass.getpass()", [("LF811", 2)]),
        ("from huggingface_hub import notebook_login\nnotebook_login()", [("LF811", 2)]),
        ("from huggingface_hub import login\nlogin()", [("LF811", 2)]),
        ("from huggingface_hub import login\nlogin(token=t)", []),
        ("site.login()", []),
        ("note_seq.notebook_utils.colab_play(audio)", [("LF842", 1)]),
        ("viewer.show_colab()", [("LF842", 1)]),
        (
            "import plotly.io as pio\npio.renderers.default = 'colab'\nfig.show(renderer=\"colab\")",
            [("LF842", 2), ("LF842", 3)],
        ),
        ("# fig.show(renderer='colab')\nfig.show(renderer='notebook')", []),
        ("tfdf.model_plotter.plot_model_in_colab(m)", []),
        ("if utils.is_colab() or utils.in_colab():\n    run()", []),
        ("import wandb\nwandb.login()", [("LF811", 2)]),
        ("wandb.login(key=k)", []),
        ("# input()\nform.input(1)", []),
        ("print 'old'\nx = raw_input('a')", [("LF811", 2)]),
        ("x = <YOUR CODE>\ny = 'the first input (at 0)'", []),
        ("!huggingface-cli login", [("LF811", 1)]),
        ("!uv run wandb login\n!python -m wandb login", [("LF811", 1), ("LF811", 2)]),
        ("!uv run wandb login {key}\n!uv run x.py", []),
        ("!hf auth login --token $HF_TOKEN", []),
        ("%%bash\nls\ngcloud auth login", [("LF811", 3)]),
        ("!bash", [("LF811", 1)]),
        ("!cd x && sudo bash -i", [("LF811", 1), ("LF822", 1)]),
        ("! pip uninstall a\n%pip uninstall -q b", [("LF811", 1), ("LF811", 2)]),
        ("!pip uninstall -y a\n%pip uninstall b --yes\n!yes | pip uninstall a\n!uv pip uninstall a", []),
        ("!bash x.sh && cat x | bash", []),
        ("!bash <<< ls", []),
        ("%%bash\nbash", []),
        ("!python x.py --tpu colab", [("LF842", 1)]),
        ("%%bash\npython x.py --accelerator=colab --x", [("LF842", 2)]),
        ("subprocess.run(['python', 'x.py', '--env', 'colab'])", [("LF842", 1)]),
        ("!python x.py --use_colab", [("LF842", 1)]),
        ("!python x.py --out colab --name colab-1 --colab.json\n# --colab\np.add_argument('--colab')", []),
    ],
)
def test_manual_steps_are_reported(text, expected):
    assert _found(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")',
        "# tpu = TPUClusterResolver()\n# x.cuda()",
        "torch.cuda.is_available()",
        "",
    ],
)
def test_code_that_runs_anywhere_is_not_reported(text):
    assert _found(text) == []


@pytest.mark.parametrize(
    "text, line", [("a = 1\nb = # YOUR CODE", 2), ("print 'a'", 1), ("f(", 1), ("x = 1\n  y = 2", 2)]
)
def test_cells_that_cannot_be_parsed_name_the_line(text, line):
    found = human.unparsed(CellSource(text, index=3))
    assert (found.rule, found.cell, found.line, found.keeps) == ("LF901", 3, line, Keeps.NEEDS_HUMAN)
    assert found.before == text.split("\n")[line - 1]


def test_the_reason_is_reported_completely():
    assert "'(' was never closed" in human.unparsed(CellSource("f(")).message
    assert "Python 2" in human.unparsed(CellSource("print 'a'")).message


@pytest.mark.parametrize("text", ["", "x = 1", "!ls {", "%%bash\nls (", "%%capture\npip install a -U"])
def test_cells_that_can_be_read_are_not_reported(text):
    assert human.unparsed(CellSource(text)) is None


def test_other_languages_are_reported_if_they_use_colab():
    assert _found('setwd("/content/a")', language="r") == [("LF903", 1)]
    assert _found("%%shell\njulia -e 'using Pkg'", language="julia") == [("LF903", 1)]
    assert _found("print(1)", language="r") == []


@pytest.mark.parametrize(
    "text, lines",
    [
        ("import a, colab_camera as b", [1]),
        ("import os\nfrom jax_md.colab_tools import renderer", [2]),
        ("from a.colab import b\nimport a.b_colab", [1, 2]),
        ("from google.colab import files\nimport google.colab", []),
        ("import condacolab, colab_transfer, colabtools", []),
        ("import midi_to_colab_audio", []),
        ("import rosettacolabsetup; rosettacolabsetup.install()", [1]),
        ("import colabsetup\nfrom mycolabutils import a\nfrom b.colabutils import c", [1, 2, 3]),
        ("import mycolabtools\nfrom a.colabtools import b", [1]),
        ("import colabfold, colabdesign", []),
        ("from a import is_colab", []),
        ("from a import b, colab\nfrom . import colab_b\nfrom a.colab_b import colab, c", [1, 2, 3]),
        ("from google import colab\nfrom jax.tools import colab_tpu", []),
    ],
)
def test_modules_for_colab_are_reported(text, lines):
    assert [line for rule, line in _found(text) if rule == "LF842"] == lines


@pytest.mark.parametrize(
    "text, keeps",
    [
        ("try:\n    a = TPUClusterResolver()\nexcept ValueError:\n    a = None", Keeps.EQUIVALENT),
        ("try:\n    a = TPUClusterResolver()\nexcept ImportError:\n    a = None", Keeps.NEEDS_HUMAN),
        ("try:\n    b()\nexcept ValueError:\n    a = TPUClusterResolver()", Keeps.NEEDS_HUMAN),
        ("try:\n    from jax.tools import colab_tpu\nexcept:\n    pass", Keeps.EQUIVALENT),
        ("try:\n    from jax.tools import colab_tpu\nexcept ValueError:\n    pass", Keeps.NEEDS_HUMAN),
        ("try:\n    a = TPUStrategy(b)\nexcept ValueError:\n    a = None", Keeps.NEEDS_HUMAN),
    ],
)
def test_a_caught_error_without_a_tpu_needs_no_change(text, keeps):
    _, (finding,) = rewrite(CellSource(text), cell_type="code", rules=RULES, facts=NotebookFacts())
    assert (finding.rule, finding.keeps) == ("LF841", keeps)
