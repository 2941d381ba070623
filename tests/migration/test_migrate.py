"""The complete migration of a notebook in memory: it never crashes, is valid, and is idempotent."""

import copy
import json
import textwrap

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.colab_leftovers import code_leftovers, leftovers
from migration.migrate import migrate
from migration.notebook.findings import Keeps
from migration.notebook.reading import read_bytes
from migration.report.drive import uses_drive
from migration.rules.table import RULES
from tests.migration.made_notebooks import written
from tests.support.compiling import compiles


def notebook_of(*cells, **metadata):
    return {
        "cells": [
            {"cell_type": "code", "source": cell, "metadata": {}, "outputs": [], "execution_count": None}
            if isinstance(cell, str)
            else {"metadata": {}, **cell}
            for cell in cells
        ],
        "metadata": metadata,
        "nbformat": 4,
        "nbformat_minor": 0,
    }


def texts(migration):
    return [cell["source"] for cell in migration.notebook["cells"]]


_OWN_MAGIC = "@register_cell_magic\ndef logged(line, cell):\n    log(line)\n    get_ipython().run_cell(cell)"


def test_the_body_of_a_cell_magic_of_the_notebook_is_python():
    cell = "%%logged a\nfrom google.colab import output\nopen('/content/a')\noutput.clear()"
    *_, own = texts(migrate(notebook_of(_OWN_MAGIC, cell)))
    assert own == "%%logged a\nfrom landfall_runtime import output\nopen(f'{WORK_DIR}/a')\noutput.clear()"
    migration = migrate(notebook_of(cell))
    assert "/content/a" in texts(migration)[-1]
    assert {"LF230", "LF404"} <= {finding.rule for finding in migration.needs_human}


LINES = st.sampled_from(
    [
        "from google.colab import drive, files", "import google.colab", "drive.mount('/content/drive')",
        "up = files.upload()", "epochs = 5  #@param {type:'integer'}", "#@title A title", "!pip install -q numpy>=1.2",
        "!apt-get install -y x && cd /content", "%cd /content/x", "x = '/content/a b'", "y = f'/content/{x}'",
        "if 'google.colab' in sys.modules:", "    z = 1", "else:", "    !ls /content/drive/My\\ Drive", "try:",
        "except ImportError:", "    pass", "%tensorflow_version 2.x", "%%bash", "%%time", "!nvidia-smi",
        "for i in range(3):",
        "def f(p='/content'):", "    return p", "'''", '"""', "(", ")", "# /content", "!git clone https://x.org/a/b",
        "IN_COLAB = 'COLAB_GPU' in os.environ", "print 'two'", "\\", "os.kill(os.getpid(), 9)", "!sleep 9 &", "",
        "é = 1",
        "token = 'hf_xxx'", "%%writefile /content/a.py", "x = !ls {x}", "\t!ls", "get_ipython().system('pip list')",
        "a = files.upload(# c", "b = files.upload()", "P = '/content/drive/MyDrive/d'", "load(P + '/a.csv')",
        "open(f'{P}/b')", "os.makedirs(os.path.dirname(P))", "!cp {P}/x .", "!rm -rf src && mkdir src",
        "!rm -rf /content/drive", "%cd gdrive", "% cd x", "%load_ext tensorboard", "%tensorboard --logdir x",
        "!pip install google-colab x \\\n  y", "exit() # x", "open('/data/x' + name)", "import keras",
        "IN_COLAB = True", "    os.kill(os.getpid(), 9) # r", "for f in files.upload(): pass",
        "from google.colab import drive", "drive.mount('/content/gdrive')", "shutil.rmtree('/content')",
    ]
)  # fmt: skip
CELLS = st.builds(textwrap.indent, st.lists(LINES, max_size=9).map("\n".join), st.sampled_from(["", "", "  "]))
NOTEBOOKS = st.lists(
    st.one_of(
        CELLS,
        st.builds(lambda text: {"cell_type": "markdown", "source": text}, st.one_of(CELLS, st.text(max_size=40))),
        st.text(max_size=60),
    ),
    max_size=5,
).map(lambda cells: notebook_of(*cells))


@pytest.mark.slow
@given(NOTEBOOKS)
def test_any_notebook_becomes_a_valid_one_and_a_second_migration_changes_nothing(notebook):
    before = copy.deepcopy(notebook)
    migration = migrate(notebook)
    assert notebook == before
    text = written(migration.notebook)
    nbformat.validate(json.loads(text))
    again = migrate(read_bytes(text.encode("utf-8"), "again")[0])
    assert written(again.notebook) == text
    assert [found for found in again.findings if found.changed] == []
    emptied = [
        cell
        for cell, origin in zip(migration.notebook["cells"], migration.origins, strict=True)
        if not cell["source"].strip() and (origin is None or notebook["cells"][origin]["source"].strip())
    ]
    assert emptied == []
    for cell, origin in zip(migration.notebook["cells"], migration.origins, strict=True):
        if origin is not None and cell["cell_type"] == "code":
            old = notebook["cells"][origin]["source"]
            assert cell["source"] == old or compiles(cell["source"]) or not compiles(old)


@pytest.mark.slow
@given(NOTEBOOKS)
def test_manual_steps_have_a_place(notebook):
    rules = {rule.id for rule in RULES}
    for found in migrate(notebook).findings:
        assert found.rule in rules
        if found.keeps is Keeps.NEEDS_HUMAN:
            assert found.action
            assert found.cell is None or 0 <= found.cell < len(notebook["cells"])


def test_migrated_notebooks_are_valid_and_stable():
    migration = migrate(
        notebook_of(
            {"cell_type": "markdown", "source": "# Title"},
            "from google.colab import drive\ndrive.mount('/content/drive')",
            "epochs = 5  #@param {type:'integer'}",
            "for epoch in range(epochs):\n    print(epoch)  # stays",
            "open('/content/drive/MyDrive/a.csv')\n!ls /content/b",
            colab={"provenance": []},
            accelerator="GPU",
        )
    )
    parameters, setup, loop, paths = texts(migration)[1:]
    assert migration.origins == (0, None, None, 3, 4)
    assert "epochs = 5" in parameters
    assert "DRIVE_DIR" in setup
    assert loop == "for epoch in range(epochs):\n    print(epoch)  # stays"
    assert paths == "open(f'{DRIVE_DIR}/a.csv')\n!ls \"$WORK_DIR\"/b"
    assert migration.hardware == "GPU"
    assert list(leftovers(migration.notebook)) == []


def test_a_rewrite_that_does_not_compile_is_reverted_and_reported(monkeypatch):
    monkeypatch.setattr("migration.migrate._broke", lambda before, after: True)
    migration = migrate(notebook_of("x = '/content/a'"))
    assert texts(migration)[-1] == "x = '/content/a'"
    assert [(found.rule, found.cell) for found in migration.needs_human] == [("LF902", 0)]


@pytest.mark.parametrize(
    "text, expected",
    [
        ("x = open('/content/a'\ny = (", True),  # rewritten by its text
        ("print 'a'\nfrom google.colab import files", True),
        ("from google.colab import files\nfiles.download('a'", True),  # read, and left as it is
        ("print 'a'", False),  # nothing of Colab's: it does not run there, either
        ("x = # your code\nopen('/data/a')", False),
        ("x = (\nimport pandas, google.colab", True),
        ("pip install -q torch", False),  # readable once it is rewritten
        ("x = 1", False),
    ],
)
def test_an_unparsable_cell_is_reported_if_it_may_use_colab(text, expected):
    findings = migrate(notebook_of(text)).findings
    assert [finding.cell for finding in findings if finding.rule == "LF901"] == [0] * expected


@pytest.mark.parametrize(
    ("title", "metadata", "hidden"),
    [
        ('#@title Solution {display-mode: "form"}', {}, True),
        ("# @title {'display-mode': 'form', run: 'auto'}", {}, True),
        ('#@title Solution {display-mode: "form"}', {"cellView": "code"}, False),
        ('#@title Solution {display-mode: "both"}', {}, False),
        ('print("{display-mode: form}")', {}, False),
    ],
)
def test_code_that_a_title_hides_stays_hidden(title, metadata, hidden):
    cell = {"cell_type": "code", "source": f"{title}\nx = 1", "metadata": metadata, "outputs": []}
    migration = migrate(notebook_of({**cell, "execution_count": None}))
    assert migration.notebook["cells"][0]["metadata"] == ({"jupyter": {"source_hidden": True}} if hidden else {})
    assert ("LF114" in {finding.rule for finding in migration.findings}) == hidden


@pytest.mark.parametrize("ends", ["\r\n", "\n"])
def test_line_ends_are_kept(ends):
    source = ends.join(["x = 1", "y = '/content/a'", "z = 2", ""])
    assert texts(migrate(notebook_of(source)))[-1] == source.replace("'/content/a'", "f'{WORK_DIR}/a'")


def test_the_independent_check_finds_colab_code():
    code = "from google.colab import files\n#@title T\n!apt install x\nx = '/content/a'\n"
    code += "os.kill(os.getpid(), 9)\n!sleep 1 &"
    assert {construct for construct, _ in code_leftovers(code)} == {
        "google.colab", "form", "apt", "/content", "restart", "background command"
    }  # fmt: skip
    assert list(code_leftovers("x = 'https://a.org/content/b'\ny = './content'\nz = '/contents'\n!a && b")) == []


def test_a_parameters_cell_that_needs_the_folders_finds_them_defined():
    cell = {"cell_type": "code", "source": "data = '/content/data'", "metadata": {"tags": ["parameters"]}}
    migration = migrate(notebook_of(cell | {"outputs": [], "execution_count": None}))
    setup, parameters = texts(migration)
    assert "WORK_DIR = " in setup
    assert parameters == "data = f'{WORK_DIR}/data'"


def test_no_folder_is_created_for_samples_that_are_deleted():
    text = "!rm -r /content/sample_data\nopen('/content/a')"
    cell = {"cell_type": "code", "source": text, "metadata": {}, "outputs": []}
    setup, last = texts(migrate(notebook_of(cell)))[-2:]
    assert "WORK_DIR = " in setup
    assert "sample_data" not in setup
    assert last.startswith("# !rm")


@pytest.mark.parametrize(
    "text",
    [
        "%cd /content/sample_data",
        "%cd sample_data",
        "!cd sample_data; rm -rf *",
        "os.chdir('./sample_data')",
        "os.listdir(os.getcwd() + '/sample_data')",
        "!mkdir sample_data/a",
        "!wget a.org/b -O sample_data/b",
        "a.to_csv('sample_data/b')",
        "open('sample_data/b', 'w')",
        "open('sample_data/b', mode='wb')",
        "shutil.copytree('sample_data', 'b')",
        "!cp -r sample_data b",
    ],
)
def test_the_folder_of_sample_data_exists(text):
    cell = {"cell_type": "code", "source": text, "metadata": {}, "outputs": []}
    setup = texts(migrate(notebook_of(cell | {"execution_count": None})))[1]
    assert 'os.makedirs(os.path.join(WORK_DIR, "sample_data"), exist_ok=True)' in setup


@pytest.mark.parametrize(
    "text",
    [
        "!ls sample_data",
        "open('sample_data/a')",
        "!wget a.org/sample_data/b",
        "!mkdir sample_data",
        "!unzip sample_data.zip",
        "!mv a sample_data_2",
        "shutil.copy(a, sample_data )",
        "pd.read_csv('sample_data/x.csv', usecols=['id', 'age'])",
    ],
)
def test_other_uses_of_sample_data_need_no_folder(text):
    cell = {"cell_type": "code", "source": text, "metadata": {}, "outputs": []}
    assert texts(migrate(notebook_of(cell | {"execution_count": None}))) == [text]


@pytest.mark.parametrize("use", ["!curl a.org/b -o sample_data/b", "%cd sample_data", "%cd /content/sample_data"])
@pytest.mark.parametrize(
    "create", ["os.mkdir('sample_data')", "os.makedirs('/content/sample_data')", "!mkdir sample_data"]
)
def test_a_folder_of_samples_that_the_notebook_creates_is_its_own(create, use):
    migration = migrate(notebook_of("!rm -rf sample_data", create, use))
    assert "!rm -rf sample_data" in texts(migration)
    assert not any('os.path.join(WORK_DIR, "sample_data")' in text for text in texts(migration))
    again = migrate(migration.notebook)
    assert texts(again) == texts(migration)


def test_a_try_for_colab_that_stays_is_reported_although_its_import_goes():
    text = (
        "try:\n    from google.colab import output\n    !pip install a\n    output.enable_custom_widget_manager()\n"
        "except:\n    print('no')"
    )
    cell = {"cell_type": "code", "source": text, "metadata": {}, "outputs": [], "execution_count": None}
    migration = migrate(notebook_of(cell))
    assert texts(migration)[-1] == "try:\n    %pip install a\nexcept:\n    print('no')"
    (kept,) = (finding for finding in migration.findings if finding.rule == "LF303")
    assert (kept.line, kept.before) == (1, "try:")
    assert all(word in kept.message for word in ("installs", "`except`"))


_MOUNT = "from google.colab import drive\ndrive.mount('/content/drive')"


@pytest.mark.parametrize(
    "text, prose",
    [
        ("# Mount it.\nfrom google.colab import drive\ndrive.mount('/content/drive')", "Mount it."),
        ("#@markdown ## Drive\nfrom google.colab import drive", "## Drive"),
        ("#@markdown * Click.\n\n# Wait.\nfrom google.colab import drive", "* Click.\n\nWait."),
        ("import sys\nif 'google.colab' in sys.modules:\n    # Choose a GPU.\n    print('Colab')", "Choose a GPU."),
        ("import sys\nif 'google.colab' in sys.modules:\n    # Choose a GPU.\n    print('Colab')\nsys.path", ""),
        ("try:\n    # only on Colab\n    %tensorflow_version 2.x\nexcept Exception:\n    pass", "only on Colab"),
        ("# !pip install x\nfrom google.colab import drive", ""),
        ("# old: run(x)\nfrom google.colab import drive", ""),
        ("!apt install ffmpeg", ""),
        ("# from google.colab import files", ""),
    ],
)
def test_a_cell_of_which_only_comments_are_left_becomes_a_markdown_cell(text, prose):
    migration = migrate(notebook_of(text, "x = 1"))
    cells = [cell for cell, origin in zip(migration.notebook["cells"], migration.origins, strict=True) if origin == 0]
    assert [cell["source"] for cell in cells if cell["cell_type"] == "markdown"] == [prose] * bool(prose)
    became = [(found.output_cell, found.before) for found in migration.findings if found.rule == "LF616"]
    assert became == [(0, text)] * bool(prose)


@pytest.mark.parametrize(
    "before, after",
    [
        ("import sys\n\nIN_COLAB = 'google.colab' in sys.modules\nx = 1", "IN_COLAB = False\nx = 1"),
        (
            "import os, sys\nif 'google.colab' in sys.modules:\n    !pip install a\nx = 1",
            "import os\n%pip install a\nx = 1",
        ),
        (
            "import sys\nif 'google.colab' in sys.modules:\n    !pip install a\nprint(sys.path)",
            "import sys\n%pip install a\nprint(sys.path)",
        ),
        (
            "import sys\nif 'google.colab' in sys.modules:\n    !pip install a\n!{sys.executable} -V",
            "import sys\n%pip install a\n!{sys.executable} -V",
        ),
        ("import sys\nx = 1", "import sys\nx = 1"),
    ],
)
def test_sys_is_not_imported_for_a_test_that_is_gone(before, after):
    assert texts(migrate(notebook_of(before)))[-1] == after


def test_sys_stays_for_another_cell():
    migrated = texts(migrate(notebook_of("import sys\nIN_COLAB = 'google.colab' in sys.modules", "# sys.exit()")))
    assert migrated == ["import sys\nIN_COLAB = False", "# sys.exit()"]


def test_a_text_keeps_the_cell_that_it_describes():
    mount = _MOUNT
    apart = mount.replace("\n", "\n\n")
    use = "open('/content/drive/MyDrive/a')"
    text = {"cell_type": "markdown", "source": "## Settings"}
    shown = 'print("The drive is the folder", DRIVE_DIR)'

    def last(*cells):
        return [cell["source"] for cell in migrate(notebook_of(*cells)).notebook["cells"]][-2]

    assert last("a = 0", text, mount, text) == text["source"]
    assert last(use, f"# Mount it.\n{apart}", text) == f"# Mount it.\n{shown}"
    noted = mount.replace("\n", "\n\n# Mount it.\n")
    assert last(use, noted, text) == f"# Mount it.\n{shown}"
    in_a_row = mount.replace("\n", "; ")
    assert last(use, f"# Mount it.\n{in_a_row}", text) == f"# Mount it.\n{shown}"
    assert last(use, f"# Mount it.\n{in_a_row}\n\na = 1", text) == f"# Mount it.\n{shown}\n\na = 1"
    assert last(use, text, mount, text) == shown
    assert last(use, f"# Mount it.\n{mount}\n\na = 1", text) == f"# Mount it.\n{shown}\n\na = 1"
    assert last(use, f"# Load it.\n{mount}\na = 1", text) == "# Load it.\na = 1"
    assert last(use, mount, text) == use.replace("'/content/drive/MyDrive/a'", "f'{DRIVE_DIR}/a'")
    assert last("a = 0", text, "%tensorflow_version 1.x", text) == "%pip show tensorflow"
    assert last("a = 0", text, "%tensorflow_version 1.x\nb = 1", text) == "b = 1"
    assert last(use, f"#@title Mount your Google Drive\n#@markdown Once.\n\na = 1\n{mount}", text) == (
        f"# Mount your Google Drive\n# Once.\n\na = 1\n{shown}"
    )
    tried = mount.replace("\n", "\ntry:\n    ")
    assert last(use, f"{tried}\nexcept Exception:\n    print(1)", text) == (
        f"try:\n    {shown}\nexcept Exception:\n    print(1)"
    )
    said = "if a:\n    print('Mounting Google Drive')\n    "
    imports, call = mount.split("\n")
    assert last(use, f"{imports}\n{said}{call}\n    b()", text) == f"{said}{shown}\n    b()"
    inside = said.replace("print", f"{imports}\n    print", 1)
    assert last(use, f"{inside}{call}\n    b()", text) == f"{said}{shown}\n    b()"
    assert last("a = 0", text, "b = 1 #@param", text) == "`b` is set in the parameters cell above."
    fields = "b = 1 #@param\nc = 2 #@param\nd = 3 #@param"
    assert last("a = 0", text, fields, text) == "`b`, `c` and `d` are set in the parameters cell above."
    assert last("a = 0", text, "b = 1 #@param", "print(b)") == text["source"]
    for above in ("Use the dropdowns below.", "Set `b`.", "Select your data below"):
        cells = "a = 0", {**text, "source": above}, "b = 1 #@param", "print(b)"
        assert last(*cells) == "`b` is set in the parameters cell above."


@pytest.mark.parametrize(
    "cells",
    [
        ("a = 0", {"cell_type": "markdown", "source": "Mount your Drive if your images are there:"}, _MOUNT, "b = 1"),
        ({"cell_type": "markdown", "source": "Connect your Google Drive."}, _MOUNT, "b = 1"),
        ("a = 0", f"#@markdown Run this cell to connect your Google Drive.\n{_MOUNT}", "b = 1"),
    ],
)
def test_a_text_about_the_drive_keeps_its_cell_where_the_code_names_no_folder_of_it(cells):
    found = texts(migrate(notebook_of(*cells)))
    assert any('\ndrive_dir = "drive"' in text for text in found)
    assert found[-2].endswith('print("The drive is the folder", DRIVE_DIR)')
    assert texts(migrate(notebook_of(*found)))[-2] == found[-2]


def test_a_mount_that_no_text_is_about_adds_no_cells():
    text = {"cell_type": "markdown", "source": "## Settings"}
    assert texts(migrate(notebook_of("a = 0", text, _MOUNT, "b = 1"))) == ["a = 0", "## Settings", "b = 1"]


def test_a_set_up_for_links_in_the_drive_folder_is_complete():
    migration = migrate(notebook_of("from google.colab import drive\ndrive.mount(place)\nopen(f'{place}/MyDrive/a')"))
    assert texts(migrate(migration.notebook)) == texts(migration)


@pytest.mark.parametrize("use, is_used", [("x = 1", False), ("open('/content/drive/MyDrive/x')", True)])
def test_a_mount_that_nothing_uses_needs_no_files(use, is_used):
    found = migrate(notebook_of(use, "from google.colab import drive\ndrive.mount('/content/drive')"))
    assert uses_drive(found.findings) is is_used
    assert any("drive_dir" in text for text in texts(found)) is is_used


def test_a_comment_keeps_the_magic_that_it_describes():
    cells = texts(migrate(notebook_of("# always use tensorflow1\n%tensorflow_version 1.x", "b = 1")))
    assert cells == ["# always use tensorflow1\n%pip show tensorflow", "b = 1"]


def test_the_report_names_the_added_cells():
    def added(text):
        return [found.message for found in migrate(notebook_of(text)).findings if found.rule == "LF615"]

    assert added("a = 1 #@param") == ["a cell of parameters was added before the first code cell"]
    assert added("!python a.py") == ["a set-up cell was added before the first code cell"]
    assert added("open('/content/a')") == [
        "a cell of parameters and a set-up cell were added before the first code cell"
    ]


@pytest.mark.parametrize("code, is_added", [("x = 1", False), ("open('/content/a')", True)])
def test_a_text_about_a_restart_names_the_added_cells_if_there_are_any(code, is_added):
    (found,) = [
        found
        for found in migrate(notebook_of("# In Colab, restart the runtime.", code)).findings
        if found.rule == "LF704"
    ]
    assert ("the added cells" in found.action) is is_added
    assert found.action


@pytest.mark.parametrize(
    "text",
    [
        "# drive.mount('/content/drive')\nx = 1",
        "# from google.colab import drive\n# drive.mount('/content/drive')\n# !ls /content\nx = 1",
        "x = 1  # from google.colab import files",
    ],
)
def test_comments_need_no_added_cells_and_no_runtime(text):
    migration = migrate(notebook_of(text, "f(x)"))
    assert [cell["metadata"].get("tags") for cell in migration.notebook["cells"]] == [None, None]
    assert not migration.uses_runtime


def test_a_comment_that_names_the_runtime_needs_it():
    text = "from google.colab import output\noutput.enable_custom_widget_manager()"
    migration = migrate(notebook_of(text, "# from google.colab import files\n# files.download('a')\nx = 1"))
    assert "# from landfall_runtime import files" in migration.notebook["cells"][-1]["source"]
    assert migration.uses_runtime


def test_a_hash_in_a_string_is_no_comment():
    migration = migrate(notebook_of("open('#/content', '/content/a') # from /content"))
    assert "WORK_DIR = " in texts(migration)[1]


def test_a_finding_names_the_parameter_of_the_drive():
    mount = "from google.colab import drive\ndrive.mount('/content/drive')\nopen('/content/drive/MyDrive/a')"
    for text, name in ((mount, "drive_dir"), (f"drive_dir = 'a'\n{mount}", "landfall_drive_dir")):
        findings = migrate(notebook_of(text)).findings
        action = next(found.action for found in findings if found.rule == "LF203")
        assert action.endswith(f"the folder of the parameter `{name}`")


def test_the_action_for_the_drive_is_also_right_where_it_is_only_written():
    mount = "from google.colab import drive\ndrive.mount('/content/drive')\nopen('/content/drive/MyDrive/a', 'w')"
    migration = migrate(notebook_of(mount))
    assert migration.drive == ()
    actions = [found.action for found in migration.findings if found.rule == "LF203"]
    assert "any files that the notebook reads" in actions[0]


def test_a_finding_names_no_parameter_that_the_notebook_lacks():
    found = migrate(notebook_of("from google.colab import drive\ndrive.mount('/content/drive')\na = 1")).findings
    assert [each.action for each in found if each.rule == "LF203"] == [""]


@pytest.mark.parametrize("cell, is_old", [("print('a')", False), ("%cd a\n!ls", False), ("print 'a'", True)])
def test_only_cells_of_python_2_need_a_conversion_for_the_kernel(cell, is_old):
    found = migrate(notebook_of("x = 1", cell, kernelspec={"name": "python2", "display_name": "Python 2"})).findings
    (finding,) = (finding for finding in found if finding.rule == "LF104")
    assert bool(finding.action) is is_old
    assert ("written for Python 2" in finding.message) is is_old
