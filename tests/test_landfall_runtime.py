import ast
import inspect
import io
import os
import subprocess
import sys
import types
import warnings
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

import landfall_runtime
from landfall_runtime import _message, ai, auth, drive, files, output, runtime, userdata, widgets
from tests.support import REPO_ROOT
from tests.support.kernels import running_kernel

SOURCE = REPO_ROOT / "landfall_runtime.py"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The work folder, which is the current one; nothing has been uploaded yet, and no input is available."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("WORK_DIR", str(folder))
    monkeypatch.delenv("DRIVE_DIR", raising=False)
    monkeypatch.setattr(landfall_runtime, "_uploaded", set())

    def no_input(prompt: str) -> str:
        raise EOFError(prompt)

    monkeypatch.setattr("builtins.input", no_input)
    return folder


@pytest.fixture(scope="module")
def shown() -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    """What a cell in a real kernel shows: the contents of its messages, each with its `type`."""
    with running_kernel(REPO_ROOT, "--HistoryManager.enabled=False") as client:

        def run(code: str) -> list[dict[str, Any]]:
            messages: list[dict[str, Any]] = []
            reply = client.execute_interactive(
                code,
                allow_stdin=False,
                timeout=300,
                output_hook=lambda m: messages.append({"type": m["msg_type"], **m["content"]}),
            )
            assert reply["content"]["status"] == "ok", reply["content"]
            return [message for message in messages if message["type"] not in ("status", "execute_input")]

        yield run


def test_the_module_runs_on_an_old_python_without_packages():
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names


def test_a_missing_package_is_named_with_the_command_that_installs_it():
    program = f"import sys; sys.path.insert(0, {str(REPO_ROOT)!r}); import landfall_runtime as r; r.output.clear()"
    result = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True)
    assert "ImportError: " in result.stderr
    assert result.stderr.endswith("pip install ipython\n")


@pytest.mark.parametrize(
    "name, parameters",
    [
        ("files.upload", "target_dir"),
        ("files.upload_file", "filename"),
        ("files.download", "filename"),
        ("files.view", "filepath"),
        ("drive.mount", "mountpoint force_remount timeout_ms readonly"),
        ("userdata.get", "key"),
        ("auth.authenticate_user", "clear_output project_id"),
        ("auth.authenticate_service_account", "clear_output"),
        ("patches.cv2_imshow", "a"),
        ("output.clear", "wait output_tags"),
        ("output.eval_js", "script ignore_result timeout_sec"),
        ("output.register_callback", "function_name callback"),
        ("output.serve_kernel_port_as_window", "port path anchor_text skip_warning"),
        ("output.serve_kernel_port_as_iframe", "port path width height cache_in_notebook"),
        ("widgets.TabBar", "tab_names location"),
        ("widgets.Grid", "rows columns header_row header_column style"),
        ("_message.blocking_request", "request_type request timeout_sec parent"),
        ("ai.generate_text", "prompt model_name stream"),
    ],
)
def test_parameters_are_in_the_order_of_colab(name: str, parameters: str):
    module, function = name.split(".")
    found = list(inspect.signature(getattr(getattr(landfall_runtime, module), function)).parameters)
    assert found[: len(parameters.split())] == parameters.split()


def test_submodules_are_imported_as_in_colab(work: Path):
    namespace: dict[str, Any] = {}
    exec(
        "import landfall_runtime.files\nfrom landfall_runtime.output import eval_js\n"
        "from landfall_runtime.patches import cv2_imshow\nfrom landfall_runtime import userdata as secrets",
        namespace,
    )
    assert namespace["landfall_runtime"].files is files
    assert namespace["eval_js"] is output.eval_js
    assert namespace["cv2_imshow"] is landfall_runtime.cv2_imshow
    assert namespace["secrets"] is userdata


# files.upload


def test_upload_uses_the_files_named_by_the_environment(work, tmp_path, monkeypatch, capsys):
    for name in ("b.csv", "a.csv", "c.txt"):
        (tmp_path / name).write_text(name)
    monkeypatch.setenv("LANDFALL_UPLOAD", os.pathsep.join([str(tmp_path / "c.txt"), "../*.csv"]))
    assert files.upload() == {"c.txt": b"c.txt", "a.csv": b"a.csv", "b.csv": b"b.csv"}
    assert (work / "a.csv").read_text() == "a.csv"
    assert capsys.readouterr().out == "Saving c.txt to c.txt\nSaving a.csv to a.csv\nSaving b.csv to b.csv\n"


def test_upload_uses_the_uploads_folder(work, monkeypatch):
    (work / "uploads").mkdir()
    (work / "uploads" / "data.bin").write_bytes(b"\0\xff")
    (work / "uploads" / ".DS_Store").touch()
    (work / "deep").mkdir()
    monkeypatch.chdir(work / "deep")
    assert files.upload() == {"data.bin": b"\0\xff"}
    assert (work / "deep" / "data.bin").read_bytes() == b"\0\xff"


def test_upload_asks_without_named_files(work, tmp_path, monkeypatch):
    (tmp_path / "my file.csv").write_text("x")
    monkeypatch.setattr("builtins.input", lambda prompt: f" {tmp_path / 'my file.csv'} ")
    assert files.upload() == {"my file.csv": b"x"}
    monkeypatch.setattr("builtins.input", lambda prompt: "")
    assert files.upload() == {}


def test_each_of_several_uploads_has_its_own_folder(work, monkeypatch):
    for number, name in ((1, "image.png"), (2, "mask.png")):
        (work / "uploads" / str(number)).mkdir(parents=True)
        (work / "uploads" / str(number) / name).write_text(name)
    image, mask = files.upload(call=1), files.upload(call=2)
    assert (list(image), list(mask)) == (["image.png"], ["mask.png"])
    assert list(files.upload(call=1).values()) == list(image.values()), "the cell runs again"
    files.upload_file("kept.png", call=2)
    assert (work / "kept.png").read_text() == "mask.png"
    with pytest.raises(FileNotFoundError, match=r"uploads.3"):
        files.upload(call=3)
    monkeypatch.setattr("builtins.input", lambda prompt: "uploads/1/image.png" if "call 3" in prompt else "")
    assert list(files.upload(call=3).values()) == list(image.values())
    assert files.upload() == {}, "the folder itself contains no file"


def test_upload_without_an_answer_has_a_hint(work, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"LANDFALL_UPLOAD.*uploads"):
        files.upload()
    monkeypatch.setenv("LANDFALL_UPLOAD", "")
    assert files.upload() == {}
    monkeypatch.setenv("LANDFALL_UPLOAD", "none.csv")
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        files.upload()


@pytest.mark.slow
def test_upload_in_a_kernel_without_input_has_a_hint(shown):
    (message,) = shown(
        "from landfall_runtime import files\ntry:\n    files.upload()\nexcept FileNotFoundError as e:\n    print(e)"
    )
    assert "set the environment variable LANDFALL_UPLOAD" in message["text"]


def test_upload_into_a_folder_and_of_given_paths(work, tmp_path):
    (tmp_path / "a.csv").write_text("x")
    assert files.upload(target_dir="in/raw", paths=[tmp_path / "a.csv"]) == {"in/raw/a.csv": b"x"}
    assert files.upload("in/raw", str(tmp_path / "a.csv")) == {"in/raw/a (1).csv": b"x"}


def test_upload_never_replaces_a_different_file(work, tmp_path, monkeypatch):
    (tmp_path / "data.csv").write_text("new")
    (work / "data.csv").write_text("old")
    assert files.upload(paths=[tmp_path / "data.csv"]) == {"data (1).csv": b"new"}
    assert (work / "data.csv").read_text() == "old"
    assert files.upload(paths=[tmp_path / "data.csv"]) == {"data (2).csv": b"new"}
    monkeypatch.setattr(landfall_runtime, "_uploaded", set())
    assert files.upload(paths=[tmp_path / "data.csv"]) == {"data (1).csv": b"new"}, "a later run takes it up again"


def test_upload_of_an_existing_file_keeps_it(work):
    (work / "data.csv").write_text("x")
    assert files.upload(paths="data.csv") == {"data.csv": b"x"}
    assert files.upload(paths="data.csv") == {"data.csv": b"x"}
    assert [path.name for path in work.iterdir()] == ["data.csv"]


def test_upload_file_accepts_exactly_one_file(work, tmp_path, monkeypatch, capsys):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(name)
    monkeypatch.setenv("LANDFALL_UPLOAD", str(tmp_path / "a.csv"))
    files.upload_file("kept.csv")
    assert (work / "kept.csv").read_text() == "a.csv"
    assert capsys.readouterr().out == f"Saved a.csv to {work}/kept.csv\n"
    for value, problem in ((str(tmp_path / "*.csv"), "Multiple files"), ("", "not been uploaded")):
        monkeypatch.setenv("LANDFALL_UPLOAD", value)
        with pytest.raises(ValueError, match=problem):
            files.upload_file("kept.csv")


# files.download, files.view


def test_download_copies_and_prints_the_path(work, monkeypatch, capsys):
    (work / "out").mkdir()
    (work / "out" / "model.h5").write_text("1")
    files.download("out/model.h5")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"Downloaded to {work / 'downloads' / 'model.h5'}\n")
    monkeypatch.setenv("LANDFALL_DOWNLOADS", str(work / "elsewhere" / "deep"))
    files.download(work / "out" / "model.h5")
    assert (work / "elsewhere" / "deep" / "model.h5").read_text() == "1"


def test_download_never_replaces_a_different_file(work):
    for content in ("1", "2", "1", "2"):
        (work / "model.h5").write_text(content)
        files.download("model.h5")
    found = {path.name: path.read_text() for path in (work / "downloads").iterdir()}
    assert found == {"model.h5": "1", "model (1).h5": "2"}


def test_download_of_a_missing_file_is_an_error(work):
    with pytest.raises(FileNotFoundError, match=r"Cannot find file: none\.h5"):
        files.download("none.h5")
    with pytest.raises(IsADirectoryError, match="make_archive"):
        files.download(".")


def test_view_prints_the_path(work, capsys):
    (work / "a.txt").touch()
    files.view("a.txt")
    assert capsys.readouterr().err == f"See {work / 'a.txt'}\n"
    with pytest.raises(FileNotFoundError):
        files.view("b.txt")


def test_alternative_folder_variables_are_used(work, tmp_path, monkeypatch):
    monkeypatch.setenv("LANDFALL_WORK_DIR", str(tmp_path / "first"))
    monkeypatch.setenv("LANDFALL_DRIVE_DIR", str(tmp_path / "first drive"))
    (work / "a.txt").touch()
    files.download("a.txt")
    drive.mount("gdrive")
    assert (tmp_path / "first" / "downloads" / "a.txt").is_file()
    assert (work / "gdrive").samefile(tmp_path / "first drive")


# userdata


@pytest.mark.parametrize(
    "line, value",
    [
        ("KEY=plain", "plain"),
        ("  export KEY = spaced  ", "spaced"),
        ("KEY=plain # comment", "plain"),
        ("KEY=with#hash", "with#hash"),
        ("KEY='single # $x'  # comment", "single # $x"),
        (r'KEY="a \"quoted\" word\nnext"', 'a "quoted" word\nnext'),
        ('KEY="first\nsecond"', "first\nsecond"),
        ("KEY=", ""),
        ("KEY=a=b==", "a=b=="),
        ("# KEY=no\nKEY=yes", "yes"),
        ("KEY=one\nKEY=two", "two"),
        ("\ufeffKEY=bom\r\nOTHER=x\r\n", "bom"),
        ("nonsense\nKEY=it's", "it's"),
    ],
)
def test_secrets_are_read_from_a_dotenv_file(work, line, value):
    (work / ".env").write_bytes(line.encode())
    assert userdata.get("KEY") == value


def test_the_nearest_dotenv_file_is_read_first(work, monkeypatch):
    (work.parent / ".env").write_text("ABOVE=no\n")
    (work / ".env").write_text("A=work\nB=work\nC=work\n")
    (work / "in" / "deep").mkdir(parents=True)
    (work / "in" / ".env").write_text("A=in\nB=in\n")
    monkeypatch.chdir(work / "in" / "deep")
    monkeypatch.setenv("A", "environment")
    assert [userdata.get(key) for key in "ABC"] == ["environment", "in", "work"]
    with pytest.raises(userdata.SecretNotFoundError):
        userdata.get("ABOVE")
    monkeypatch.chdir(work.parent)
    assert [userdata.get(key) for key in ("C", "ABOVE")] == ["work", "no"], "the current folder's own, too"


def test_a_missing_secret_raises_the_error_of_colab(work, capsys):
    (work / ".env").write_text("OTHER=hidden-value\n")
    with pytest.raises(userdata.SecretNotFoundError, match=r"Secret TOKEN does not exist.*environment variable.*\.env"):
        userdata.get("TOKEN")
    for key in ("", None, 3, "two words"):
        with pytest.raises(ValueError):
            userdata.get(key)
    userdata.get("OTHER")
    assert "hidden-value" not in "".join(capsys.readouterr())
    assert issubclass(userdata.SecretNotFoundError, landfall_runtime.errors.Error)
    assert issubclass(userdata.SecretNotFoundError, ModuleNotFoundError), "the author's way without Colab is taken"
    for exception in (userdata.NotebookAccessError, userdata.TimeoutException):
        assert "TOKEN" in str(exception("TOKEN"))


# drive


def test_the_drive_is_a_folder_under_both_names(work, capsys):
    drive.mount(str(work / "drive"))
    assert capsys.readouterr() == (f"Mounted at {work / 'drive'}\n", "")
    (work / "drive" / "a.txt").write_text("x")
    assert (work / "drive" / "MyDrive" / "a.txt").read_text() == "x"
    assert (work / "drive" / "My Drive" / "a.txt").read_text() == "x"
    drive.mount(str(work / "drive"), force_remount=True)
    drive.flush_and_unmount()
    assert sorted(path.name for path in (work / "drive").iterdir()) == ["My Drive", "MyDrive", "a.txt"]


def test_another_mount_point_becomes_a_link(work, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DRIVE_DIR", str(tmp_path / "my data"))
    (work / "empty").mkdir()
    for name in ("gdrive", "empty"):
        drive.mount(name)
        (work / name / "MyDrive" / "a.txt").write_text(name)
        assert (tmp_path / "my data" / "a.txt").read_text() == name
    assert capsys.readouterr().err == ""


def test_a_mount_point_with_content_is_kept(work, tmp_path, capsys):
    (work / "gdrive").mkdir()
    (work / "gdrive" / "mine.txt").touch()
    for place in (work / "gdrive", tmp_path / "none" / "gdrive"):
        drive.mount(str(place))
        said = capsys.readouterr()
        assert (said.out, str(work / "drive") in said.err, "DRIVE_DIR" in said.err) == ("", True, True)
    assert [path.name for path in (work / "gdrive").iterdir()] == ["mine.txt"]
    assert not (tmp_path / "none").exists()


def test_a_machine_without_links_continues_with_a_message(work, monkeypatch, capsys):
    def refuse(*arguments: Any, **options: Any) -> None:
        raise OSError(1314, "A required privilege is not held by the client")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    drive.mount("gdrive")
    assert (work / "drive").is_dir()
    assert capsys.readouterr().err.count("required privilege") == 3


def test_a_folder_that_has_a_my_drive_keeps_it(work):
    (work / "MyDrive").mkdir()
    landfall_runtime.link_my_drive(work)
    assert not (work / "MyDrive").is_symlink()
    assert (work / "My Drive").samefile(work)


# auth


@pytest.fixture
def no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("APPDATA", str(tmp_path / "settings"))
    monkeypatch.setitem(sys.modules, "google.auth", None)
    return tmp_path


def test_signing_in_warns_with_the_command(no_credentials, monkeypatch):
    with pytest.warns(UserWarning, match="gcloud auth application-default login"):
        auth.authenticate_user(project_id="plant")
    assert os.environ["GOOGLE_CLOUD_PROJECT"] == os.environ["GOOGLE_CLOUD_QUOTA_PROJECT"] == "plant"
    with pytest.warns(UserWarning, match="GOOGLE_APPLICATION_CREDENTIALS"):
        auth.authenticate_service_account()
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(no_credentials / "none.json"))
    with pytest.warns(UserWarning, match="no Google credentials"):
        auth.authenticate_user()


@pytest.mark.parametrize("kind", ["named", "gcloud", "google.auth"])
def test_signing_in_with_credentials_does_nothing(no_credentials, monkeypatch, kind, capsys):
    if kind == "named":
        (no_credentials / "key.json").touch()
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(no_credentials / "key.json"))
    elif kind == "gcloud":
        (no_credentials / "settings" / "gcloud").mkdir(parents=True)
        (no_credentials / "settings" / "gcloud" / "application_default_credentials.json").touch()
    else:
        monkeypatch.setitem(sys.modules, "google.auth", types.SimpleNamespace(default=lambda: ("credentials", "plant")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        auth.authenticate_user()
        auth.authenticate_service_account()
    assert capsys.readouterr() == ("", "")


# what shows something


@pytest.mark.parametrize(
    "array, mode, pixel",
    [
        ("np.full((2, 3), 7)", "L", 7),
        ("np.full((2, 3, 1), 300.0)", "L", 255),
        ("np.full((2, 3, 3), [1, 2, -3])", "RGB", (0, 2, 1)),
        ("np.full((2, 3, 4), [1, 2, 3, 128], dtype='uint8')", "RGBA", (3, 2, 1, 128)),
        ("np.full((4, 6, 3), [1.9, 2.0, 999.0])[::2, ::2]", "RGB", (255, 2, 1)),
    ],
)
def test_an_image_is_shown_in_the_right_colours(shown, array, mode, pixel):
    (message,) = shown(f"import numpy as np\nfrom landfall_runtime import cv2_imshow\ncv2_imshow({array})")
    encoded = message["data"]["image/png"]
    image = PIL.Image.open(io.BytesIO(b64decode(encoded)))
    assert (image.mode, image.size) == (mode, (3, 2))
    assert {image.getpixel((x, y)) for x in range(3) for y in range(2)} == {pixel}


def test_an_image_of_a_wrong_shape():
    with pytest.raises(ValueError, match=r"this array has \(2, 3, 2\)"):
        landfall_runtime.cv2_imshow(np.zeros((2, 3, 2)))


def test_a_table_is_shown_as_a_plain_table(shown):
    (message,) = shown(
        "import pandas as pd\nfrom landfall_runtime import data_table\ndata_table.enable_dataframe_formatter()\n"
        "data_table._DEFAULT_FORMATTERS[float] = str\n"
        "frame = pd.DataFrame({'a': [1]})\ndata_table.DataTable(frame, True, num_rows_per_page=5)"
    )
    (plain,) = shown("frame")
    assert message["data"] == plain["data"]
    assert shown("%load_ext landfall_runtime.data_table") == []


def test_the_output_is_cleared(shown):
    (message,) = shown("import landfall_runtime as r\nr.output.clear(wait=True)")
    assert (message["type"], message["wait"]) == ("clear_output", True)
    assert shown("with r.output.use_tags('a'):\n    print(1)\nr.output.clear(output_tags='a')")[0]["text"] == "1\n"


def test_ports_are_local(shown):
    window, frame = shown(
        "from landfall_runtime import output\noutput.serve_kernel_port_as_window(8000, '/docs', anchor_text='Docs')\n"
        "output.serve_kernel_port_as_iframe(8000, height=300)"
    )
    assert window["data"]["text/html"] == '<a href="http://localhost:8000/docs" target="_blank">Docs</a>'
    assert 'src="http://localhost:8000/"' in frame["data"]["text/html"]
    assert output.eval_js("google.colab.kernel.proxyPort(5000, {'cache': false})") == "http://localhost:5000/"


def test_javascript_without_a_result_is_displayed(shown):
    (message,) = shown("__import__('landfall_runtime').output.eval_js('alert(1)', ignore_result=True)")
    assert message["data"]["application/javascript"] == "alert(1)"
    assert shown("__import__('landfall_runtime').output.eval_js('google.colab.x()', ignore_result=True)") == []
    with pytest.raises(_message.MessageError, match=r"input\(\), ipywidgets"):
        output.eval_js("takePhoto(0.8)")


def test_callbacks_are_kept_by_name():
    output.register_callback("notebook.add", lambda a, b=1: a + b)
    assert output.invoke_function("notebook.add", [1], {"b": 3}) == 4
    output.unregister_callback("notebook.add")
    for call in (output.invoke_function, output.unregister_callback):
        with pytest.raises(ValueError, match=r"notebook\.add"):
            call("notebook.add")


def test_output_areas_become_sections(shown):
    messages = shown(
        "from landfall_runtime import widgets\ntabs = widgets.TabBar(['evening', 'morning'])\n"
        "with tabs.output_to('morning'):\n    print('bye')\nfor n in tabs:\n    print(n)\n"
        "with widgets.Grid(2, 2).output_to(1, 0):\n    print('cell')\n"
    )
    said = [message.get("text") or message["data"]["text/plain"] for message in messages]
    assert said == ["morning", "bye\n", "evening", "0\n", "morning", "1\n", "row 1, column 0", "cell\n"]
    with pytest.raises(landfall_runtime.errors.WidgetException, match=r"\(2, 0\)"):
        widgets.Grid(2, 2).output_to(2, 0)
    with pytest.raises(ValueError):
        widgets.TabBar(["a"], location="left")
    with pytest.raises(ValueError):
        widgets.TabBar(["a"]).output_to("b")


# what only Colab has


def test_colab_only_features_raise_with_a_hint(capsys):
    runtime.unassign()
    assert "kernel" in capsys.readouterr().err
    with pytest.raises(_message.MessageError, match=r"get_ipynb.*nbformat\.read"):
        _message.blocking_request("get_ipynb")
    for call in (lambda: ai.generate_text("hello"), ai.list_models):
        with pytest.raises(ai.ModelProxyServiceError, match="your own key"):
            call()
    assert landfall_runtime.syntax.sql("select 1") == "select 1"
    assert landfall_runtime.snippets.register("https://example.org") is None
