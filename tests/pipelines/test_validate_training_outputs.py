"""The checklist on a real finished run: it passes, and each single damage fails only its own check."""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pandas as pd
import pytest
import torch
import yaml

from core.config.compose import load_config
from core.devices.capabilities import DeviceCapabilities
from core.devices.detect import SystemDetector
from core.errors import EXIT_OK, EXIT_OUTPUT, EXIT_USAGE, UsageError
from inference.run_scoring_example import score_stream
from pipelines.checklist import GROUP_TITLES, Item
from pipelines.checks import environment, runtime, static
from pipelines.checks.base import Check, CheckFailed, CheckSkipped, CheckWarned, Context
from pipelines.stream_configs import configs_in_use
from pipelines.validate_training_outputs import main
from tests.support import most_nightly
from tests.support.small_workspace import CONFIGS, PIPELINE_ARGUMENTS, RUN_ID

Damage = Callable[[Path], object]


def run(root: Path, *arguments: str) -> int:
    return main([*PIPELINE_ARGUMENTS, "--repo-root", str(root), *arguments])


def items_of(root: Path) -> dict[str, Item]:
    report = json.loads((root / "artifacts/validation_report.json").read_text(encoding="utf-8"))
    return {item["id"]: Item(**item) for item in report["items"]}


def with_status(root: Path, status: str) -> set[str]:
    return {item.id for item in items_of(root).values() if item.status == status}


def context_of(root: Path) -> Context:
    return Context(root, *configs_in_use(CONFIGS, (), root))


# ------------------------------------------------------------------------------------------------------------- all well
@pytest.mark.nightly
def test_a_finished_run_passes_every_check_and_only_the_report_is_written(copied, capsys):
    def contents() -> dict[Path, bytes]:
        looked_at = ("artifacts", "checkpoints", "data", "notebooks", "runs", "training_dashboard/data")
        files = (path for folder in looked_at for path in (copied / folder).rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in files if path.name != "validation_report.json"}

    before = contents()
    assert run(copied) == EXIT_OK
    assert contents() == before
    assert {item.status for item in items_of(copied).values()} == {"PASS"}
    assert {item.group for item in items_of(copied).values()} == {"V-01", "V-02", "V-03"}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Checklist: 29 passed, 0 failed, 0 warnings, 0 skipped"
    assert [line.partition(":")[0][4:] for line in lines[1:]] == list(GROUP_TITLES.values())


@pytest.mark.nightly
def test_every_check_but_the_smoke_test_is_printed_on_request(copied, capsys):
    assert run(copied, "--verbose", "--skip-smoke") == EXIT_OK
    printed = capsys.readouterr().out
    assert all(f"PASS  {item.title}: {item.detail}" in printed for item in items_of(copied).values())
    assert len(items_of(copied)) == 25
    assert not [identity for identity in items_of(copied) if "smoke" in identity or "collapse" in identity]


def test_failures_are_first_and_named_in_the_error(copied, runtime_only, capsys):
    remove("artifacts/scaler_patchtst.json")(copied)
    remove("artifacts/notebooks/*/*.ipynb")(copied)
    assert run(copied, "--skip-smoke") == EXIT_OUTPUT
    printed, error = capsys.readouterr()
    assert [line.split()[1] for line in printed.splitlines() if line.startswith("  ") and "→" not in line] == [
        "FAIL", "SKIP", "SKIP", "Outputs"
    ]  # fmt: skip
    assert (
        "1 of 19 checks failed: Scaler, patchtst: artifacts/scaler_patchtst.json is missing" in error.splitlines()[-1]
    )


def test_stdout_contains_only_json(copied, capsys):
    assert run(copied, "--json", "--skip-smoke") == EXIT_OK
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((copied / "artifacts/validation_report.json").read_text(encoding="utf-8"))
    assert (printed["schema_version"], printed["passed"]) == (1, True)


def test_a_missing_configuration_is_a_usage_error(copied, capsys):
    assert main(["--repo-root", str(copied), "--patch-config", "configs/none.yaml"]) == EXIT_USAGE
    assert "configs/none.yaml does not exist" in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------------- single damage
@pytest.fixture
def runtime_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips the checks that do not check outputs of a run."""
    for module in (environment, static):
        monkeypatch.setattr(module, "CHECKS", ())


def remove(pattern: str) -> Damage:
    return lambda root: [path.unlink() for path in _found(root, pattern)]


def tear_last_row(root):
    """A file cut inside a number or at a line's end may still be a table: this one ends at a comma."""
    path = root / LOSS_CSV
    path.write_text(path.read_text().rpartition(",")[0] + ",")


def cut(pattern: str) -> Damage:
    return lambda root: [
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]) for path in _found(root, pattern)
    ]


def replace(pattern: str, content: str) -> Damage:
    return lambda root: [path.write_text(content, encoding="utf-8") for path in _found(root, pattern)]


def _found(root: Path, pattern: str) -> list[Path]:
    found = list(root.glob(pattern))
    assert found, f"nothing to damage: {pattern}"
    return found


def change_json(file: str, change: Callable[[dict], object]) -> Damage:
    def damage(root: Path) -> None:
        value = json.loads((root / file).read_text(encoding="utf-8"))
        change(value)
        (root / file).write_text(json.dumps(value), encoding="utf-8")

    return damage


LOSS_CSV = "artifacts/loss/patchtst_loss_history.csv"


def set_losses(root: Path, losses: list[tuple[float, float]], *, also_in_log: bool = True) -> None:
    """Sets other losses (training, validation) in each epoch."""
    with (root / LOSS_CSV).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row, (train_loss, val_loss) in zip(rows, losses, strict=True):
        row |= {"train_loss": train_loss, "val_loss": val_loss}
    with (root / LOSS_CSV).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    metrics = root / "runs/patchtst_ssl" / RUN_ID / "metrics.jsonl"
    records = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    epochs = iter(losses)
    for record in records if also_in_log else ():
        if record["kind"] == "epoch":
            record["train_loss"], record["val_loss"] = (None if math.isnan(loss) else loss for loss in next(epochs))
    metrics.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def take_the_last_for_the_best(root: Path) -> None:
    for suffix in ("pt", "json"):
        shutil.copy(root / f"checkpoints/patchtst_ssl.last.{suffix}", root / f"checkpoints/patchtst_ssl.{suffix}")


def flip_an_alarm(root: Path) -> None:
    path = root / "artifacts/scores/patchtst_scores.parquet"
    frame = pd.read_parquet(path)
    frame.loc[0, "alarm"] = not frame.loc[0, "alarm"]
    frame.to_parquet(path, index=False)


def keep_no_event(root: Path) -> None:
    path = root / "artifacts/scores/patchtst_events.csv"
    path.write_text(path.read_text(encoding="utf-8").splitlines()[0] + "\n", encoding="utf-8")


def change_notebook(change: Callable[[nbformat.NotebookNode], object]) -> Damage:
    """Changes the last code cell of an executed notebook."""

    def damage(root: Path) -> None:
        path = root / "artifacts/notebooks" / RUN_ID / "local_patchtst_ssl.ipynb"
        notebook = nbformat.read(path, as_version=4)
        change([cell for cell in notebook.cells if cell.cell_type == "code"][-1])
        nbformat.write(notebook, path)

    return damage


def change_model(root: Path) -> None:
    path = root / CONFIGS["patchtst"]
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    values["model"]["d_ff"] = 64
    path.write_text(yaml.safe_dump(values), encoding="utf-8")


NAN = float("nan")
ERROR = nbformat.v4.new_output("error", ename="ValueError", evalue="no\nno", traceback=[])
DAMAGES: dict[str, tuple[Damage, str]] = {
    "checkpoint truncated": (cut("checkpoints/patchtst_ssl.pt"), "checkpoint"),
    "checkpoint gone": (remove("checkpoints/patchtst_ssl.pt"), "checkpoint"),
    "sidecar gone": (remove("checkpoints/patchtst_ssl.json"), "checkpoint"),
    "sidecar torn": (cut("checkpoints/patchtst_ssl.json"), "checkpoint"),
    "model configured otherwise": (change_model, "checkpoint"),
    "rising loss": (lambda root: set_losses(root, [(0.4, 0.4), (0.5, 0.5), (0.6, 0.6)]), "loss"),
    "loss that ends where it began": (lambda root: set_losses(root, [(0.4, 0.4), (0.3, 0.3), (0.4, 0.4)]), "loss"),
    "loss of NaN": (lambda root: set_losses(root, [(0.6, 0.6), (0.5, 0.5), (NAN, NAN)]), "loss"),
    "CSV row changed": (
        lambda root: set_losses(root, [(0.6, 0.6), (0.5, 0.5), (0.4, 0.4)], also_in_log=False), "loss-artifacts"
    ),
    "CSV gone": (remove(LOSS_CSV), "loss loss-artifacts tensorboard"),
    "CSV torn": (tear_last_row, "loss loss-artifacts tensorboard"),
    "PNG cut": (cut("artifacts/loss/patchtst_loss_curve.png"), "loss-artifacts"),
    "scaler changed": (
        change_json("artifacts/scaler_patchtst.json", lambda scaler: scaler["scale"].reverse()), "scaler"
    ),
    "scaler of no run": (
        change_json("artifacts/scaler_patchtst.json", lambda scaler: scaler.update(run_id=["../../x"])), "scaler"
    ),
    "scaler gone": (remove("artifacts/scaler_patchtst.json"), "scaler"),
    "scaler torn": (cut("artifacts/scaler_patchtst.json"), "scaler"),
    "TensorBoard events deleted": (remove("runs/patchtst_ssl/*/events.out.tfevents.*"), "tensorboard"),
    "quality report deleted": (remove("artifacts/dqvl/fdc/train_1.csv.*.json"), "quality"),
    "quality report torn": (cut("artifacts/dqvl/fdc/train_1.csv.*.json"), "quality"),
    "data gone": (remove("data/fdc/train_*.csv"), "quality"),
    "scores from another checkpoint": (take_the_last_for_the_best, "scores"),
    "alarm changed": (flip_an_alarm, "scores"),
    "events removed": (keep_no_event, "scores"),
    "scores torn": (cut("artifacts/scores/patchtst_scores.parquet"), "scores"),
    "summary torn": (cut("artifacts/scores/patchtst_summary.json"), "scores"),
    "timeline cut": (cut("artifacts/scores/patchtst_timeline.png"), "scores"),
    "notebook with an error": (change_notebook(lambda cell: cell.outputs.append(ERROR)), "notebook"),
    "notebook torn": (cut(f"artifacts/notebooks/{RUN_ID}/local_patchtst_ssl.ipynb"), "notebook"),
    "notebook that stopped": (change_notebook(lambda cell: cell.update(execution_count=None)), "notebook"),
}  # fmt: skip


def test_a_folder_without_permission_fails_its_check_without_a_traceback(tmp_path, caplog):
    def read(context):
        raise PermissionError(errno.EACCES, "Permission denied", f"{tmp_path}/runs/first")

    (item,) = Check("x", "V-03", "Runs", read).items(SimpleNamespace(root=tmp_path))
    assert (item.status, item.detail) == ("FAIL", "runs/first: Permission denied")
    assert "owner" in item.hint
    assert not caplog.records


@pytest.mark.parametrize("name", most_nightly(DAMAGES, but=4))
def test_each_damage_fails_only_its_check(copied, runtime_only, name, caplog):
    damage, checks = DAMAGES[name]
    damage(copied)
    assert run(copied, "--skip-smoke") == EXIT_OUTPUT
    assert with_status(copied, "FAIL") == {f"V-03.{check}.patchtst" for check in checks.split()}
    for item in items_of(copied).values():
        assert str(copied) not in item.detail
        assert "\n" not in item.detail
        assert bool(item.hint) == (item.status != "PASS")
    assert not [record for record in caplog.records if record.exc_info], "a check crashed"


@pytest.mark.parametrize(("better", "warned"), [(True, {"V-03.newest.patchtst"}), (False, set())])
def test_a_newer_run_that_is_not_the_model_is_a_warning_unless_it_is_worse(copied, runtime_only, better, warned):
    newer = copied / "runs/patchtst_ssl/newer"
    shutil.copytree(copied / "runs/patchtst_ssl" / RUN_ID, newer)
    described = json.loads((newer / "model.json").read_text())
    loss = described["val_loss"] * (0.5 if better else 2)
    (newer / "model.json").write_text(json.dumps({**described, "run_id": "newer", "val_loss": loss}))
    scaler = copied / "artifacts/scaler_patchtst.json"
    scaler.write_text(json.dumps({**json.loads(scaler.read_text()), "run_id": "newer"}))
    assert run(copied, "--skip-smoke") == EXIT_OK
    assert with_status(copied, "WARN") == warned
    item = items_of(copied)["V-03.newest.patchtst"]
    assert "newer" in (item.hint if better else item.detail)


@pytest.mark.parametrize("damage", [cut, remove, lambda file: replace(file, '{"schema_version": 2}')])
def test_a_damaged_dashboard_fails_unless_it_is_only_absent(copied, runtime_only, damage):
    damage("training_dashboard/data/dashboard-state.json")(copied)
    run(copied, "--skip-smoke")
    assert with_status(copied, "FAIL") == (set() if damage is remove else {"V-03.dashboard"})


def test_checks_that_need_a_failed_checkpoint_are_skipped(copied, runtime_only):
    cut("checkpoints/patchtst_ssl.pt")(copied)
    assert run(copied) == EXIT_OUTPUT
    resting = ("newest", "loss-artifacts", "scaler", "tensorboard", "scores", "smoke", "collapse")
    assert with_status(copied, "SKIP") == {f"V-03.{check}.patchtst" for check in resting}


@pytest.mark.nightly
def test_scores_of_charts_alone_need_no_model(copied, runtime_only):
    for file in CONFIGS.values():
        score_stream(load_config(file, root=copied), root=copied, detector="charts")
    assert run(copied, "--skip-smoke") == EXIT_OK
    assert with_status(copied, "WARN") == {f"V-03.scores.{stream}" for stream in CONFIGS}, "the model is not used"
    for folder in ("checkpoints", "runs", "artifacts/loss", "artifacts/notebooks"):
        shutil.rmtree(copied / folder)
    assert run(copied) == EXIT_OK
    assert with_status(copied, "PASS") >= {
        f"V-03.{check}.{stream}" for check in ("scores", "quality") for stream in CONFIGS
    }
    assert "V-03.checkpoint.patchtst" in with_status(copied, "SKIP")
    flip_an_alarm(copied)
    assert run(copied) == EXIT_OUTPUT
    assert with_status(copied, "FAIL") == {"V-03.scores.patchtst"}


def test_the_newest_executed_notebook_counts_for_any_run_name(copied, runtime_only):
    failed = copied / "artifacts/notebooks/zz-earlier"
    failed.mkdir()
    now = copied / "artifacts/notebooks" / RUN_ID / "local_patchtst_ssl.ipynb"
    change_notebook(lambda cell: cell.outputs.append(ERROR))(copied)
    now.rename(failed / now.name)
    os.utime(failed / now.name, (1e9, 1e9))  # the clock of a file system has a resolution of milliseconds
    shutil.copy(copied / "artifacts/notebooks" / RUN_ID / "local_swinmae_ssl.ipynb", now)
    assert run(copied, "--skip-smoke") == EXIT_OK


def test_the_notebook_check_is_skipped_without_an_executed_notebook(copied, runtime_only):
    shutil.rmtree(copied / "artifacts/notebooks")
    assert run(copied, "--skip-smoke") == EXIT_OK
    assert with_status(copied, "SKIP") == {"V-03.notebook.patchtst", "V-03.notebook.swinmae"}


# ---------------------------------------------------------------------------------------------------------------- smoke
def scored_as(monkeypatch: pytest.MonkeyPatch, change: Callable[[torch.Tensor, int], torch.Tensor]) -> None:
    """Changes the scores of the smoke check; `change` gets the number of the call."""
    from inference import scoring

    real, calls = scoring.infer_score, iter(range(100))

    def infer_score(*arguments: object) -> tuple[torch.Tensor, dict]:
        score_b, aux = real(*arguments)
        return change(score_b, next(calls) % 3), aux

    monkeypatch.setattr(scoring, "infer_score", infer_score)


BAD_SCORES = {
    "differ the second time": lambda score_b, call: score_b + (call == 1) * 1e-3,
    "depend on the order": lambda score_b, call: score_b + torch.arange(len(score_b)) * 1e-3,
    "are infinite": lambda score_b, call: score_b / 0.0,
    "are never a number": lambda score_b, call: score_b * NAN,
}


@pytest.mark.parametrize("name", BAD_SCORES)
def test_the_smoke_test_detects_wrong_scores(copied, runtime_only, monkeypatch, name):
    scored_as(monkeypatch, BAD_SCORES[name])
    assert run(copied) == EXIT_OUTPUT
    assert with_status(copied, "FAIL") == {"V-03.smoke.patchtst", "V-03.smoke.swinmae"}


def test_a_window_without_a_value_may_have_no_score(copied, runtime_only, monkeypatch):
    def forget_one(score_b: torch.Tensor, call: int) -> torch.Tensor:
        score_b = score_b.clone()
        score_b[-1 if call == 2 else 0] = NAN
        return score_b

    scored_as(monkeypatch, forget_one)
    assert run(copied) == EXIT_OK


# ------------------------------------------------------------------------------------------ environment, static quality
def test_packages_of_another_version_are_named(copied):
    (copied / "requirements.lock").write_text("pytest==0.1\nno-such-package==1.0  # gone\n", encoding="utf-8")
    (copied / "requirements-dev.lock").write_text("ruff==0.1\n", encoding="utf-8")
    assert run(copied, "--skip-smoke") == EXIT_OK
    assert with_status(copied, "WARN") == {"V-01.packages"}
    item = items_of(copied)["V-01.packages"]
    assert f"pytest {pytest.__version__} instead of 0.1" in item.detail
    assert "make -B setup" in item.hint
    assert "no-such-package is not installed" in item.detail
    assert "ruff" not in item.detail


@pytest.mark.parametrize("pin", ["2.13.0", "2.12.0"])
def test_a_local_build_counts_as_its_version(copied, monkeypatch, pin):
    monkeypatch.setattr(environment, "version_of", lambda name: "2.13.0+cpu")
    (copied / "requirements.lock").write_text(f"torch=={pin}\n", encoding="utf-8")
    check = environment.locked_packages
    if pin == "2.13.0":
        assert check(context_of(copied)).startswith("1 packages ")
    else:
        with pytest.raises(CheckWarned, match=r"torch 2\.13\.0 instead of 2\.12\.0"):
            check(context_of(copied))


def test_lint_is_skipped_with_a_message_without_ruff(copied, monkeypatch, capsys):
    monkeypatch.setattr(static, "find_spec", lambda name: None)
    assert run(copied, "--skip-smoke") == EXIT_OK
    assert with_status(copied, "SKIP") == {"V-02.lint"}
    assert "– SKIP  Lint: ruff" in capsys.readouterr().out


def test_lint_fails_for_landfall_files_and_warns_for_user_files(copied, capsys):
    (copied / "scratch.py").write_text("import os\n", encoding="utf-8")
    assert run(copied, "--skip-smoke") == EXIT_OK
    assert with_status(copied, "WARN") == {"V-02.lint"}
    assert "scratch.py:1:8: F401" in items_of(copied)["V-02.lint"].detail
    assert "ruff check scratch.py" in items_of(copied)["V-02.lint"].hint
    assert "! WARN  Lint" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_untracked_files_are_user_files_in_any_folder(copied):
    for command in (["init"], ["add", "configs", "notebooks"]):
        subprocess.run(["git", "-C", str(copied), *command], check=True, capture_output=True)
    (copied / "configs/scratch.py").write_text("import os\n", encoding="utf-8")
    context = context_of(copied)
    assert context.is_own("configs/trainer/quick.yaml")
    assert not context.is_own("configs/scratch.py")
    with pytest.raises(CheckWarned, match=r"configs/scratch\.py:1:8: F401"):
        static.lint(context)


def test_lint_is_skipped_in_a_workspace_without_its_rules(tmp_path):
    """`landfall init` copies none: default rules would find faults in notebooks that follow ours."""
    (tmp_path / "scratch.py").write_text("import os\n", encoding="utf-8")
    with pytest.raises(CheckSkipped, match=r"pyproject\.toml"):
        static.lint(Context(tmp_path, {}))


def test_lint_names_what_it_finds(copied):
    (copied / "configs/bad.py").write_text("import os\n", encoding="utf-8")
    assert run(copied, "--skip-smoke") == EXIT_OUTPUT
    assert with_status(copied, "FAIL") == {"V-02.lint"}
    assert "configs/bad.py:1:8: F401" in items_of(copied)["V-02.lint"].detail


@pytest.mark.parametrize("damage, words", most_nightly([
    (remove("notebooks/colab_swinmae_ssl.ipynb"), r"notebooks/colab_swinmae_ssl\.ipynb.* missing .*Colab originals"),
    (cut("notebooks/colab_swinmae_ssl.ipynb"), r"notebooks/colab_swinmae_ssl\.ipynb: differs.*rule: Colab originals"),
    (cut("notebooks/local_swinmae_ssl.ipynb"), r"notebooks/local_swinmae_ssl\.ipynb.*rule: local notebooks"),
    (cut("configs/swinmae_ssl_local.yaml"), r"configs/swinmae_ssl_local\.yaml.*rule: (paths|configurations)"),
], but=1))  # fmt: skip
def test_a_violation_of_the_migration_contract_is_named(copied, damage, words):
    context = context_of(copied)
    damage(copied)
    with pytest.raises(CheckFailed, match=words):
        static.migration_contract(context)


def test_an_interpreter_that_is_too_old_fails(copied, monkeypatch):
    monkeypatch.setattr(environment.sys, "version_info", (3, 10, 2))
    with pytest.raises(CheckFailed, match=r"Python 3\.10\.2"):
        environment.python_version(context_of(copied))


CPU = DeviceCapabilities("cpu", "Plain CPU", 2, 16_000, 8_000, ("float32",), True, "2 cores may be used")
BROKEN = DeviceCapabilities("cuda", "K80", 1, 12_000, 0, (), False, "failed a small operation: no kernel")


@pytest.mark.parametrize("prefer, found, words", [
    ("gpu", [CPU], "none was found"), ("gpu", [BROKEN, CPU], "no kernel"), ("auto", [BROKEN, CPU], "K80 is present"),
    ("cpu", [BROKEN, CPU], None), ("auto", [CPU], None),
])  # fmt: skip
def test_a_device_that_is_requested_or_present_must_work(copied, monkeypatch, prefer, found, words):
    monkeypatch.setattr(SystemDetector, "detect_capabilities", lambda self: found)
    context = Context(copied, *configs_in_use(CONFIGS, [f"device.prefer={prefer}"], copied))
    if words is None:
        assert "Plain CPU" in environment.device(context)
        return
    with pytest.raises(CheckWarned, match=words) as caught:
        environment.device(context)
    assert "landfall devices --doctor" in caught.value.hint
    strict = Context(copied, *configs_in_use(CONFIGS, [f"device.prefer={prefer}", "device.strict=true"], copied))
    if prefer == "gpu":
        with pytest.raises(UsageError, match=words):
            environment.device(strict)


def test_every_check_has_a_test_that_damages_its_subject():
    """Those that no row of DAMAGES fails have a test of their own in this file or in test_collapsed_model.py."""
    damaged = {check for _, checks in DAMAGES.values() for check in checks.split()}
    of_their_own = {
        "python",
        "packages",
        "device",
        "lint",
        "contract",
        "notebooks",
        "newest",
        "smoke",
        "collapse",
        "dashboard",
    }
    every = [*environment.CHECKS, *static.CHECKS, *runtime.CHECKS]
    assert {check.id for check in every} == damaged | of_their_own


def change_local_notebook(root: Path, change: Callable[[nbformat.NotebookNode], object]) -> None:
    path = root / "notebooks/local_patchtst_ssl.ipynb"
    notebook = nbformat.read(path, as_version=4)
    change(next(cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())))
    nbformat.write(notebook, path)


def test_a_notebook_without_parameters_fails(copied):
    change_local_notebook(copied, lambda cell: cell.metadata.pop("tags"))
    with pytest.raises(CheckFailed, match=r"local_patchtst_ssl\.ipynb .*parameters"):
        static.notebooks(context_of(copied))


def test_a_notebook_with_outputs_is_reported_without_a_failure(copied):
    """A notebook has outputs if a user has worked in it before validation."""
    change_local_notebook(copied, lambda cell: cell.outputs.append(ERROR))
    with pytest.raises(CheckWarned, match=r"local_patchtst_ssl\.ipynb .*outputs .*cells \[\d+\]"):
        static.notebooks(context_of(copied))


def test_a_user_notebook_is_a_warning(copied):
    for command in (["init"], ["add", "notebooks"]):
        subprocess.run(["git", "-C", str(copied), *command], check=True, capture_output=True)
    mine = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell('open("/content/data.csv")')])
    nbformat.write(mine, copied / "notebooks/local_mine.ipynb")
    with pytest.raises(CheckWarned, match="local_mine"):
        static.notebooks(context_of(copied))
    with pytest.raises(CheckWarned, match="local_mine"):
        static.migration_contract(context_of(copied))


def test_a_check_that_crashes_is_a_failed_item_with_its_trace_in_the_log(copied, caplog):
    def crash(context: Context) -> str:
        raise RuntimeError("first line\nsecond line")

    (item,) = Check("odd", "V-01", "Odd", crash).items(context_of(copied))
    assert (item.status, item.detail) == ("FAIL", "RuntimeError: first line")
    assert "traceback" in item.hint
    assert caplog.records[-1].exc_info
