import pytest

from migration.analysis.facts import collect_facts
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from tests.migration.rules.installs import rewritten, rules_of


@pytest.mark.parametrize(
    "before, after",
    [
        ("!apt-get install -y x", "# !apt-get install -y x"),
        ("!sudo apt update && sudo apt install x y", "# !sudo apt update && sudo apt install x y"),
        ("!(apt-get update && apt-get install x)", "# !(apt-get update && apt-get install x)"),
        ("!yes | apt-get install x | tail -1", "# !yes | apt-get install x | tail -1"),
        (
            "!wget -qO - https://example.org/k | sudo apt-key add -",
            "# !wget -qO - https://example.org/k | sudo apt-key add -",
        ),
        ("!echo 'deb u s' > /etc/apt/sources.list.d/x.list", "# !echo 'deb u s' > /etc/apt/sources.list.d/x.list"),
        ("!dpkg -i x.deb", "# !dpkg -i x.deb"),
        ("!ldconfig /usr/lib64-nvidia", "# !ldconfig /usr/lib64-nvidia"),
        ("x = 1\n!apt-get install \\\n    x \\\n  y\nz = 2", "x = 1\n# !apt-get install \\\n#     x \\\n#   y\nz = 2"),
        ("if a:\n    !apt install x\nb = 1", "if a:\n    pass  # !apt install x\nb = 1"),
        ("if a:\n    !apt install x\n    b = 1", "if a:\n    # !apt install x\n    b = 1"),
        (
            "try:\n    !apt update\n    !apt install \\\n      x\nexcept E:\n    !apt install y",
            "try:\n    pass  # !apt update\n    pass  # !apt install \\\n    #   x\n"
            "except E:\n    pass  # !apt install y",
        ),
        ("if a:\n  !apt install x\nprint 1", "if a:\n  pass  # !apt install x\nprint 1"),
        ("%%capture\n!apt install x\n!pip install y", "%%capture\n# !apt install x\n%pip install y"),
        ("!command -v x || (apt update && apt install x)", "# !command -v x || (apt update && apt install x)"),
        ("!apt-get -qq install x >/dev/null 2>&1 || true", "# !apt-get -qq install x >/dev/null 2>&1 || true"),
        ("%%bash\nA=1 apt-get install x\nls", "%%bash\n# A=1 apt-get install x\nls"),
        ("%%bash\necho y | apt install \\\n  x\n", "%%bash\n# echo y | apt install \\\n#   x\n"),
    ],
)
def test_lines_that_only_change_the_system_become_comments(before, after):
    new, found = rewritten(before)
    assert new == after
    assert "LF520" in rules_of(found)


def test_a_block_keeps_a_statement_where_other_rules_may_remove_the_rest():
    text = "from google.colab import drive\nwith a:\n    !apt update\n    drive.mount('/content/drive')"
    new, _ = rewritten(text, facts=collect_facts([CellSource(text)]))
    assert "with a:\n    pass  # !apt update\n" in new


@pytest.mark.parametrize(
    "before, after",
    [
        ("!apt install x && make", "!: apt install x && make"),
        ("!cd x && apt install y && make", "!cd x && : apt install y && make"),
        ("!apt install x || make", "!: apt install x || make"),
        ("!(cd x || apt install y)", "!(cd x || : apt install y)"),
        ("x = !apt install y", "x = !: apt install y"),
        ("if a:\n    !ls -q && apt install y  # z", "if a:\n    !ls -q && : apt install y  # z"),
        ("!apt update && make; apt install y", "!: apt update && make; : apt install y"),
        ("!make && apt install y && make", "!make && : apt install y && make"),
        ("x = !make && apt install y", "x = !make && : apt install y"),
        ("%%bash\ncd x && apt-get install y\nls", "%%bash\ncd x && : apt-get install y\nls"),
        ("%%bash\nfor a in b\ndo\napt install $a\ndone", "%%bash\nfor a in b\ndo\n: apt install $a\ndone"),
        ("%%sh\nif a; then apt install x; fi", "%%sh\nif a; then : apt install x; fi"),
        ("os.system('apt install x')", "os.system(': apt install x')"),
        ('os.system(f"cd {x} && sudo apt install {y}")', 'os.system(f"cd {x} && : sudo apt install {y}")'),
        ("subprocess.run('apt install x'.split())", "subprocess.run('true apt install x'.split())"),
        ("def a(b):\n    run(b)\na('apt install x')", "def a(b):\n    run(b)\na(': apt install x')"),
        ("a = 'apt install x'\nos.system(a)", "a = ': apt install x'\nos.system(a)"),
        (
            "a = [['sudo', 'apt', 'install', 'x']]\nfor b in a:\n    subprocess.run(b)",
            "a = [[\"true\", 'sudo', 'apt', 'install', 'x']]\nfor b in a:\n    subprocess.run(b)",
        ),
        ("subprocess.run(['sudo', 'apt', 'install', x])", "subprocess.run([\"true\", 'sudo', 'apt', 'install', x])"),
    ],
)
def test_system_changes_among_other_commands_are_disabled(before, after):
    new, found = rewritten(before)
    assert new == after
    assert set(rules_of(found)) == {"LF520"}


def test_packages_to_install_are_named():
    found = rewritten("!sudo apt-get -qq -o A=b install -y x libfoo2=1.2-3 ./z.deb > /dev/null")[1]
    assert found[0].keeps is Keeps.NEEDS_HUMAN
    assert found[0].message == "installs into the system: x, libfoo2=1.2-3, ./z.deb"
    assert "x, libfoo2=1.2-3" in found[0].action
    (finding,) = rewritten("!sudo ldconfig /usr/local/lib")[1]
    assert (finding.keeps, "ldconfig" in finding.message) == (Keeps.NEEDS_HUMAN, True)
    (finding,) = rewritten("!update-alternatives --install /usr/bin/python3 python3 /usr/bin/python3.10 2")[1]
    assert (finding.keeps, "a kernel of Python 3.10" in finding.action) == (Keeps.NEEDS_HUMAN, True)
    (finding,) = rewritten("!apt-get install x {'-qq' if quiet else ''}")[1]
    assert finding.message.endswith(": x")
    found = rewritten("!apt-get update")[1]
    assert [(finding.keeps, finding.action) for finding in found] == [(Keeps.EQUIVALENT, "")]


@pytest.mark.parametrize(
    "text",
    [
        "!apt list --installed",
        "!apt-cache policy x",
        "!dpkg -l | grep x",
        "!dpkg -x a.deb .",
        "!ldconfig -p",
        "!update-alternatives --display x",
        "!apt --version",
        "!echo apt-get install x",
        "apt = 1",
        "!conda info",
        "!/content/miniconda/bin/conda install -y x",
        "!npm install",
        "!npm run build",
        "!go version",
    ],
)
def test_read_only_commands_are_unchanged(text):
    assert rewritten(text) == (text, [])


@pytest.mark.parametrize(
    "before, after",
    [
        ("# Delete samples\n!rm -r /content/sample_data\na()", "# Delete samples\n# !rm -r /content/sample_data\na()"),
        ("!rm -rf 'sample_data/'", "# !rm -rf 'sample_data/'"),
        ("shutil.rmtree('./sample_data/')\na()", "# shutil.rmtree('./sample_data/')\na()"),
        ("shutil.rmtree('sample_data', True); a()", "a()"),
        ("!rm -r -f ./sample_data/*", "# !rm -r -f ./sample_data/*"),
        ("!rm -rf /content/drive", "# !rm -rf /content/drive"),
        ("with a:\n    !rm -r sample_data\nb()", "with a:\n    pass  # !rm -r sample_data\nb()"),
        ("with a:\n    !rm -r sample_data\n    b()", "with a:\n    # !rm -r sample_data\n    b()"),
        ("!rm -r sample_data\n# !mkdir sample_data", "# !rm -r sample_data\n# !mkdir sample_data"),
        ("!rm -r sample_data\n!mkdir a && ls sample_data", "# !rm -r sample_data\n!mkdir a && ls sample_data"),
        ("!rm -r sample_data\nos.mkdir('sample_data/a')", "# !rm -r sample_data\nos.mkdir('sample_data/a')"),
    ],
)
def test_colabs_samples_and_mount_point_are_not_deleted_here(before, after):
    new, (finding,) = rewritten(before, collect_facts([CellSource(before)]))
    assert new == after
    assert (finding.rule, finding.keeps) == ("LF524", Keeps.EQUIVALENT)


@pytest.mark.parametrize(
    "text",
    [
        "!rm -r /content/data/sample_data",
        "!rm sample_data.csv",
        "!rm -r sample_data data",
        "!rm -r sample_data_2",
        "!rm -rf /content/drive/MyDrive/a",
        "x = 1  # rm -r sample_data",
        "!rm -rf /content/sample_data\n!mkdir /content/sample_data",
        "!rm -rf sample_data\na()\n!mkdir -p 'sample_data'\nb()",
        "!rm -rf sample_data\nos.mkdir('./sample_data')",
        "!rm -rf sample_data\nos.makedirs('sample_data/', exist_ok=True)",
        "!rm -rf sample_data\npathlib.Path('sample_data').mkdir()",
        "!rm -rf sample_data\n!mkdir sample_data && cd sample_data && wget https://example.org/a",
    ],
)
def test_other_deletions_are_unchanged(text):
    assert rewritten(text, collect_facts([CellSource(text)])) == (text, [])


@pytest.mark.parametrize(
    "text, message",
    [
        ("!add-apt-repository ppa:a/b", "adds a package source to the system: `ppa:a/b`"),
        (
            "!add-apt-repository ppa:a/b && apt install x",
            "installs into the system: x; adds a package source to the system: `ppa:a/b`",
        ),
    ],
)
def test_a_package_source_is_added_and_not_installed(text, message):
    found = rewritten(text)[1]
    assert [item.message for item in found] == [message]
    assert "install `ppa:a/b`" not in found[0].action
    assert "package source" in found[0].action


@pytest.mark.parametrize(
    "text, action",
    [
        ("import condacolab\ncondacolab.install()", "conda environment"),
        ("import os, colab_transfer as ct\nct.mount_google_drive()", "`drive_dir`"),
        ("from colab_transfer import mount_google_drive\nmount_google_drive()", "`drive_dir`"),
        ("from kora import drive\ndrive.link_nbs()", "names kora"),
        ("import kora.install.rdkit", "names kora"),
    ],
)
def test_a_package_that_works_on_colab_only_is_reported_once(text, action):
    after, (finding,) = rewritten(text)
    assert after == text
    assert (finding.rule, finding.keeps) == ("LF523", Keeps.NEEDS_HUMAN)
    assert action in finding.action


@pytest.mark.parametrize(
    "text, action",
    [
        ("!conda env create -f a.yml -q", "create the environment"),
        ("!conda create -y -n a python=3.7", "create the environment"),
        ("!conda env update -f a.yml", "kernel's environment"),
        ("!conda install -y a", "kernel's environment"),
    ],
)
def test_a_new_conda_environment_is_not_that_of_the_kernel(text, action):
    after, (finding,) = rewritten(text)
    assert (after, finding.rule, finding.keeps) == (text, "LF523", Keeps.NEEDS_HUMAN)
    assert action in finding.action


@pytest.mark.parametrize("name", ["{name}", "$name", "${name}"])
def test_a_variable_is_not_the_name_of_a_package(name):
    _, found = rewritten(f"!apt-get install x {name} -qq > /dev/null 2 >&1")
    assert found[0].message == "installs into the system: x, what the variable `name` names"
    assert found[0].action.startswith("install x, what the variable `name` names with the system's")
