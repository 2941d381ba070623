"""Imports and uses of google.colab become those of landfall_runtime; the mount of the drive is removed."""

import textwrap

import pytest

import landfall_runtime
from migration.analysis.facts import collect_facts
from migration.colab.names import offered
from migration.notebook.findings import Keeps
from migration.python.source import CellSource
from migration.rules import colab_api, colab_calls, colab_text, detection
from migration.rules.rewriting import rewrite
from migration.rules.table import RULES as EVERY_RULE
from tests.support.compiling import compiles

API = (*colab_api.RULES, *colab_calls.RULES, *colab_text.RULES)
RULES = (*detection.RULES, *API)
NOTHING = ""


def _rewrite(*texts, rules=RULES):
    sources = [CellSource(text, index=index) for index, text in enumerate(texts)]
    facts = collect_facts(sources)
    results = [rewrite(source, cell_type="code", rules=rules, facts=facts) for source in sources]
    return [new.text for new, _ in results], [finding for _, found in results for finding in found]


def _one(text, *others):
    (new, *_), found = _rewrite(text, *others)
    assert _rewrite(new, *others)[0] == [new, *others]
    assert compiles(new) or not compiles(text)
    return new, found


@pytest.mark.parametrize(
    "before, after",
    [
        ("from google.colab import files", "from landfall_runtime import files"),
        ("from google.colab import files as f, output", "from landfall_runtime import files as f, output"),
        (
            "from google.colab import (files,  # one\n  output)",
            "from landfall_runtime import (files,  # one\n  output)",
        ),
        ("from google.colab.patches import cv2_imshow", "from landfall_runtime import cv2_imshow"),
        (
            "from google.colab.output import eval_js, clear as c",
            "from landfall_runtime.output import eval_js, clear as c",
        ),
        ("import google.colab", "import landfall_runtime"),
        ("import os, google.colab as gc, sys", "import os, landfall_runtime as gc, sys"),
        ("import google.colab.files as f", "import landfall_runtime.files as f"),
        ("import google.colab.files", "import landfall_runtime"),
        ("from google import colab", "import landfall_runtime as colab"),
        ("from google import colab as c", "import landfall_runtime as c"),
        ("from google import auth, colab", "from google import auth; import landfall_runtime as colab"),
        ("def f():\n    from google.colab import files  # é", "def f():\n    from landfall_runtime import files  # é"),
        ("a = 'ü'; from google.colab import files", "a = 'ü'; from landfall_runtime import files"),
        (
            "import google.colab\ngoogle.colab.files.upload()",
            "import landfall_runtime\nlandfall_runtime.files.upload()",
        ),
        ("x = google.colab.files.upload()", "x = landfall_runtime.files.upload()"),
        (
            "import google.colab\ntry:\n    a()\nexcept google.colab.userdata.SecretNotFoundError: pass",
            "import landfall_runtime\ntry:\n    a()\nexcept landfall_runtime.userdata.SecretNotFoundError: pass",
        ),
        (
            'import google.colab\nprint(f"{google.colab.userdata.get(key)} é")',
            'import landfall_runtime\nprint(f"{landfall_runtime.userdata.get(key)} é")',
        ),
    ],
)
def test_names_are_imported_from_the_runtime(before, after):
    new, found = _one(before, "a(files, f, output, cv2_imshow, eval_js, c)")
    assert new == after
    assert {finding.rule for finding in found if finding.changed} <= {"LF201"}


@pytest.mark.parametrize(
    "before, after",
    [
        ("from google.colab import files\nimport os", "import os"),
        ("from google.colab import files, sheets\na()", "a()"),
        ("from google.colab import output\n!a --output b --no-output-c", "!a --output b --no-output-c"),
        ("from google.colab import drive, files\ndrive.mount('/content/drive')\na()", "a()"),
        (
            "from google.colab import files, userdata\nuserdata.get('A')",
            "from landfall_runtime import userdata\nuserdata.get('A')",
        ),
    ],
)
def test_a_name_that_nothing_uses_is_not_imported(before, after):
    assert _one(before)[0] == after


def test_each_of_several_uploads_whose_result_is_used_has_a_number():
    new, _ = _rewrite(
        "from google.colab import files\na = files.upload()",
        "files.upload()\nb = list(files.upload('x'))",
        "files.upload_file('a',)\nc = files.upload(paths='b')",
    )
    assert new == [
        "from landfall_runtime import files\na = files.upload(call=1)",
        "files.upload()\nb = list(files.upload('x', call=2))",
        "files.upload_file('a', call=3)\nc = files.upload(paths='b')",
    ]


def test_uploads_are_numbered_in_the_order_of_the_text():
    text = "from google.colab import files\ndef f():\n    return files.upload(  # a\n    )\nb = f(), "
    new, found = _one(text + "files.upload(d=0, *(c))")
    assert new.endswith("return files.upload(  # a\n    call=1)\nb = f(), files.upload(d=0, *(c), call=2)")
    assert "LF902" not in [finding.rule for finding in found]


def test_an_indented_cell_that_ends_with_a_mount():
    text = "  x = 1\n  from google.colab import drive\n  drive.mount('/content/drive')"
    assert _rewrite(text, "open('/content/drive/a')")[0][0] == "  x = 1"
    text = "  from google.colab import drive\n  # the drive\n  drive.mount('/content/drive')\n  x = 1"
    new, found = _rewrite(text)
    assert new == ["  # the drive\n  x = 1"]
    assert "LF902" not in [finding.rule for finding in found]


def test_the_comment_above_a_mount_of_an_indented_cell_describes_the_folder():
    text = "from google.colab import drive\n# the place\ndrive.mount('/content/drive')\n\nx = 1"
    indented = textwrap.indent(text, "  ")
    (new,), _ = _rewrite(text + "\nopen('/content/drive/a')")
    (found,), _ = _rewrite(indented + "\n  open('/content/drive/a')")
    assert "# the place\nprint(" in new
    assert textwrap.dedent(found) == new


def test_a_carriage_return_in_a_command_moves_no_later_edit():
    new, _ = _one("!ls a\rb\nfrom google.colab import files\nfiles.upload()")
    assert new == "!ls a\rb\nfrom landfall_runtime import files\nfiles.upload()"


def test_one_upload_has_no_number():
    new, _ = _rewrite("from google.colab import files\nfiles.upload()", "a = files.upload()")
    assert new[1] == "a = files.upload()"


@pytest.mark.parametrize("text", ["# files.upload()", "!echo {files}", "%%bash\nfiles"])
def test_a_name_in_any_other_text_is_imported(text):
    assert _one("from google.colab import files", text)[0] == "from landfall_runtime import files"


def test_all_runtime_names_can_be_imported():
    names = {"eval_js": "output", "cv2_imshow": "patches"}
    for name in sorted(offered()):
        (new,), _ = _rewrite(f"from google.colab import {name} as offered\nlist([offered])")
        namespace = {}
        exec(new, namespace)
        assert namespace["offered"] is getattr(landfall_runtime, name)
    for name, part in names.items():
        (new,), _ = _rewrite(f"from google.colab.{part} import {name}\nlist([{name}])")
        exec(new, namespace)
        assert callable(namespace[name])


@pytest.mark.parametrize(
    "before, after",
    [
        ("from google.colab import drive\ndrive.mount('/content/drive')", NOTHING),
        ("from google.colab import drive; drive.mount('/content/drive', force_remount=True)\n", ""),
        ("%%capture\nfrom google.colab import drive\ndrive.mount('/content/drive')", "%%capture"),
        ("# Mount.\nfrom google.colab import drive\ndrive.mount('/content/drive')", "# Mount."),
        (
            "from google.colab import drive, files\ndrive.mount('/content/drive')\na(files)",
            "from landfall_runtime import files\na(files)",
        ),
        ("from google.colab import drive as d\nd.mount('/content/drive'); a()", "a()"),
        ("from google.colab import drive\na(); drive.mount('/content/drive')", "a()"),
        ("if a:\n    from google.colab import drive\n    drive.mount('/content/drive')\nb()", "b()"),
        (
            "try:\n    from google.colab import drive\n    if not exists('x'):\n        drive.mount('/content/drive')\n"
            "    a()\nexcept OSError: b()",
            "try:\n    a()\nexcept OSError: b()",
        ),
        ("def f(): from google.colab import drive; drive.mount('/content/drive')", "def f(): pass"),
        (
            "from google.colab import drive\ntry:\n    drive.mount('/a')\nexcept OSError: b()",
            "try:\n    pass\nexcept OSError: b()",
        ),
        ("from google.colab import drive\na()\ndrive.flush_and_unmount()\nb()", "a()\nb()"),
        ("from google.colab import drive\ndrive = PyDrive()\ndrive.mount(x)", "drive = PyDrive()\ndrive.mount(x)"),
    ],
)
def test_a_mount_at_a_literal_path_is_removed(before, after):
    new, found = _one(before)
    assert new == after
    assert "LF203" in {finding.rule for finding in found}


@pytest.mark.parametrize(
    "before, after",
    [
        (
            "#@title Mount\nmount = False #@param\nif mount:\n  from google.colab import drive\n"
            "  drive.mount('/content/drive')",
            "# Mount\nmount = False",
        ),
        (
            "if a:\n    pass\nelif 'COLAB_GPU' in os.environ:\n    from google.colab import drive\n"
            "    drive.mount('/content/drive')\n    p = '/content/drive/MyDrive/x'\nelse:\n    print('none')",
            "if a:\n    pass\nelse:\n    p = f'{DRIVE_DIR}/x'",
        ),
        (
            "# Mount\ntry:\n  from google.colab import drive\n  drive.mount('/content/drive')\nexcept ImportError:\n"
            "  pass\nif a:\n  drive.mount('/content/drive')",
            "# Mount",
        ),
    ],
)
def test_no_mount_stays_without_its_import(before, after):
    """Another rule changes the path of the mount first."""
    (new,), _ = _rewrite(before, rules=EVERY_RULE)
    assert new == after


def test_a_mount_that_is_only_a_comment_keeps_its_import():
    new, _ = _rewrite("from google.colab import drive", "# drive.mount('/content/gdrive')")
    assert new == ["from landfall_runtime import drive", "# drive.mount('/content/gdrive')"]


@pytest.mark.parametrize(
    "text",
    [
        "from google.colab import drive\ndrive.mount(base + '/gdrive')",
        "from google.colab import drive\nok = drive.mount('/content/drive')",
        "from google.colab import drive\nmounts = [drive.mount('/content/drive')]",
    ],
)
def test_any_other_mount_uses_the_runtime(text):
    new, found = _one(text)
    assert new == text.replace("google.colab", "landfall_runtime")
    assert [finding.rule for finding in found] == ["LF201", "LF203"]
    assert "drive_dir" in found[-1].action


def test_a_mount_in_its_own_cell_is_removed():
    new, _ = _rewrite("from google.colab import drive, files", "drive.mount('/content/drive')", "files.upload()")
    assert new == ["from landfall_runtime import files", NOTHING, "files.upload()"]


def test_an_import_used_only_in_a_removed_branch_is_not_rewritten():
    new, found = _rewrite(
        "if 'google.colab' in sys.modules:\n    from google.colab import files\n    files.view('x')\na()"
    )
    assert new == ["a()"]
    assert [finding.rule for finding in found] == ["LF301"]


@pytest.mark.parametrize(
    "text, rule, action",
    [
        ("from google.colab import files\nup = files.upload()", "LF210", "uploads"),
        ("from google.colab import files\nfiles.upload_file('a')", "LF210", "uploads"),
        ("from google.colab import files as f\nf.download('a')", "LF211", "downloads"),
        ("from google.colab import files\nfiles.view('a')", "LF221", ""),
        ("from google.colab import userdata\nuserdata.get('HF_TOKEN')", "LF213", "HF_TOKEN"),
        ("from google.colab.userdata import get\nget(key)", "LF213", "environment variable"),
        ("from google.colab import userdata\nuserdata.get('api-key')", "LF213", "put api-key into the file `.env`"),
        ("from google.colab import auth as google_auth\ngoogle_auth.authenticate_user()", "LF214", "gcloud"),
        ("from google.colab.patches import cv2_imshow\ncv2_imshow(a)", "LF215", ""),
        ("from google.colab import patches\npatches.cv2_imshow(a)", "LF215", ""),
        ("from google.colab import data_table\ndata_table.DataTable(a)", "LF221", ""),
        ("from google.colab import output\noutput.clear()", "LF221", ""),
        ("from google.colab import output\noutput.eval_js('google.x.kernel.proxyPort(80)')", "LF218", ""),
        ("from google.colab import output\noutput.serve_kernel_port_as_iframe(80)", "LF221", ""),
        ("from google.colab import output\noutput.no_vertical_scroll()", "LF221", ""),
        ("from google.colab import output\nwith output.redirect_to_element('#a'): pass", "LF221", ""),
        ("from google.colab import runtime\nruntime.unassign()", "LF221", ""),
        ("from google.colab import widgets\nwidgets.TabBar(a)", "LF221", ""),
        ("from google.colab import snippets\nsnippets.register(a)", "LF221", ""),
        ("from google.colab import data_table\ndata_table._DEFAULT_FORMATTERS[float] = a", "LF221", ""),
    ],
)
def test_calls_are_reported_with_their_local_meaning(text, rule, action):
    found = [finding for finding in _one(text)[1] if not finding.changed]
    assert [finding.rule for finding in found] == [rule]
    assert found[0].keeps is Keeps.EQUIVALENT
    assert found[0].line == 2
    assert action in found[0].action


@pytest.mark.parametrize(
    "call, effect",
    [
        ("output.clear()", "clears the output"),
        ("output.no_vertical_scroll()", "has no effect"),
        ("data_table.DataTable(a)", "plain table"),
        ("data_table.enable_dataframe_formatter()", "has no effect"),
        ("widgets.TabBar(a)", "one below the other"),
        ("runtime.unassign()", "is not released"),
    ],
)
def test_the_message_describes_the_effect_of_the_call_alone(call, effect):
    text = f"from google.colab import output, data_table, widgets, runtime\n{call}"
    (finding,) = [found for found in _one(text)[1] if found.rule == "LF221"]
    assert effect in finding.message
    assert finding.message.count(",") <= 1


@pytest.mark.parametrize(
    "text, rule",
    [
        ("from google.colab import output\noutput.eval_js('takePhoto()')", "LF218"),
        ("from google.colab.output import eval_js\ndef f():\n    return eval_js('1')", "LF218"),
        ("from google.colab import output\noutput.register_callback('a', b)", "LF218"),
        ("from google.colab import ai\nai.generate_text('a')", "LF229"),
        ("from google.colab import _message\n_message.blocking_request('get_ipynb')", "LF218"),
        ("from google.colab import sheets\nsheets.InteractiveSheet()", "LF229"),
        ("from google.colab import data_table\ndata_table._other[float] = str", "LF229"),
    ],
)
def test_unsupported_features_are_manual_steps(text, rule):
    (finding,) = [finding for finding in _one(text)[1] if not finding.changed]
    assert (finding.rule, finding.keeps) == (rule, Keeps.NEEDS_HUMAN)
    assert finding.action
    assert "no effect" not in finding.message


def test_a_module_that_takes_the_name_of_a_variable_is_no_manual_step():
    found = _one("files = {'a': 'b'}\nfrom google.colab import files\nprint(files['a'])")[1]
    assert not [finding for finding in found if finding.keeps is Keeps.NEEDS_HUMAN]


@pytest.mark.parametrize(
    "use, needed",
    [
        ("from pydrive2.auth import GoogleAuth", True),
        ("!pip install gspread", True),
        ("!pip install Gspread", True),
        ("service = build('drive', 'v3')", True),
        ("# import gspread", False),
        ("scopes = ['https://www.googleapis.com/auth/drive.readonly']", True),
        ("# 'https://www.googleapis.com/auth/drive'", False),
        ("scopes = ['https://www.googleapis.com/auth/cloud-platform']", False),
        ("scopes = ['openid', 'https://www.googleapis.com/auth/userinfo.email']", False),
        ("client = bigquery.Client()", False),
    ],
)
def test_a_sign_in_for_the_drive_names_its_scopes(use, needed):
    (finding,) = [
        found
        for found in _one(f"from google.colab import auth\nauth.authenticate_user()\n{use}")[1]
        if found.rule == "LF214"
    ]
    assert ("googleapis.com/auth/drive" in finding.action) is needed
    assert finding.keeps is (Keeps.NEEDS_HUMAN if needed else Keeps.EQUIVALENT)


def test_a_sign_in_has_the_scopes_that_the_notebook_names():
    call = "auth.authenticate_user('https://www.googleapis.com/auth/spreadsheets.')\nimport gspread"
    (finding,) = [found for found in _one(f"from google.colab import auth\n{call}")[1] if found.rule == "LF214"]
    scopes = ",".join(f"https://www.googleapis.com/auth/{name}" for name in ("drive", "spreadsheets", "cloud-platform"))
    assert f"`gcloud auth application-default login --scopes={scopes}`" in finding.action


@pytest.mark.parametrize("call", ["output.eval_js('takePhoto()')", "_message.blocking_request('get_ipynb')"])
def test_a_call_that_fails_here_is_reported_with_its_error(call):
    (finding,) = [found for found in _one(f"from google.colab import output, _message\n{call}")[1] if not found.changed]
    assert "MessageError" in finding.message


@pytest.mark.parametrize(
    "text, missing",
    [
        ("from google.colab import sheets", "sheets"),
        ("from google.colab import html", "html"),
        ("from google.colab.output import clear, _publish as publish", "output._publish"),
        ("import google.colab.output._util as u", "output._util"),
        ("from google.colab.patches import *", ""),
        ("from google.colab.output import clear", ""),
    ],
)
def test_an_import_of_a_name_without_counterpart_is_a_manual_step(text, missing):
    (finding,) = [found for found in _one(text, "a(sheets, html, clear, publish)")[1] if found.cell == 0]
    assert (finding.rule, finding.keeps) == ("LF201", Keeps.NEEDS_HUMAN if missing else Keeps.EQUIVALENT)
    assert f"`{missing}`" in finding.action or not missing


@pytest.mark.parametrize(
    "text", ["", "files.upload()", "import google.generativeai as g", "# https://colab.x", "x = (", "%%html\na"]
)
def test_other_cells_are_unchanged(text):
    assert _one(text) == (text, [])


@pytest.mark.parametrize(
    "before, after",
    [
        ("from google.colab import output\noutput.enable_custom_widget_manager()\na = 1", "a = 1"),
        (
            "from google.colab import output, files\noutput.enable_custom_widget_manager()\nfiles.view(a)",
            "from landfall_runtime import files\nfiles.view(a)",
        ),
        (
            "from google.colab import output\noutput.enable_custom_widget_manager()\noutput.clear()",
            "from landfall_runtime import output\noutput.clear()",
        ),
        ("import google.colab.output\nif a:\n    b = google.colab.output.enable_custom_widget_manager()", None),
    ],
)
def test_settings_of_colabs_widgets_are_removed(before, after):
    new, found = _one(before)
    assert ("LF204" in {finding.rule for finding in found}) is (after is not None)
    assert after is None or new == after
