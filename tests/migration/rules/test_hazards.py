import pytest

from migration.analysis.facts import NotebookFacts, collect_facts
from migration.analysis.root_paths import root_paths
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.rules import hazards
from migration.rules.rewriting import rewrite

_HOME = "/ro" + "ot"


def _found(text):
    cell = CellSource(text)
    facts = NotebookFacts(root_paths=root_paths([cell], ()))
    source, found = rewrite(cell, cell_type="code", rules=hazards.RULES, facts=facts)
    assert source.text == text
    assert all(finding.action for finding in found)
    return [(finding.rule, finding.line) for finding in found]


@pytest.mark.parametrize(
    "text, rules",
    [
        ("!sudo ls", ["LF822"]),
        ("os.system('sudo ls')", ["LF822"]),
        ("!tar -C / -xf a.tar", ["LF822"]),
        (f"!mv kaggle.json {_HOME}/.kaggle/", ["LF831"]),
        ("!tar xf a.tar --directory=/usr/lib", ["LF822"]),
        ("!unzip a.zip -d /opt/a", ["LF822"]),
        ("!aria2c https://a.example/b -d / -o b", ["LF822"]),
        ("!bash miniconda.sh -b -p /usr/local", ["LF822"]),
        ("!conda install -p /usr/local a", ["LF822"]),
        ("!dpkg -i a.deb", ["LF822"]),
        ("!make -j4 install", ["LF822"]),
        ("!cp a.so /usr/lib/", ["LF822"]),
        ("!echo 'export A=1' >> ~/.bashrc", ["LF822"]),
        ("!sed -i 's/a/b/' /etc/hosts", ["LF822"]),
        ("!echo a | tee /etc/apt/sources.list.d/b.list", ["LF822"]),
        ("%%bash\nls\nrm -rf /var/cache/a", ["LF822"]),
        ("!wget -qO- https://a.example/i.sh | sudo bash -s", ["LF822"]),
        ("!curl -s https://a.example/b/script.deb.sh | bash", ["LF822"]),
        ("!curl https://colab.a.example/install | sh -", ["LF822"]),
        ("!curl -sS https://a.example/get-pip.py | python3.10", ["LF822"]),
        ("!curl -sS https://a.example/install | python3 - --version 1.1", ["LF822"]),
        ("!curl -sS https://a.example/a | python3 -m json.tool", []),
        ("!curl -sS https://a.example/a | python3 -c 'a'\n!curl -sS https://a.example/a | python3 a.py", []),
        ("!curl https://a.example/setup/colab | bash", ["LF822"]),
        ("!wget -q https://a.example/setup_colab.sh -O- | bash", ["LF822"]),
        ("!curl https://colab.a.example/install | A='==1 2' B=\"==2\" C=3 sh -", ["LF822"]),
        ("!curl https://colab.a.example/install | env A=1 bash -s x", ["LF822"]),
        ("subprocess.run(['bash', '-c', 'curl https://colab.a.example/i | bash -'])", ["LF822"]),
        ("!conda init bash", ["LF822"]),
        ("!conda config --set auto_activate_base false", ["LF822"]),
        ("!git config --global credential.helper store", ["LF822"]),
        ("subprocess.run('git config --global user.name a', shell=True)", ["LF822"]),
        ("!npm install -g a", ["LF822"]),
        ("!go install a@latest", ["LF822"]),
        ("!ln -s $DRIVE_DIR /mydrive", ["LF822"]),
        ("!git clone https://a.example/b.git /b", ["LF822"]),
        ("!git lfs clone -q -b main https://a.example/b /opt/b", ["LF822"]),
        ("!bash Miniconda3.sh -bfp /usr/local", ["LF822"]),
        ("!rm -rf *", ["LF823"]),
        ("!rm -r $WORK_DIR", ["LF823"]),
        ("!cd sub && ls || rm -rf ~/", ["LF822", "LF823"]),
        ("!cd /content && rm -rf *", ["LF823"]),
        ("%rm -rf *", ["LF823"]),
        ('!rm -rf "$DRIVE_DIR"', ["LF823"]),
        ("%%bash\nrm -rf /content/drive/MyDrive/*", ["LF823"]),
        ("shutil.rmtree(DRIVE_DIR)", ["LF823"]),
        ("p = '/content/drive'\nos.system('ls')\nshutil.rmtree(p, ignore_errors=True)", ["LF823"]),
        ('%cd "/content"\n!rm *.zip', ["LF823"]),
        ('if a:\n  %cd "$WORK_DIR"\nelse:\n  %cd "$WORK_DIR"/b\n!rm *.zip', ["LF823"]),
        ("%cd $WORK_DIR\n!zip -r a.zip b && rm -f *.zip", ["LF823"]),
        ("!rm -rf sample .", []),
        ("shutil.rmtree(WORK_DIR)", ["LF823"]),
        (f"p = '{_HOME}/.kaggle'", ["LF831"]),
        ("!/usr/local/cuda/bin/nvcc --version", ["LF831"]),
        ("os.environ['PATH'] += ':/usr/local/cuda/bin'", ["LF831"]),
        ("os.environ['JAVA_HOME'] = '/usr/lib/jvm/java-8-openjdk-amd64'", ["LF831"]),
        ("dest = '../../content/drive/MyDrive/x'", ["LF831"]),
        ("os.environ['LD_PRELOAD'] = '/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4'", ["LF831"]),
        ("sys.path.append('/usr/local/lib/python3.7/site-packages')", ["LF831"]),
        ("sys.path.append(f'/usr/local/lib/python{version}/site-packages')", ["LF831"]),
        ("home = 'source /usr/local/amber.sh'", ["LF831"]),
        ("open('/usr/lib/python3.6/multiprocessing/a.py', 'wt')", ["LF831"]),
        ("!/usr/local/envs/a/bin/python b.py", ["LF831"]),
        ("!cd a && /usr/local/envs/a/bin/python b.py", ["LF831"]),
        ("folder = f'/models/{name}_epochs'\nos.makedirs(folder)", ["LF831"]),
        ("model.save('/x/a.h5')  # '/y'", ["LF831"]),
        ("args = {'output_dir': '/outputs/'}", ["LF831"]),
        ("%cd /\nopen('a', 'w')", ["LF831"]),
        ("os.chdir('/')", ["LF831"]),
        ("path = '../' * dir_count + 'requirements.txt'", ["LF831"]),
    ],
)
def test_access_outside_the_folders_is_reported(text, rules):
    assert sorted(rule for rule, _ in _found(text)) == sorted(rules)


@pytest.mark.parametrize(
    "text, keeps",
    [
        ("!curl -fsSL https://a.example/install.sh | sh", Keeps.EQUIVALENT),
        ("!wget -qO- https://a.example/i | A=1 bash -s x", Keeps.EQUIVALENT),
        ("subprocess.run(['bash', '-c', 'curl https://a.example/i | bash -'])", Keeps.EQUIVALENT),
        ("!curl -s https://a.example/b/script.deb.sh | bash", Keeps.NEEDS_HUMAN),
    ],
)
def test_a_script_from_the_web_is_a_decision_only_where_it_changes_the_machine(text, keeps):
    _, (found,) = rewrite(CellSource(text), cell_type="code", rules=hazards.RULES, facts=NotebookFacts())
    assert (found.rule, found.keeps) == ("LF822", keeps)


@pytest.mark.parametrize(
    "text",
    [
        "!tar -C out -xf a.tar > /dev/null 2>&1",
        "!cp /usr/share/a b",
        "!conda config --show",
        "!conda config --env --set a b",
        "!git config user.name a",
        "!git config --global --list",
        f"!scp host:{_HOME}/a .",
        "!unzip -q /tmp/a.zip -d /tmp/b",
        "!git clone -b main https://a.example/b.git",
        "!git clone https://a.example/b.git /content/b",
        "!git clone /srv/b.git",
        "!aria2c https://a.example/b -d / -o {b}",
        "!curl -o a https://a.example/b | cat",
        "!curl https://a.example/b.json | python parse.py",
        "!rm -rf build *.zip",
        "!rm *",
        "%cd $WORK_DIR\n%cd sub\n!rm *.zip",
        "%cd $WORK_DIR\n!rm sub/*.zip",
        "!cd sub && rm -rf *",
        "cuda = !ldconfig -p|grep cudart.so",
        "!dpkg -l a",
        "shutil.rmtree('build')",
        "p = f'{DRIVE_DIR}/a'\nshutil.rmtree(p)\n!rm -rf $DRIVE_DIR/a\n%rm -r a",
        "!pip install a",
        "!mkdir -p a/b",
        "!npm install a",
        "# !sudo ls",
        "x = 'usr/local/cuda'",
        "%cd /\n%cd a",
        "x = base + '/models/x'; open(x)",
        "x = 'models/x', './outputs/y'",
        "@app.get('/models/{name}')\ndef f(): pass",
        f"url = 'https://a.example{_HOME}/b'",
        "print('sudo')",
        "!echo 'unclosed",
        "",
    ],
)
def test_access_inside_the_folders_is_not_reported(text):
    assert _found(text) == []


def test_a_deleted_folder_that_no_other_line_names_may_be_the_users_own():
    cells = [CellSource("!rm -rf src data/x sample_data a.md", index=0), CellSource("open('data/x')", index=1)]
    facts = collect_facts(cells)
    assert facts.deletes_unknown == {"src", "a.md"}
    _, found = rewrite(cells[0], cell_type="code", rules=hazards.RULES, facts=facts)
    assert [finding.message for finding in found] == ["`rm -r src a.md` deletes what no cell creates"]


@pytest.mark.parametrize(
    "text, unknown",
    [
        ("!rm -rf src && git clone https://x.org/src", set()),
        ("!mkdir src && rm -rf src", set()),
        ("%%bash\nrm -rf src; mkdir src", set()),
        ("# the old src\n!rm -rf src\n!rm -r src/a", {"src", "src/a"}),
        ("os.system('rm -rf src')", {"src"}),
    ],
)
def test_code_on_the_line_of_a_deletion_may_create_the_folder(text, unknown):
    assert collect_facts([CellSource(text)]).deletes_unknown == unknown


def test_a_colab_path_ends_at_a_command_separator():
    text = "!sed -i 's|/usr/local/cuda/lib64|lib|' Makefile"
    _, (finding,) = rewrite(CellSource(text), cell_type="code", rules=hazards.RULES, facts=NotebookFacts())
    assert finding.message == "`/usr/local/cuda/lib64` is a path of the machine that the notebook ran on"


def test_the_line_of_the_command_is_named():
    assert _found("a = 1\nif a:\n    !ls && sudo make install\n") == [("LF822", 3)]


def test_the_action_for_a_path_of_colab_names_the_drive():
    text = CellSource("!yolo data=../content/drive/MyDrive/a.yaml")
    (finding,) = rewrite(text, cell_type="code", rules=hazards.RULES, facts=NotebookFacts())[1]
    assert "Drive" in finding.action
    assert "home folder" not in finding.action


def test_a_search_path_with_a_folder_of_cuda_breaks_nothing():
    for text in (
        "!export CPATH=/usr/local/cuda/include:$CPATH",
        "os.environ['LD_LIBRARY_PATH'] += ':/usr/local/cuda/lib64'",
    ):
        _, found = rewrite(CellSource(text), cell_type="code", rules=hazards.RULES, facts=NotebookFacts())
        assert [finding.keeps for finding in found if finding.rule == "LF831"] == [Keeps.EQUIVALENT]
    _, found = rewrite(
        CellSource("!ls /usr/local/cuda/bin"), cell_type="code", rules=hazards.RULES, facts=NotebookFacts()
    )
    assert [finding.keeps for finding in found] == [Keeps.NEEDS_HUMAN]
