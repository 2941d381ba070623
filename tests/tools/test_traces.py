"""The comparison of traces: permitted and forbidden differences between two machines, and executed notebooks."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from migration.migrate import migrate
from migration.notebook.findings import Finding, Keeps
from tests.migration.semantics.outcome import notebook_of
from tests.support import REPO_ROOT
from tools.traces.__main__ import _compared, _sandbox, _secrets
from tools.traces.compare import compare
from tools.traces.dependents import dependents
from tools.traces.stubs import MAX_TEXT


def _both(original, migrated, human=()):
    found = compare([(0, *effect) for effect in original], [(0, *effect) for effect in migrated], set(human))
    return found.lost, found.added


@pytest.mark.parametrize(
    "original, migrated",
    [
        (("process", "ls /content/a"), ("process", 'ls "$WORK_DIR"/a')),
        (("process", "cat /content/drive/MyDrive/a"), ("process", "cat /started/drive/a")),
        (("process", "ls /content/drive/MyDrive/a"), ("process", 'ls "$DRIVE_DIR"/MyDrive/a')),
        (("process", 'ls "/content/drive/My Drive/a"'), ("process", 'ls "$DRIVE_DIR/a"')),
        (("process", "pip3 install x"), ("process", "pip install x")),
        (("process", "pip3 install --user -q ."), ("process", "pip install -q .")),
        (("process", "uv pip install --system x"), ("process", 'uv pip install --python "$(which python)" x')),
        (("process", "serve --port 80 &"), ("process", '(trap "" HUP; serve --port 80 > /dev/null 2>&1 &)')),
        (("write", "/content/a.txt"), ("write", "/started/a.txt")),
        (("write", "/gdrive/My Drive/a.txt"), ("write", "/started/drive/a.txt")),
        (("process", "ls '/content/Drive/My Drive/a'"), ("process", 'ls "$DRIVE_DIR/a"')),
        (("call", "load('//content/a')"), ("call", "load('//started/a')")),
        (("call", "f({'PATH': '/a', 'COLAB_GPU': '1', 'X': '2'})"), ("call", "f({'PATH': '/b:/a', 'X': '2'})")),
        (("print", "Mounted at /content/drive"), ("print", "The drive is the folder /started/drive")),
        (("print", "<f at 0x7f01aa22bb33>"), ("print", "<f at 0x7f44aa55bb66>")),
        (("print", "a b: <X object at 7fe689eeb890>"), ("print", "a b: <X object at 7f7f68314450>")),
        (
            ("print", "done CPU times: user 67 us, sys: 0 ns, total: 67 us\nWall time: 70 us"),
            ("print", "done CPU times: user 1.2 s, sys: 3 ms, total: 1.2 s\nWall time: 1.3 s"),
        ),
        (("process", "cp /content/drive/'My Drive'/a b"), ("process", 'cp "$DRIVE_DIR"/a b')),
        (("process", "apt-get update && ls"), ("process", "ls")),
        (("process", "rm -rf sample_data; ls"), ("process", "ls")),
        (("folder", "/gdrive"), ("folder", "/started/drive")),
        (("environment", "PYTHONPATH=/env/python:/a"), ("environment", "PYTHONPATH=:/a")),
        (("process", "PYTHONPATH=/env/python:/a python b.py"), ("process", "PYTHONPATH=:/a python b.py")),
        (
            ("call", ("a" * (MAX_TEXT - 900) + " /content/drive/MyDrive/" * 50)[:MAX_TEXT]),
            ("call", ("a" * (MAX_TEXT - 900) + " /started/drive/" * 50 + "b" * 100)[:MAX_TEXT]),
        ),
    ],
)
def test_differences_between_machines_are_ignored(original, migrated):
    assert _both([original], [migrated]) == ({}, {})


def test_lost_and_added_effects_are_named_by_kind():
    lost, added = _both([("process", "git clone https://h/a"), ("secret", "T")], [("secret", "T"), ("print", "b")])
    assert (lost, added) == ({"fetch": ["git clone https://h/a"]}, {"print": ["b"]})


def test_reported_manual_steps_are_not_silent_differences():
    assert _both([("process", "apt-get install -y x")], [], human=[0]) == ({}, {})


def test_an_effect_is_looked_for_in_its_own_cell_first():
    original = [(0, "error", "NameError"), (1, "error", "NameError")]
    found = compare(original, [(0, "error", "NameError"), (1, "error", "KeyError")], {1})
    assert (found.lost, found.added) == ({}, {})


def test_an_effect_that_moves_to_another_cell_is_no_difference():
    found = compare([(0, "secret", "T")], [(2, "secret", "T")], set())
    assert (found.lost, found.added) == ({}, {})


def test_effects_of_dependent_cells_are_counted_apart():
    found = compare([(1, "print", "a"), (2, "print", "b")], [], {1}, (), {2})
    assert (found.flagged, found.derived, found.kinds) == ({"print": ["a"]}, {"print": ["b"]}, set())


def test_effects_of_the_original_outside_colab_are_counted_apart():
    original = [(0, "print", "on Colab"), (0, "secret", "T"), (1, "print", "a")]
    outside = [(0, "print", "not on Colab"), (0, "process", "ls"), (1, "error", "NameError")]
    found = compare(original, [(0, "print", "not on Colab"), (0, "process", "ls")], set(), outside)
    assert found.own == {"print": ["on Colab", "not on Colab"], "process": ["ls"]}
    assert found.lost == {"secret": ["T"], "print": ["a"]}  # a secret never, and nothing where the original fails


def test_an_error_in_the_same_line_on_colab_explains_no_difference():
    error = (0, "error", "IndexError in line 3")
    found = compare([(0, "print", "on Colab"), error], [error], set(), [error])
    assert (found.own, found.kinds) == ({"print": ["on Colab"]}, set())
    found = compare([(0, "print", "on Colab"), error], [error], set(), [(0, "error", "IndexError in line 1")])
    assert found.lost == {"print": ["on Colab"]}


def test_a_lost_upload_is_never_the_authors_own_difference():
    assert compare([(0, "upload", "files")], [], set(), [(0, "print", "a")]).lost == {"upload": ["files"]}


@pytest.mark.parametrize(
    "other", [("folder", "/content/a"), ("process", "wget -P sample_data a"), ("read", "/content/sample_data/a.csv")]
)
def test_a_lost_deletion_of_a_folder_that_may_be_the_authors_is_counted(other):
    lost, added = _both([other, ("process", "rm -rf sample_data")], [])
    assert (lost["process"][-1], added) == ("rm -rf sample_data", {})


def test_a_lost_deletion_of_colabs_samples_is_no_difference():
    deleted = [("write", f"{event} /content/sample_data") for event in ("shutil.rmtree", "os.rmdir")]
    assert _both(deleted, []) == ({}, {})
    assert _both([("write", "shutil.rmtree /content/plant")], [])[0] == {"write": ["shutil.rmtree ‹work›/plant"]}


@pytest.mark.parametrize(
    "original, migrated",
    [
        (("process", "source /env/python/bin/activate"), ("process", "source /bin/activate")),
        (("call", "a" * 3_000 + "b"), ("call", "a" * 3_000 + "c")),
        (("error", "IndexError in line 3"), ("error", "KeyError in line 3")),
    ],
)
def test_other_differences_are_counted(original, migrated):
    lost, added = _both([original], [migrated])
    assert lost
    assert added


def test_a_call_that_fetches_or_stores_is_never_the_authors_own_difference():
    original = [(0, "call", "maps.folium.Map()"), (0, "call", "gdown.download('a')")]
    found = compare(original, [(0, "call", "maps.Map()")], set(), [(0, "call", "maps.Map()")])
    assert found.own == {"call": ["maps.folium.Map()", "maps.Map()"]}
    assert found.lost == {"call": ["gdown.download('a')"]}


def test_cells_that_compute_with_a_flagged_statement_depend_on_it():
    cells = [
        "import os\nkey = os.environ['K']\nsafe = 1",
        "client = Client(key)",
        "def ask():\n    return client.ask()",
        "print(os.getcwd(), safe)",
        "client = None\nprint(client)",
        "ask()",
    ]
    human = Finding("LF801", Keeps.NEEDS_HUMAN, 0, 2, "a secret")
    assert dependents(cells, [human]) == {1, 2, 5}


def test_cells_that_need_what_follows_an_ended_statement_depend_on_it():
    cells = ["import os\nprint(os.environ['K'])\nimport numpy as np", "np.zeros(3)", "os.getcwd()"]
    human = Finding("LF308", Keeps.NEEDS_HUMAN, 0, 2, "a variable of Colab")
    assert dependents(cells, [human], ended={0}) == {1}


OUTSIDE = """\
import sys
from tools.traces import runner
runner._reset = lambda *_: sys.exit("emptied folders of this machine")
runner.HOME = runner.Path(sys.argv.pop())
sys.exit(runner.main())
"""


def test_the_runner_refuses_to_run_outside_its_sandbox(tmp_path):
    home = tmp_path / "home"
    command = [sys.executable, "-c", OUTSIDE, "local", "runtime", str(home)]
    ended = subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "sandbox" in ended.stderr
    assert not home.exists()


@pytest.fixture(scope="module")
def sandboxes(tmp_path_factory):
    enter = ["unshare", "--user", "--map-root-user", "--mount", "--net", "true"]
    if sys.platform != "linux" or not shutil.which("unshare") or subprocess.run(enter, check=False).returncode:
        pytest.skip("a sandbox needs Linux with unprivileged user namespaces")
    folder = tmp_path_factory.mktemp("traces")
    with _sandbox(folder / "colab", "colab") as colab, _sandbox(folder / "local", "local") as local:
        yield colab, local


CELLS = (
    "import sys, numpy as np\nfrom google.colab import drive, userdata\ndrive.mount('/content/drive')",
    "if 'google.colab' in sys.modules:\n    !git clone https://example.org/a/b\n    %cd b\nelse:\n    %cd ..",
    "open('/content/drive/MyDrive/a.txt', 'w').write(str(np.zeros(3)))\ntoken = userdata.get('TOKEN')",
    "!pip install -q x && ls /content\nprint(1)",
    "import importlib.util\nif importlib.util.find_spec('google.colab'):\n    !git clone https://example.org/a/c",
)


def test_a_notebook_and_its_migrated_form_leave_equal_traces(sandboxes):
    notebook = notebook_of(CELLS)
    difference = _compared(notebook, migrate(notebook), *sandboxes)
    assert difference is not None
    assert (difference.lost, difference.added) == ({}, {})


def test_secrets_are_variables_that_only_the_migrated_notebook_reads():
    before = ["os.environ['A'] = 'x'\nos.environ['D'] = ':1'", "f(os.environ['A'], os.environ['B'])"]
    after = ["os.environ['A'] = os.environ['A']\nos.environ['D'] = ':1'", before[1]]
    assert _secrets(before, after) == {"A": "secret-A"}


@pytest.mark.parametrize(
    "cell",
    [
        "get_ipython().system_raw('serve &')",
        "from google.colab import files\nfiles.view('not_fetched.py')",
        "import os, psutil\npsutil.Process(os.getpid())",
        "import uuid\nprint(uuid.uuid1())",
        "import sys\nprint(sys.argv)",
        "import os\nvariables = dict(os.environ)",
        "get_ipython().kernel.do_shutdown(True)",
        "import IPython\nIPython.Application.instance().kernel.do_shutdown(restart=True)",
        "#@title A\r\n\r\n%%capture --no-stdout\r\n!pip install x",
        "import os, sys\nos.environ['PYTHONPATH'] += ':/a'\nsys.path.append('/content/a')",
        "with open('/content/sample_data/a.txt', 'w') as file:\n    file.write('a')",
    ],
)
def test_what_both_machines_do_alike_does_not_differ(sandboxes, cell):
    notebook = notebook_of((cell,))
    difference = _compared(notebook, migrate(notebook), *sandboxes)
    assert difference is not None
    assert (difference.lost, difference.added, difference.own) == ({}, {}, {})


def test_a_log_in_of_google_does_not_differ(sandboxes):
    notebook = notebook_of(("from google.colab import auth\nimport google", "google.auth.default()"))
    difference = _compared(notebook, migrate(notebook), *sandboxes)
    assert difference is not None
    assert (difference.lost, difference.added) == ({}, {})


def _of_cells(effects):
    return [effect for effect in effects if effect[0] >= 0]


def test_a_notebook_that_deletes_its_folder_leaves_the_sandbox_usable(sandboxes):
    colab, local = sandboxes
    for sandbox, folder in ((colab, "/content"), (local, "/started")):
        assert _of_cells(sandbox.run([f"import shutil\nshutil.rmtree('{folder}')"]))
        assert _of_cells(sandbox.run(["open('a.txt', 'w').close()"])) == [(0, "write", f"{folder}/a.txt")]


@pytest.mark.nightly
def test_a_notebook_whose_processes_wait_for_ever_is_ended(sandboxes):
    colab, _ = sandboxes
    assert colab.run(["import os, signal\nsignal.alarm(0)\nos.read(os.pipe()[0], 1)"]) is None
    assert colab.run(["import os\nif not os.fork():\n    os.read(os.pipe()[0], 1)"]) is not None
    assert _of_cells(colab.run(["print(1)"])) == [(0, "print", "1")]


def test_clocks_chance_names_and_extensions_do_not_differ_between_runs(sandboxes):
    cells = [
        "import datetime, gc, tempfile, time",
        "print(datetime.datetime.now(), datetime.date.today(), time.strftime('%H'), time.time())",
        "import os, random, uuid\nrandom.seed()\nprint(random.random(), os.urandom(4), uuid.uuid4())",
        "%load_ext watermark\n%watermark -v\nprint(gc.collect(), tempfile.mkdtemp())",
        "import google.generativeai as genai\nprint(genai.__version__)\nexit(0)",
    ]
    runs = [_of_cells(sandbox.run(cells)) for sandbox in (*sandboxes, *sandboxes)]
    assert all(run == runs[0] for run in runs)
    assert not [effect for effect in runs[0] if effect[1] == "error"]


def test_threads_leave_the_same_effects_in_each_run(sandboxes):
    cells = [
        "import requests, threading, time",
        "def stay():\n    while True:\n        requests.get('a')\n        time.sleep(60)",
        "threading.Thread(target=stay, daemon=True).start()",
        "threading.Thread(target=lambda: requests.get('b')).start()\na = requests.get('c')",
    ]
    runs = [_of_cells(sandbox.run(cells)) for sandbox in sandboxes]
    assert runs[0] == runs[1]
    assert [effect for effect in runs[0] if effect[0] == 2] == [(2, "call", "requests.get('a')")] * 4
    assert runs[0][-2:] == [(3, "call", "requests.get('b')"), (3, "call", "requests.get('c')")]


def test_a_comparison_of_a_stub_is_a_false_array(sandboxes):
    cell = "import pandas as pd\nbad = pd.read_csv('a') == 2\nprint(bad.astype(int).name, bool(bad), bad != 1)"
    effects = _of_cells(sandboxes[0].run([cell]))
    assert not [effect for effect in effects if effect[1] == "error"]
    assert [text.split()[1] for _, kind, text in effects if kind == "print"] == ["False"]


def test_a_drive_is_mounted_where_the_notebook_wants_it(sandboxes):
    cells = (
        "from google.colab import drive\ndrive.mount('/gdrive')",
        "open('/gdrive/My Drive/a.txt', 'w').close()\nprint(open('/gdrive/MyDrive/a.txt').read() == '')",
    )
    notebook = notebook_of(cells)
    difference = _compared(notebook, migrate(notebook), *sandboxes)
    assert difference is not None
    assert (difference.lost, difference.added) == ({}, {})


@pytest.mark.parametrize(
    "before, after",
    [
        ("/content/cdrive/My Drive/a", "/started/drive/a"),
        ("cdrive/MyDrive/a", "/started/drive/a"),
        ("/content/cdrive", "/started/drive"),
        ("/content/Drive/a", "/started/Drive/a"),
    ],
)
def test_the_mount_point_of_the_notebook_is_the_drive(before, after):
    original = [(0, "mount", "/content/cdrive"), (1, "call", f"f('{before}')")]
    found = compare(original, [(1, "call", f"f('{after}')")], set())
    assert (found.lost, found.added) == ({}, {})


def test_variables_and_module_paths_belong_to_their_cell(sandboxes):
    effects = sandboxes[0].run(["import os, sys", "os.environ['A'] = 'x'", "sys.path.append('/content/b')"])
    changed = [effect for effect in effects if effect[1] in ("environment", "module path")]
    assert changed == [(1, "environment", "A=x"), (2, "module path", "/content/b")]


def test_a_lost_clone_is_detected(sandboxes):
    notebook = notebook_of(CELLS)
    less = notebook_of((CELLS[0], "%cd b", *CELLS[2:]))
    difference = _compared(notebook, migrate(less), *sandboxes)
    assert difference is not None
    assert difference.lost == {"fetch": ["git clone https://example.org/a/b"]}
