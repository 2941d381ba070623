import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

import migration.batch as batch
from migration.batch import Options, migrate_file, run_tasks
from migration.planning import Task, make_plan
from tests.migration.made_notebooks import code, markdown, save
from tests.support import REPO_ROOT

UPLOAD = "from google.colab import files\nuploaded = files.upload()\nprint(list(uploaded))"


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def task(path: Path, **fields) -> Task:
    return Task(path, path.with_name(f"local_{path.name}"), path.stat().st_size, **fields)


def one(path: Path, **options):
    return migrate_file(task(path), Options(**options)).report


def files() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def sources(path: str) -> list[str]:
    return [cell["source"] for cell in nbformat.read(path, as_version=4)["cells"]]


def test_a_notebook_is_written_and_its_input_is_unchanged():
    path = save(Path("a.ipynb"), markdown("# A"), code("open('/content/x.txt')"), accelerator="GPU")
    before = path.read_bytes()
    report = one(path)
    assert (report.status, report.input, report.output) == ("migrated", "a.ipynb", "local_a.ipynb")
    assert report.sha256 == hashlib.sha256(before).hexdigest()
    assert report.hardware == "GPU"
    assert report.changes >= 2
    assert sum(report.rules.values()) == sum(report.keeps.values()) >= report.changes
    assert path.read_bytes() == before
    nbformat.validate(nbformat.read("local_a.ipynb", as_version=4))
    assert not any("/content" in source for source in sources("local_a.ipynb"))


def test_pipes_and_devices_are_rejected():
    os.mkfifo("pipe.ipynb")
    Path("device.ipynb").symlink_to("/dev/zero")
    for name in ("pipe.ipynb", "device.ipynb"):
        report = one(Path(name))
        assert report.status == "failed"
        assert "regular file" in report.error
    assert files() == ["device.ipynb", "pipe.ipynb"]


def test_a_second_migration_of_the_input_writes_nothing():
    path = save(Path("a.ipynb"), code("!pip install numpy==1.26\n%cd /content"))
    first = one(path)
    stamps = {name: Path(name).stat().st_mtime_ns for name in (first.output, *first.files)}
    assert one(path) == first
    assert {name: Path(name).stat().st_mtime_ns for name in stamps} == stamps


def test_a_migrated_notebook_is_recognised_as_local():
    save(Path("a.ipynb"), code("x = '/content/x'"))
    one(Path("a.ipynb"))
    local = Path("local_a.ipynb")
    assert migrate_file(task(local, copies=False), Options()).report.output is None
    report = migrate_file(task(local, copies=True), Options()).report
    assert (report.status, report.output) == ("unchanged", "local_local_a.ipynb")
    assert Path("local_local_a.ipynb").read_bytes() == local.read_bytes()


def test_a_notebook_without_changes_keeps_its_layout():
    save(Path("a.ipynb"), code("x = 1"))
    one(Path("a.ipynb"))
    local = Path("local_a.ipynb")
    local.write_text(json.dumps(json.loads(local.read_bytes()), indent=4), encoding="utf-8")
    report = migrate_file(task(local, copies=True), Options()).report
    assert (report.status, report.output) == ("unchanged", "local_local_a.ipynb")
    assert Path("local_local_a.ipynb").read_bytes() == local.read_bytes()


@pytest.mark.parametrize("occupied", ["local_a.ipynb", "local_a.requirements.txt", "landfall_runtime.py"])
def test_existing_outputs_are_kept_unless_forced(occupied):
    path = save(Path("a.ipynb"), code("!pip install numpy==1.26"), code(UPLOAD))
    Path(occupied).write_text("mine", encoding="utf-8")
    report = one(path)
    assert report.status == "failed"
    assert report.error == f"{occupied} exists and differs — --force overwrites it"
    assert Path(occupied).read_text(encoding="utf-8") == "mine"
    assert files() == sorted(["a.ipynb", occupied])
    assert one(path, force=True).status == "migrated"
    assert Path(occupied).read_text(encoding="utf-8") != "mine"


def test_requirements_are_written_next_to_the_output():
    cells = code("!pip install -q 'numpy==1.26.4' requests[socks]"), code("!apt-get install -y ffmpeg")
    report = one(save(Path("a.ipynb"), *cells))
    assert report.requirements.system == ("ffmpeg",)
    lines = Path("local_a.requirements.txt").read_text(encoding="utf-8").splitlines()
    assert {"numpy==1.26.4", "requests[socks]"} <= set(lines)
    assert lines[0].endswith("pip install -r local_a.requirements.txt")
    assert "ffmpeg" in Path("local_a.system-requirements.txt").read_text(encoding="utf-8").split()
    assert report.files == ("local_a.requirements.txt", "local_a.system-requirements.txt")


def test_a_program_of_colab_is_a_system_requirement():
    report = one(save(Path("a.ipynb"), code("!ffmpeg -i /content/a.mp4 b.wav")))
    assert report.requirements.system == ("ffmpeg",)
    assert Path("local_a.system-requirements.txt").read_text(encoding="utf-8").splitlines()[-1] == "ffmpeg"


def test_the_report_names_packages_without_the_comments_of_the_file():
    report = one(save(Path("a.ipynb"), code("!pip install numpy==1.26.4"), code("import cv2\nopen('/content/x')")))
    assert "# Imported" in Path("local_a.requirements.txt").read_text(encoding="utf-8")
    assert report.requirements.python == ("numpy==1.26.4", "opencv-python")


def test_the_report_says_where_uploads_go():
    assert "`uploads`" in one(save(Path("a.ipynb"), code(UPLOAD))).uploads
    assert "`uploads/1`" in one(save(Path("b.ipynb"), code(UPLOAD), code(UPLOAD))).uploads
    assert one(save(Path("c.ipynb"), code("x = '/content/x'"))).uploads == ""


def test_a_notebook_without_installs_has_no_requirements_file():
    one(save(Path("a.ipynb"), code("x = '/content/x'")))
    assert files() == ["a.ipynb", "local_a.ipynb"]


def test_the_runtime_module_is_copied_unless_landfall_is_installed():
    report = one(save(Path("a.ipynb"), code(UPLOAD)))
    assert report.files == ("landfall_runtime.py",)
    assert Path("landfall_runtime.py").read_bytes() == (REPO_ROOT / "landfall_runtime.py").read_bytes()
    for folder in ("work/configs/local", "work/configs/trainer"):
        Path(folder).mkdir(parents=True)
    assert one(save(Path("work/notebooks/b.ipynb"), code(UPLOAD))).files == ()


def test_checking_and_comparing_write_nothing():
    path = save(Path("a.ipynb"), code("x = 1\ny = '/content/x'"))
    for options in (Options(mode="check", details=True), Options(mode="diff", diff=True)):
        result = migrate_file(Task(path, None, 0), options)
        assert result.report.output is None
        assert files() == ["a.ipynb"]
    assert "a.ipynb:cell 0" in result.diff
    assert "-y = '/content/x'" in result.diff.splitlines()
    assert "-x = 1" not in result.diff.splitlines()


def test_checking_counts_what_only_colab_has():
    path = save(Path("a.ipynb"), code("key = input()\n!sudo ls"))
    plain = json.loads(path.read_text(encoding="utf-8"))
    plain["metadata"].pop("colab")
    plain["cells"][0]["metadata"] = {}
    path.write_text(json.dumps(plain), encoding="utf-8")
    assert migrate_file(Task(path, None, 0), Options(mode="check")).report.findings == ()
    strict = migrate_file(Task(path, None, 0), Options(mode="check", strict=True)).report
    assert {"LF822", "LF811"} <= set(strict.rules)
    assert strict.hazards[0].rule == "LF822"


def test_a_finding_has_its_line_in_the_file():
    path = save(Path("a.ipynb"), markdown("# A"), code("x = 1\ny = '/content/x'"))
    report = migrate_file(Task(path, None, 0), Options(mode="check", details=True)).report
    (found,) = [item for item in report.findings if "/content" in item.before]
    assert (found.cell, found.line) == (1, 2)
    assert "/content/x" in path.read_text(encoding="utf-8").splitlines()[found.file_line - 1]


def test_only_manual_steps_are_kept_without_details():
    path = save(Path("a.ipynb"), code("x = '/content/x'\n!sudo rm -rf /opt/thing"))
    report = one(path)
    assert report.changes > 0
    assert {item.keeps for item in report.findings} == {"needs-human"}
    assert len(migrate_file(task(path), Options(force=True, details=True)).report.findings) > len(report.findings)


SECRET = "hf_" + "Qz7Rk2Wm9Xv4Tb6Lp1Nc8Yd3Gh5Js0AfEu"


def test_secrets_are_reported_by_place_and_kind_and_are_nowhere_else():
    stream = {"output_type": "stream", "name": "stdout", "text": [f"using {SECRET}\n"]}
    cells = code("x = 1"), code(f"print()\ntoken = '{SECRET}'", outputs=[stream])
    path = save(Path("a.ipynb"), *cells)
    result = migrate_file(task(path), Options(details=True, diff=True))
    assert (1, 2) in [(place.cell, place.line) for place in result.report.secrets]
    assert "Hugging Face token" in result.report.secrets[0].kind
    assert SECRET not in repr(result)
    assert SECRET not in Path("local_a.ipynb").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "data, expected",
    [
        (b"", "empty"),
        (b"not json", "not a notebook"),
        (b"[1]", "not a notebook"),
        (b"PK\x03\x04", "ZIP"),
        (b"{}", "no cells"),
    ],
)
def test_an_invalid_notebook_fails_in_one_line_without_the_path(data, expected):
    folder = Path("deep") / "down"
    folder.mkdir(parents=True)
    path = (folder / "a.ipynb").absolute()
    path.write_bytes(data)
    report = one(path)
    assert (report.status, report.input, report.sha256) == ("failed", "deep/down/a.ipynb", None)
    assert expected in report.error
    assert "\n" not in report.error
    assert str(path) not in report.error


def test_an_unwritable_output_fails_in_one_line():
    path = save(Path("a.ipynb"), code("x = '/content/x'"))
    Path("file").touch()
    report = migrate_file(Task(path, Path("file/a.ipynb"), 0), Options()).report
    assert report.status == "failed"
    assert "file" in report.error
    Path("local_a.ipynb").mkdir()
    assert one(path, force=True).status == "failed"


def test_an_internal_error_is_one_line(monkeypatch):
    def fail(*arguments, **options):
        raise ValueError(f"a\n{SECRET}")

    monkeypatch.setattr(batch, "migrate", fail)
    report = one(save(Path("a.ipynb"), code("x = 1")))
    assert "a bug in Landfall" in report.error
    assert ": ValueError: a " in report.error
    assert SECRET not in report.error


@pytest.mark.slow
def test_several_processes_give_the_same_result_as_one():
    for number in range(5):
        save(Path(f"nb/{number}.ipynb"), code(f"x = '/content/{number}'"), code("!pip install numpy"))
    Path("nb/bad.ipynb").write_text("nonsense", encoding="utf-8")
    output: list[str] = []
    results = {}
    for jobs in (1, 2):
        plan = make_plan([Path("nb")], out_dir=Path("out"))
        results[jobs] = run_tasks(plan.tasks, Options(), jobs=jobs, on_done=lambda task: output.append(task.input.name))
        assert sorted(output) == sorted(task.input.name for task in plan.tasks)
        output.clear()
    assert results[1] == results[2]
    assert [result.report.status for result in results[1]] == ["migrated"] * 5 + ["failed"]


@pytest.mark.slow
def test_several_processes_in_a_notebook_whose_names_were_reset(monkeypatch):
    """`%reset` empties the module that multiprocessing reads."""
    emptied = ModuleType("__main__")
    vars(emptied).clear()
    monkeypatch.setitem(sys.modules, "__main__", emptied)
    tasks = [task(save(Path(f"{number}.ipynb"), code("x = 1"))) for number in range(2)]
    assert [result.report.status for result in run_tasks(tasks, Options(), jobs=2)] == ["migrated"] * 2


def test_few_small_notebooks_need_no_processes(monkeypatch):
    monkeypatch.setattr(batch, "usable_cores", lambda: 8)
    small, large = Task(Path("a"), None, 1000), Task(Path("b"), None, 20_000_000)
    assert batch._suitable_jobs([small] * 15) == 1
    assert batch._suitable_jobs([small] * 16) == 8
    assert batch._suitable_jobs([small, large]) == 2


def end_process_at_the_second(task: Task, options: Options):
    if task.input.name == "2.ipynb":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    return migrate_file(task, options)


@pytest.mark.nightly
@pytest.mark.skipif(os.name == "nt", reason="no such signal")
def test_a_killed_process_loses_one_notebook(monkeypatch):
    tasks = [task(save(Path(f"{number}.ipynb"), code("x = 1"))) for number in range(4)]
    monkeypatch.setattr(batch, "migrate_file", end_process_at_the_second)
    statuses = [result.report.status for result in run_tasks(tasks, Options(), jobs=2)]
    assert statuses == ["migrated", "migrated", "failed", "migrated"]


def test_a_reverted_rewrite_is_reported(monkeypatch):
    """If a rule fails, the notebook is written and the report names the unchanged cell."""
    monkeypatch.setattr("migration.migrate._broke", lambda *arguments: True)
    report = one(save(Path("a.ipynb"), code("x = '/content/x'")))
    assert [(item.rule, item.cell, item.keeps) for item in report.findings] == [("LF902", 0, "needs-human")]
    assert sources("local_a.ipynb")[-1] == "x = '/content/x'"
