"""The outputs of a run on Colab are imported completely or not at all."""

import errno
import json
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from core.bundle import write_bundle
from core.config.compose import load_config
from core.errors import EXIT_OK, EXIT_OUTPUT, EXIT_USAGE, LockedError, OutputError, UsageError, WriteError
from core.lock import Lock
from core.run_facts import note_run
from pipelines.export_training_dashboard_state import export_state
from pipelines.import_artifacts import import_artifacts, main
from pipelines.imported_models import is_imported
from pipelines.validate_training_outputs import main as validate
from tests.support.small_workspace import CONFIGS, PIPELINE_ARGUMENTS, RUN_ID

DETECTOR = "checkpoints/patchtst_ssl.detector.npz"
MODEL, LOSSES = "checkpoints/patchtst_ssl.pt", "artifacts/loss/patchtst_loss_history.csv"
CURVE = "artifacts/loss/patchtst_loss_curve.png"


@pytest.fixture(scope="module")
def bundles(finished_workspace, tmp_path_factory) -> dict[str, Path]:
    """A real bundle of each stream; read-only."""
    folder, root = tmp_path_factory.mktemp("bundles"), finished_workspace.root
    return {
        stream: write_bundle(folder / f"landfall_{stream}.zip", load_config(file, root=root).config, root=root)
        for stream, file in CONFIGS.items()
    }


@pytest.fixture
def drive(bundles, tmp_path) -> Path:
    """The same as folders of a drive; to be damaged."""
    folder = tmp_path / "MyDrive/landfall"
    for bundle in bundles.values():
        with zipfile.ZipFile(bundle) as archive:
            archive.extractall(folder)
    return folder


@pytest.mark.parametrize("stream", CONFIGS)
def test_a_bundle_is_imported_byte_for_byte(stream, bundles, finished_workspace, workspace):
    placed = import_artifacts(bundles[stream], root=workspace)
    assert {f"checkpoints/{stream}_ssl.pt", f"checkpoints/{stream}_ssl.json"} < set(placed)
    assert {f"checkpoints/{stream}_ssl.detector.npz", f"artifacts/scores/{stream}_events.json"} < set(placed)
    assert {f"artifacts/scaler_{stream}.json", f"runs/{stream}_ssl/{RUN_ID}/metrics.jsonl"} < set(placed)
    assert any(name.startswith(f"artifacts/scores/{stream}_event_") for name in placed)
    for name in placed:
        assert (workspace / name).read_bytes() == (finished_workspace.root / name).read_bytes()
    assert [path.name for path in workspace.iterdir() if path.name.startswith(".import-")] == []


def test_every_file_of_a_bundle_is_imported(copied, workspace, tmp_path):
    note_run(copied / f"runs/patchtst_ssl/{RUN_ID}", add=["first"], note="new bearing")
    bundle = write_bundle(tmp_path / "b.zip", load_config(CONFIGS["patchtst"], root=copied).config, root=copied)
    names = zipfile.ZipFile(bundle).namelist()
    assert {Path(name).name for name in names} > {"notes.json", "detection.json"}
    assert sorted(import_artifacts(bundle, root=workspace)) == sorted(names)


def test_unknown_files_of_a_run_are_named(workspace, drive, caplog):
    bundle = drive.parent / "b.zip"
    with zipfile.ZipFile(bundle, "w") as archive:
        archive.writestr("runs/patchtst_ssl/a b/status.json", "{}")
        archive.write(drive / LOSSES, LOSSES)
    assert import_artifacts(bundle, root=workspace) == [LOSSES]
    assert "runs/patchtst_ssl/a b/status.json" in caplog.text


def test_a_full_disk_is_not_taken_for_a_damaged_bundle(workspace, tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr(LOSSES, "x")

    def extract(*_):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(zipfile.ZipFile, "extract", extract)
    with pytest.raises(WriteError, match=f"{re.escape(str(workspace))} .*quota"):
        import_artifacts(tmp_path / "b.zip", root=workspace)


def test_both_streams_are_found_in_any_subfolder_of_a_drive_folder(drive, workspace):
    placed = import_artifacts(drive.parent, root=workspace)
    assert {"checkpoints/patchtst_ssl.pt", "checkpoints/swinmae_ssl.pt"} < set(placed)
    assert import_artifacts(drive.parent, root=workspace) == []


def test_an_imported_model_scores(drive, finished_workspace, workspace):
    from inference.run_scoring_example import score_stream

    import_artifacts(drive, root=workspace)
    shutil.copytree(finished_workspace.root / "data", workspace / "data")
    shutil.copy(finished_workspace.root / CONFIGS["patchtst"], workspace / CONFIGS["patchtst"])
    scores = score_stream(load_config(CONFIGS["patchtst"], root=workspace), root=workspace)
    before = json.loads((finished_workspace.root / "artifacts/scores/patchtst_summary.json").read_text())
    assert scores.summary["threshold"]["value"] == pytest.approx(before["threshold"]["value"], rel=1e-6)


def test_an_imported_model_scores_new_files_without_training_data(drive, finished_workspace, workspace):
    from inference.run_scoring_example import score_stream

    import_artifacts(drive, root=workspace)
    (workspace / "data/fdc").mkdir(parents=True)
    for file in (finished_workspace.root / "data/fdc").glob("test_*"):
        shutil.copy(file, workspace / "data/fdc")
    shutil.copy(finished_workspace.root / CONFIGS["patchtst"], workspace / CONFIGS["patchtst"])
    found = score_stream(load_config(CONFIGS["patchtst"], root=workspace), root=workspace).summary
    before = json.loads((finished_workspace.root / "artifacts/scores/patchtst_summary.json").read_text())
    assert found["threshold"] == before["threshold"]
    assert (found["alarms"], found["events"]) == (before["alarms"], before["events"])


def test_existing_files_are_not_overwritten_by_default(drive, workspace):
    import_artifacts(drive, root=workspace)
    (workspace / LOSSES).write_text("mine\n")
    with pytest.raises(OutputError, match=f"exist with other contents: {re.escape(LOSSES)}"):
        import_artifacts(drive, root=workspace)
    assert (workspace / LOSSES).read_text() == "mine\n"
    assert import_artifacts(drive, root=workspace, replace=True) == [LOSSES]
    assert (workspace / LOSSES).read_bytes() == (drive / LOSSES).read_bytes()
    (kept,) = (workspace / LOSSES).parent.glob("*.before-*")
    assert kept.read_text() == "mine\n"


@pytest.mark.parametrize("target", [MODEL, f"runs/patchtst_ssl/{RUN_ID}"])
def test_a_running_run_is_not_overwritten(drive, workspace, target):
    with Lock("run-1") as running:
        running.take(workspace / target, key="x")
        with pytest.raises(LockedError, match=r"run-1 .*--repo-root"):
            import_artifacts(drive, root=workspace, replace=True)
        assert not (workspace / MODEL).exists()
    assert MODEL in import_artifacts(drive, root=workspace)
    assert not list(workspace.rglob(".*.lock*"))


def damage(name: str, text: str | None):
    def apply(folder: Path) -> None:
        (folder / name).unlink() if text is None else (folder / name).write_text(text)

    return apply


def foreign_run(folder: Path) -> None:
    path = folder / "artifacts/scaler_patchtst.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"run_id": "../../x"}))


def other_scaler(folder: Path) -> None:
    path = folder / "artifacts/scaler_patchtst.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"channels": [f"{name}2" for name in values["channels"]]}))


def other_detector(folder: Path) -> None:
    from dataclasses import replace

    from inference.detector.file import load_detector, save_detector

    path = folder / DETECTOR
    save_detector(replace(load_detector(path), checkpoint_sha256="0" * 64), path)


def other_config(folder: Path) -> None:
    path = folder / "checkpoints/patchtst_ssl.json"
    path.write_text(path.read_text().replace('"stream": "patchtst"', '"stream": "swinmae"'))


def torn_picture(folder: Path) -> None:
    path = folder / CURVE
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def large_picture(folder: Path) -> None:
    Image.new("1", (10_000, 10_000)).save(folder / CURVE)


DAMAGES = {
    "torn model": (damage(MODEL, "half"), r"checkpoints/patchtst_ssl\.pt: .*is damaged or was changed"),
    "model without sidecar": (damage("checkpoints/patchtst_ssl.json", None), r"its sidecar .* is missing"),
    "sidecar without model": (damage(MODEL, None), r"patchtst_ssl\.pt, which is not"),
    "sidecar of another stream": (other_config, r"patchtst_ssl\.pt: .*swinmae"),
    "torn detector": (damage(DETECTOR, "half"), r"patchtst_ssl\.detector\.npz: .*cannot be read"),
    "losses": (damage(LOSSES, "epoch,what\n"), r"patchtst_loss_history\.csv: "),
    "log": (damage(f"runs/patchtst_ssl/{RUN_ID}/metrics.jsonl", "{not json\n"), r"metrics\.jsonl: "),
    "run of the scaler": (foreign_run, r"scaler_patchtst\.json: '\.\./\.\./x' is not a valid name"),
    "scaler": (other_scaler, r"scaler_patchtst\.json: is for other channels"),
    "picture": (damage(CURVE, "GIF89a"), r"loss_curve\.png: is not a PNG"),
    "torn picture": (torn_picture, r"loss_curve\.png: is not a PNG"),
    "large picture": (large_picture, r"loss_curve\.png: has 10000 × 10000 pixels"),
    "scores": (damage("artifacts/scores/patchtst_scores.parquet", "PAR0"), r"scores\.parquet: "),
}


def test_a_detector_older_than_the_weights_is_left_out_with_a_warning(drive, workspace, caplog):
    """A bundle as Landfall packs it after a training without scoring."""
    other_detector(drive)
    placed = import_artifacts(drive, root=workspace)
    assert MODEL in placed
    assert DETECTOR not in placed
    assert DETECTOR in caplog.text


def detector_with_a_broken_header(root: Path) -> None:
    """NumPy raises TokenError for an open bracket, which is no ValueError."""
    header = b"{'descr': (".ljust(117) + b"\n"
    with zipfile.ZipFile(root / DETECTOR, "w") as archive:
        archive.writestr("header.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)


@pytest.mark.parametrize("damage", [other_detector, detector_with_a_broken_header])
def test_a_bundle_leaves_out_a_detector_older_than_the_weights(copied, workspace, tmp_path, caplog, damage):
    damage(copied)
    config = load_config(CONFIGS["patchtst"], root=copied).config
    bundle = write_bundle(tmp_path / "b.zip", config, root=copied)
    assert DETECTOR not in zipfile.ZipFile(bundle).namelist()
    assert "detector" in caplog.text
    assert MODEL in import_artifacts(bundle, root=workspace)


def test_the_log_of_a_run_with_a_name_of_its_own_is_imported(drive, workspace):
    (drive / f"runs/patchtst_ssl/{RUN_ID}").rename(drive / "runs/patchtst_ssl/prüfstand+2")
    assert "runs/patchtst_ssl/prüfstand+2/metrics.jsonl" in import_artifacts(drive, root=workspace)


@pytest.mark.parametrize("damage", ["encrypted", "packed by Windows", "damaged list", "cut"])
def test_an_unreadable_zip_is_rejected_in_one_line(damage, workspace, tmp_path):
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(LOSSES, b"epoch,train_loss\n" * 100)
    content = bytearray(path.read_bytes())
    listed = content.index(b"PK\x01\x02")
    if damage == "encrypted":
        content[6] |= 1
        content[listed + 8] |= 1
    elif damage == "packed by Windows":
        content[8] = content[listed + 10] = 9
    elif damage == "damaged list":
        content[listed : listed + 4] = b"XXXX"
    else:
        content[50:60] = bytes(10)
    path.write_bytes(content)
    with pytest.raises(OutputError) as caught:
        import_artifacts(path, root=workspace)
    assert "\n" not in str(caught.value)
    assert not (workspace / "artifacts").exists()


def test_a_member_without_a_name_is_left_out(drive, workspace, tmp_path):
    path = tmp_path / "b.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("zz", b"no name")
        archive.write(drive / LOSSES, LOSSES)
    path.write_bytes(path.read_bytes().replace(b"zz", b"\0z"))  # zipfile ends a name at its first null byte
    assert import_artifacts(path, root=workspace) == [LOSSES]


@pytest.mark.parametrize("leads", ["nowhere", "to itself"])
def test_a_broken_link_is_reported(drive, workspace, leads):
    (drive / LOSSES).unlink()
    (drive / LOSSES).symlink_to("missing" if leads == "nowhere" else Path(LOSSES).name)
    with pytest.raises(OutputError, match="broken link"):
        import_artifacts(drive, root=workspace)


@pytest.mark.parametrize("text", ['{"config": null}', "[" * 100_000, '{"run_id": "../../x"}', "9" * 100_000])
def test_a_hostile_sidecar_is_rejected_in_one_line(drive, workspace, text):
    sidecar = drive / "checkpoints/patchtst_ssl.json"
    if text.startswith("{"):
        text = json.dumps(json.loads(sidecar.read_text()) | json.loads(text))
    sidecar.write_text(text)
    with pytest.raises(OutputError) as caught:
        import_artifacts(drive, root=workspace)
    assert str(caught.value).isprintable()
    assert not (workspace / "checkpoints").exists()


def test_a_yaml_bomb_is_not_imported(drive, workspace):
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(24)
    )
    config = drive / f"runs/patchtst_ssl/{RUN_ID}/config.yaml"
    config.write_text(bomb)
    with pytest.raises(OutputError, match=r"config\.yaml"):
        import_artifacts(drive, root=workspace)
    folder = workspace / f"runs/patchtst_ssl/{RUN_ID}"
    shutil.copytree(config.parent, folder)
    assert any("config.yaml" in problem.path for problem in export_state(workspace).problems)


@pytest.mark.parametrize(("harm", "expected"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_bundle_imports_nothing_and_names_the_file(harm, expected, drive, workspace):
    harm(drive)
    with pytest.raises(OutputError, match=expected):
        import_artifacts(drive, root=workspace)
    assert not (workspace / "checkpoints").exists()
    assert not (workspace / "artifacts").exists()


def test_two_different_files_for_one_path_are_rejected(drive, workspace):
    copy = shutil.copytree(drive, drive.parent / "older")
    (copy / LOSSES).write_text((copy / LOSSES).read_text().replace("1,", "9,", 1))
    with pytest.raises(OutputError, match=f"different files would become {LOSSES}: landfall/.*, older/"):
        import_artifacts(drive.parent, root=workspace)


@pytest.mark.parametrize("name", ["../checkpoints/patchtst_ssl.pt", "/checkpoints/patchtst_ssl.pt"])
def test_a_zip_with_paths_outside_its_folder_is_rejected(name, workspace, tmp_path):
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(OutputError, match="is outside the bundle"):
        import_artifacts(path, root=workspace)


def test_the_command_imports_a_bundle(bundles, workspace, tmp_path, capsys):
    arguments = ["--repo-root", str(workspace)]
    assert main([str(bundles["patchtst"]), *arguments]) == EXIT_OK
    assert MODEL in json.loads(capsys.readouterr().out)["placed"]
    (workspace / LOSSES).write_text("mine\n")
    assert main([str(bundles["patchtst"]), *arguments]) == EXIT_OUTPUT
    assert main([str(tmp_path / "missing.zip"), *arguments]) == EXIT_USAGE
    (tmp_path / "torn.zip").write_bytes(bundles["patchtst"].read_bytes()[:500])
    assert main([str(tmp_path / "torn.zip"), *arguments]) == EXIT_USAGE


def test_a_folder_without_landfall_files_is_rejected(workspace, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="contains no checkpoint"):
        import_artifacts(tmp_path / "empty", root=workspace)


# -------------------------------------------------------------------------------------------------- imported, validated
@pytest.fixture
def emptied(finished_workspace, tmp_path) -> Path:
    """The workspace before any run."""
    outputs = shutil.ignore_patterns("artifacts", "checkpoints", "runs", "training_dashboard", ".import-*")
    return shutil.copytree(finished_workspace.root, tmp_path / "elsewhere", ignore=outputs)


def imported(root: Path, bundles: dict[str, Path]) -> None:
    files = [word for stream, flag in (("patchtst", "--patch-config"), ("swinmae", "--swin-config"))
             for word in (flag, CONFIGS[stream])]  # fmt: skip
    for bundle in bundles.values():
        assert main([str(bundle), "--repo-root", str(root), *files]) == EXIT_OK


def checklist(root: Path) -> dict[str, str]:
    assert validate([*PIPELINE_ARGUMENTS, "--repo-root", str(root)]) == EXIT_OK
    report = json.loads((root / "artifacts/validation_report.json").read_text())
    return {item["id"]: item["status"] for item in report["items"]}


@pytest.mark.nightly
def test_import_then_validate_passes_with_the_data(bundles, emptied):
    imported(emptied, bundles)
    statuses = checklist(emptied)
    skipped = {identity for identity, status in statuses.items() if status != "PASS"}
    assert skipped == {"V-03.notebook.patchtst", "V-03.notebook.swinmae"}
    assert list((emptied / "artifacts/scores/patchtst_events").glob("*.json")), "an event opens on the dashboard"


@pytest.mark.nightly
def test_validation_after_import_names_checks_that_need_the_data(bundles, emptied):
    shutil.rmtree(emptied / "data")
    imported(emptied, bundles)
    statuses = checklist(emptied)
    names = ("notebook", "quality", "smoke", "collapse")
    expected = {f"V-03.{name}.{stream}" for name in names for stream in CONFIGS}
    assert {identity for identity, status in statuses.items() if status == "SKIP"} == expected
    assert set(statuses.values()) == {"PASS", "SKIP"}


def test_missing_quality_reports_are_made_from_available_data(drive, emptied):
    for report in (drive / "artifacts/dqvl/fdc").glob("*.json"):
        report.unlink()
    for test in (emptied / "data/fdc").glob("test_*"):
        test.unlink()
    assert main([str(drive), "--repo-root", str(emptied), "--patch-config", CONFIGS["patchtst"]]) == EXIT_OK
    names = {json.loads(path.read_text())["file_id"] for path in (emptied / "artifacts/dqvl/fdc").glob("*.json")}
    assert names == {"data/fdc/train_1.csv", "data/fdc/train_2.csv"}


def test_a_model_trained_here_is_not_an_imported_one(bundles, emptied):
    imported(emptied, bundles)
    model = emptied / MODEL
    assert is_imported(emptied, "patchtst", model)
    shutil.copy(emptied / "checkpoints/patchtst_ssl.last.pt", model)
    shutil.copy(emptied / "checkpoints/patchtst_ssl.last.json", model.with_suffix(".json"))
    assert not is_imported(emptied, "patchtst", model)
