import pytest

from migration import shell
from migration.shell.installs import pip_call, pipelines, system_call, unquoted_bounds


def _pip(text):
    return pip_call(shell.commands(text)[0])


@pytest.mark.parametrize(
    "text, is_plain, uv",
    [
        ("pip install x", True, False),
        ("/usr/bin/pip3 install x", True, False),
        ("sudo -H python3 -m pip install x", True, False),
        ("python -W ignore -u -m pip install x", False, False),
        ("{sys.executable} -m pip install x", False, False),
        ("pip3.9 install x", False, False),
        ("env/bin/python -m pip install x", False, False),
        ("uv pip install x", False, True),
        ("python -m uv pip install x", False, True),
    ],
)
def test_each_way_to_call_pip(text, is_plain, uv):
    call = _pip(text)
    assert (call.is_plain, call.uv, call.subcommand) == (is_plain, uv, "install")
    assert [item.value for item in call.items if not item.option] == ["x"]
    assert "pip" in call.command.words[call.last].value


@pytest.mark.parametrize(
    "text", ["pipx install x", "python pip.py", "python -m x pip", "uv sync", "python -m uv sync", "pipenv", "sudo"]
)
def test_other_commands_are_not_pip(text):
    assert _pip(text) is None


def test_options_are_reported_from_requirements():
    call = _pip("pip -q install -qUr a.txt -e.[b] --index-url c -id --find-links=e --pre -- -f g")
    assert [(item.option, item.value) for item in call.items] == [
        ("--quiet", ""),
        ("--quiet", ""),
        ("--upgrade", ""),
        ("--requirement", "a.txt"),
        ("--editable", ".[b]"),
        ("--index-url", "c"),
        ("--index-url", "d"),
        ("--find-links", "e"),
        ("--pre", ""),
        ("", "-f"),
        ("", "g"),
    ]
    assert call.installs
    assert call.option("--pre", "--x")
    assert not call.option("--x")
    assert _pip("pip").subcommand == ""


@pytest.mark.parametrize(
    "text, specs",
    [
        ("pip install x>=1 y", ["x>=1"]),
        ("pip install x[a]<2,>=1.0 > log", ["x[a]<2,>=1.0"]),
        ("pip install x >=1", ["x >=1"]),
        ("pip install x>1&&ls", ["x>1"]),
        ("pip install x>log 2>&1", []),
        ("pip install x > 1", []),
        ("pip install 'x'>1", []),
        ("pip install x==1 < in", []),
    ],
)
def test_bounds_without_quotes(text, specs):
    assert [text[start:end] for start, end in unquoted_bounds(text, _pip(text))] == specs


@pytest.mark.parametrize(
    "text, packages, others, installs",
    [
        ("apt-get install -y x y=1.0", ("x", "y=1.0"), (), True),
        ("sudo DEBIAN_FRONTEND=a apt -o b=c install x", ("x",), (), True),
        ("apt-get install x > /dev/null 2 >&1", ("x",), (), True),
        ("apt-get update", (), (), False),
        ("dpkg -i a.deb", (), ("a.deb",), True),
        ("dpkg --configure -a", (), (), False),
        ("dpkg --force-all -i a.deb", (), ("a.deb",), True),
        ("dpkg --remove a", (), (), False),
        ("dpkg -r a", (), (), False),
        ("dpkg --add-architecture i386", (), (), False),
        ("apt remove -y a", (), (), False),
        ("add-apt-repository --remove ppa:a/b", (), (), False),
        ("ldconfig", (), (), False),
    ],
)
def test_changes_of_the_system(text, packages, others, installs):
    call = system_call(shell.commands(text)[0])
    assert (call.packages, call.others, call.installs) == (packages, others, installs)


@pytest.mark.parametrize(
    "text, source",
    [
        ("add-apt-repository -y ppa:a/b", "ppa:a/b"),
        ("tee /etc/apt/sources.list.d/a.list", "/etc/apt/sources.list.d/a.list"),
        ("echo a >> /etc/apt/sources.list", "/etc/apt/sources.list"),
    ],
)
def test_package_sources_are_no_packages(text, source):
    call = system_call(shell.commands(text)[0])
    assert (call.packages, call.others, call.sources, call.installs) == ((), (), (source,), True)


@pytest.mark.parametrize(
    "text",
    [
        "apt list",
        "apt -q search x",
        "dpkg -l",
        "ldconfig -p",
        "apt --help",
        "tee a",
        "bash -c 'ls'",
        "bash -c",
        "ls",
        "A=1",
    ],
)
def test_read_only_commands_are_not_changes(text):
    assert system_call(shell.commands(text)[0]) is None


def test_commands_joined_by_pipes_belong_together():
    groups = pipelines(shell.commands("a | b |& c && d; e | f"))
    assert [[command.program for command in group] for group in groups] == [["a", "b", "c"], ["d"], ["e", "f"]]
