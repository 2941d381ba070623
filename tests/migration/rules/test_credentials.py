import pytest

from core.secrets.finding import find_secrets
from migration.analysis.facts import NotebookFacts, collect_facts
from migration.python.source import CellSource
from migration.rules import credentials
from migration.rules.rewriting import rewrite
from tests.support.compiling import compiles

_TOKEN = "hf_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF2h"
_GITHUB = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF2hG4"


def _rewrite(text, *, cell_type="code", language="python"):
    facts = NotebookFacts(language=language)
    source = CellSource(text, language=language)
    new, found = rewrite(source, cell_type=cell_type, rules=credentials.RULES, facts=facts)
    assert find_secrets(new.text) == []
    assert all(finding.action for finding in found)
    assert _TOKEN not in repr(found)
    return new.text, found


@pytest.mark.parametrize(
    "before, after",
    [
        (f'token = "{_TOKEN}"', 'import os\ntoken = os.environ["HF_TOKEN"]'),
        (f'import os\na = os.environ["A_TOKEN"] = "{_TOKEN}"',
         'import os\na = os.environ["A_TOKEN"] = os.environ["A_TOKEN"]'),
        (f'import os\nos.environ["X"] = "{_TOKEN}"', 'import os\nos.environ["X"] = os.environ["HF_TOKEN"]'),
        (f"os.chdir(d)\nlogin('{_TOKEN}')", 'os.chdir(d)\nlogin(os.environ["HF_TOKEN"])'),
        (f"login('{_TOKEN}')", 'import os\nlogin(os.environ["HF_TOKEN"])'),
        (f"if a:\n    login(token='{_TOKEN}')", 'import os\nif a:\n    login(token=os.environ["HF_TOKEN"])'),
        (f'a = f"x {_TOKEN} {{y}}"', "a = f\"x <HF_TOKEN> {y}\""),
        (f'a = "x {_TOKEN} y"', 'a = "x <HF_TOKEN> y"'),
        (f'%%time\na = "{_TOKEN}"', '%%time\nimport os\na = os.environ["HF_TOKEN"]'),
        (f'a = "b" "{_TOKEN}"', 'a = "b" "<HF_TOKEN>"'),
        (f'# token = "{_TOKEN}"', '# token = "<HF_TOKEN>"'),
        (f"!hf auth login --token {_TOKEN}", "!hf auth login --token $HF_TOKEN"),
        (f"!ls a longer command than its mask\nt = '{_TOKEN}'",
         '!ls a longer command than its mask\nimport os\nt = os.environ["HF_TOKEN"]'),
        (f"!git clone https://me:{_GITHUB}@github.com/a/b", "!git clone https://me:$GITHUB_TOKEN@github.com/a/b"),
        (f"!echo '{_TOKEN}' > a", "!echo '<HF_TOKEN>' > a"),
        (f"!echo {_TOKEN} {{name}}", "!echo <HF_TOKEN> {name}"),
        (f"%%bash\nhf auth login --token {_TOKEN}", "%%bash\nhf auth login --token $HF_TOKEN"),
        (f"%env HF_TOKEN={_TOKEN}", "%env HF_TOKEN=<HF_TOKEN>"),
        (f"%%writefile a.json\n{{\"token\": \"{_TOKEN}\"}}", '%%writefile a.json\n{"token": "<HF_TOKEN>"}'),
        (f"print 'old'\nt = '{_TOKEN}'", "print 'old'\nt = '<HF_TOKEN>'"),
    ],
)  # fmt: skip
def test_a_secret_becomes_an_environment_lookup(before, after):
    new, found = _rewrite(before)
    assert new == after
    assert [finding.rule for finding in found] == ["LF801"]
    assert compiles(new) == compiles(before)
    assert _rewrite(new)[0] == new


def test_os_is_not_imported_again_below_another_cell():
    cells = [CellSource(text, index=index) for index, text in enumerate(("import sys, os", f"a = '{_TOKEN}'"))]
    for imports, below in ((0, ""), (2, "import os\n")):
        facts = NotebookFacts(imports_os=imports)
        new, _ = rewrite(cells[1], cell_type="code", rules=credentials.RULES, facts=facts)
        assert new.text == f'{below}a = os.environ["HF_TOKEN"]'
    assert collect_facts(cells).imports_os == 0
    assert collect_facts([CellSource("import os.path\nimport os as o\n# import os")]).imports_os > 0


def test_the_variables_of_written_secrets_are_named():
    texts = [f"a = '{_TOKEN}'\n# '{_GITHUB}'", f"!x {_TOKEN}", f"b = 'x {_GITHUB}'"]
    assert list(credentials.written_secrets(map(CellSource, texts))) == ["HF_TOKEN", "HF_TOKEN"]


def test_several_secrets_import_os_once():
    new, found = _rewrite(f'a = "{_TOKEN}"\nb = "{_GITHUB}"')
    assert new == 'import os\na = os.environ["HF_TOKEN"]\nb = os.environ["GITHUB_TOKEN"]'
    assert len(found) == 2


def test_a_password_in_example_data_is_not_a_secret_of_the_notebook():
    said = (
        r'"USER: I would like it to be twelve characters long. \n\nRESPONSE: {\"password\": \"4&7jB#9L!2Z\"}'
        r'\n\nASSISTANT: Please make sure to save it in a secure place. \n"'
    )
    source = CellSource(f"chat = [{said}]")
    assert find_secrets(source.text)
    assert rewrite(source, cell_type="code", rules=credentials.RULES, facts=NotebookFacts()) == (source, [])
    assert [found.rule for found in _rewrite(r'x = "{\"password\": \"4&7jB#9L!2Z\"}"')[1]] == ["LF801"]


def test_secrets_in_text_and_other_languages_are_masked():
    assert _rewrite(f"My token is {_TOKEN}.", cell_type="markdown")[0] == "My token is <HF_TOKEN>."
    assert _rewrite(f'token <- "{_TOKEN}"', language="r")[0] == 'token <- "<HF_TOKEN>"'
