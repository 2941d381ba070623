import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from IPython.core.interactiveshell import InteractiveShell

from migration.notebook.findings import Keeps
from tests.migration.rules.installs import rewritten, rules_of


@pytest.mark.parametrize(
    "before, after",
    [
        ("!pip install x", "%pip install x"),
        ("! pip3 -q install x==1.0 y", "%pip -q install x==1.0 y"),
        ("!python -m pip install x", "%pip install x"),
        ("!/usr/bin/python3 -m pip install x", "%pip install x"),
        ("!/usr/local/bin/pip install x", "%pip install x"),
        ("!!pip install x", "%pip install x"),
        ("!sudo -H pip install x", "%pip install x"),
        ("!pip install --user .", "%pip install ."),
        ("!pip3 install -q x y --user", "%pip install -q x y"),
        ("!pip list", "%pip list"),
        ("!pip", "%pip"),
        ("!pip uninstall -y x  # it's old", "%pip uninstall -y x  # it's old"),
        ("!pip install x > /dev/null 2>&1", "%pip install x > /dev/null 2>&1"),
        ("!pip install \\\n    'x[a,b]' \\\n    {y}\nz = 1", "%pip install \\\n    'x[a,b]' \\\n    {y}\nz = 1"),
        ("!sudo \\\n  pip install x", "%pip install x"),
        ("if True:\n    !pip install x\n", "if True:\n    %pip install x\n"),
        ("%%capture\n!pip install x", "%%capture\n%pip install x"),
        ("print(1)\n!pip install é", "print(1)\n%pip install é"),
    ],
)
def test_a_line_of_pip_alone_becomes_the_magic(before, after):
    new, found = rewritten(before)
    assert new == after
    assert rules_of(found) == ["LF501"]


@pytest.mark.parametrize(
    "text",
    [
        "%pip install x",
        "!{sys.executable} -m pip install x",
        "!echo pip install x",
        "# !pip install x",
        "x = '!pip install x'",
        "%%writefile setup.sh\npip install x\n",
        "%%bash\ncat <<EOF > notes\npip install x\nEOF\n",
        "!ls pip",
        # The set-up cell puts the programs of the kernel's Python first.
        "!cd x && pip install .",
        "x = !pip freeze",
        "%%bash\npip install x\n",
        'os.system("pip install x")',
        "subprocess.run(['pip', 'install', x])",
        "!",
        "",
        "%%bash",
        "%%html\npip install x",
    ],
)
def test_other_pip_and_similar_commands_are_unchanged(text):
    new, found = rewritten(text)
    assert new == text
    assert not any(finding.keeps is Keeps.NEEDS_HUMAN for finding in found)


def test_cells_of_other_languages_are_unchanged():
    assert rewritten("!pip install x", language="R") == ("!pip install x", [])


@pytest.mark.parametrize(
    "before, after",
    [
        ("!uv pip install x", '!uv pip install --python "$(which python)" x'),
        ("!uv pip install --system -q x", '!uv pip install --python "$(which python)" -q x'),
        ("!uv pip install x --system", '!uv pip install --python "$(which python)" x'),
        ("!uv pip install --system \\\n  x", '!uv pip install --python "$(which python)" \\\n  x'),
        ("%%bash\nuv pip uninstall x", '%%bash\nuv pip uninstall --python "$(which python)" x'),
        ("!python -m uv pip install x", '!python -m uv pip install --python "$(which python)" x'),
        ("%uv pip install --system x", "%uv pip install x"),
        ('os.system("uv pip install x")', r'os.system("uv pip install --python \"$(which python)\" x")'),
        ("!uv pip install --python 3.11 x", "!uv pip install --python 3.11 x"),
        ("!uv pip install --python /usr/bin/python3 x", '!uv pip install --python "$(which python)" x'),
        ("!uv pip install --python=/usr/bin/python x", '!uv pip install --python "$(which python)" x'),
        ("%uv pip install --python /usr/local/bin/python3.12 x", "%uv pip install x"),
        ("!uv pip install -p /usr/bin/python3 x", '!uv pip install --python "$(which python)" x'),
        ("!uv pip install --target y x", "!uv pip install --target y x"),
        ("!uv sync", "!uv sync"),
    ],
)
def test_uv_gets_the_interpreter_of_the_kernel(before, after):
    assert rewritten(before)[0] == after


@pytest.mark.parametrize(
    "before, after",
    [
        ("!pip install x google-colab y", "%pip install x y"),
        ("!pip install -U Google_Colab==1.0 x", "%pip install -U x"),
        ("!pip install google-colab -r a.txt", "%pip install -r a.txt"),
        ("!pip install x \\\n    google-colab", "%pip install x"),
        ("!pip install \\\n    google-colab \\\n    x", "%pip install \\\n    x"),
        ("%%bash\npip install google.colab x", "%%bash\npip install x"),
        ("!pip install -q google-colab\nx()", "# !pip install -q google-colab\nx()"),
        ("%pip install 'google-colab' \\\n  -q", "# %pip install 'google-colab' \\\n#   -q"),
        ("pip install google-colab", "# pip install google-colab"),
        ("if a:\n    !pip install google-colab", "if a:\n    pass  # !pip install google-colab"),
        (
            "if a:\n    !apt install x\n    !pip install google-colab",
            "if a:\n    # !apt install x\n    pass  # !pip install google-colab",
        ),
        ("!cd a && pip install google-colab && make", "!cd a && : pip install google-colab && make"),
        ("x = !pip install google-colab", "x = !: pip install google-colab"),
        ("run('pip install google-colab'.split())", "run('true pip install google-colab'.split())"),
        ('os.system("pip install google-colab")', 'os.system(": pip install google-colab")'),
        ("!uv pip install google-colab", "# !uv pip install google-colab"),
    ],
)
def test_colabs_own_package_is_not_installed(before, after):
    new, found = rewritten(before)
    assert new == after
    assert [finding.keeps for finding in found if finding.rule == "LF505"] == [Keeps.EQUIVALENT]


@pytest.mark.parametrize(
    "text", ["%pip install google-colab-transfer x", "%pip show google-colab", "x = %pip install google-colab"]
)
def test_other_packages_with_its_name_are_unchanged(text):
    assert rewritten(text) == (text, [])


@pytest.fixture
def shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shell = InteractiveShell()
    yield shell
    shell.reset(new_session=False)


@pytest.mark.nightly
def test_rewritten_lines_run_in_ipython(shell, tmp_path, monkeypatch):
    """The pip of the kernel runs, with values, redirections, pipes and several lines; system commands do nothing."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}" + os.environ["PATH"])
    cell = (
        "name = 'pip'\n"
        "!pip show {name} > a.txt 2>&1  # it's pip\n"
        "!pip show \\\n    {name} > b.txt\n"
        "!cd . && pip show {name} > c.txt\n"
        "found = !pip show {name} | grep Name\n"
        "if name:\n    !apt-get install x\n"
        "said = !apt-get install x && echo done\n"
        "import os\n"
        'status = os.system("pip show pip > d.txt")\n'
    )
    result = shell.run_cell(rewritten(cell)[0])
    assert result.success
    assert shell.user_ns["found"] == ["Name: pip"]
    assert shell.user_ns["said"] == ["done"]
    assert shell.user_ns["status"] == 0
    for name in ("a.txt", "b.txt", "c.txt", "d.txt"):
        assert "Name: pip\n" in (tmp_path / name).read_text(encoding="utf-8")


_PIECES = [
    *(
        "!",
        "!!",
        "%",
        "x = !",
        "%%bash\n",
        "\n",
        " ",
        " \\\n ",
        "if a:\n  ",
        '"',
        "'",
        "{x}",
        "$",
        ";",
        " && ",
        " | ",
        "(",
        ")",
    ),
    *(
        "pip install ",
        "pip3 ",
        "python -m pip ",
        "sudo ",
        "uv pip install ",
        "-U ",
        "--system ",
        "x>=1",
        "x==1 ",
        "git+https://a/b ",
        "google-colab ",
    ),
    *(
        "apt-get install ",
        "dpkg -i ",
        "conda install ",
        'os.system("',
        'run(["pip", ',
        '"])',
        "# ",
        "é",
        "> f ",
        "<<E\n",
    ),
]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(_PIECES), max_size=12).map("".join))
def test_rewriting_any_cell_is_idempotent(text):
    rewritten(text)
