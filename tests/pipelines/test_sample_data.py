"""The synthetic plant: the same bytes for a seed, faults where the labels say, and only there."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from core.config.schema import Data, Quality
from core.data.cleaning import cleaned
from core.data.files import expand
from core.data.labels import label_file, labels_of
from core.data.quality import QualityReport, judge
from core.data.quality_metrics import measure
from core.data.readers import read_recordings
from core.errors import DataError
from pipelines.sample_data import chamber, rig
from pipelines.sample_data.command import MANIFEST, RIG_FILES, main, make_sample_data
from tests.support import REPO_ROOT


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    root = tmp_path_factory.mktemp("plant")
    return root, make_sample_data(root)


def report_of(recording, stream) -> QualityReport:
    metrics = measure(recording, cleaned(recording, 10.0), stream=stream)
    return judge(metrics, Quality(report_dir="x"), stream=stream, file_id=recording.file_id)


def recordings(root, pattern, stream):
    return [
        recording
        for path in expand([pattern], root)
        for recording in read_recordings(path, root=root, stream=stream, settings=Data())
    ]


@pytest.mark.slow
def test_size_and_manifest(plant):
    root, manifest = plant
    assert json.loads((root / MANIFEST).read_text())["files"] == manifest["files"]
    assert manifest["seed"] == 7
    assert sum(entry["bytes"] for entry in manifest["files"]) < 20e6
    on_disk = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert on_disk == {entry["path"] for entry in manifest["files"]} | {MANIFEST.as_posix()}


@pytest.mark.nightly
def test_valid_sample_data_is_kept_and_damaged_data_replaced(plant, tmp_path):
    first = make_sample_data(tmp_path, seed=7)
    assert first["files"] == plant[1]["files"]
    assert make_sample_data(tmp_path, seed=7)["kept"]
    torn = tmp_path / "data/fdc/train_1.csv"
    torn.write_text("torn")
    again = make_sample_data(tmp_path, seed=7)
    assert not again["kept"]
    assert torn.stat().st_size > 1e6
    other = make_sample_data(tmp_path, seed=8)
    assert all(
        a["sha256"] != b["sha256"]
        for a, b in zip(first["files"], other["files"], strict=True)
        if a["path"].endswith("npy")
    )


@pytest.mark.nightly
def test_files_of_the_user_are_not_overwritten(tmp_path):
    mine = tmp_path / "data/fdc/train_1.csv"
    mine.parent.mkdir(parents=True)
    mine.write_text("timestamp,a\n")
    with pytest.raises(DataError, match="--force"):
        make_sample_data(tmp_path)
    assert mine.read_text() == "timestamp,a\n"
    assert not (tmp_path / MANIFEST).exists()
    make_sample_data(tmp_path, force=True)
    assert mine.stat().st_size > 1e6


@pytest.mark.slow
def test_chamber_files_are_valid(plant):
    root, _ = plant
    train, test = recordings(root, "data/fdc/train_*", "patchtst"), recordings(root, "data/fdc/test_*", "patchtst")
    assert (len(train), len(test)) == (4, 3)
    assert len({recording.channels for recording in (*train, *test)}) == 1
    assert len(train[0].channels) >= 24
    for recording in (*train, *test):
        report = report_of(recording, "patchtst")
        assert report.decision == "keep"
        assert recording.sampling_rate_hz == 1.0
        assert 0 < report.metrics["missing_ratio"] < 0.02
    assert any(len(cleaned(recording, 10.0).gap_g) for recording in train)
    assert all(labels_of(recording) is None for recording in train)
    assert all(0.05 < labels_of(recording).mean() < 0.3 for recording in test)


@pytest.mark.slow
def test_chamber_faults_of_every_kind_stay_within_range_limits(plant):
    root, _ = plant
    train_tc = np.concatenate([recording.values_tc for recording in recordings(root, "data/fdc/train_*", "patchtst")])
    low_c, high_c = np.nanmin(train_tc, axis=0), np.nanmax(train_tc, axis=0)
    kinds = set()
    for recording in recordings(root, "data/fdc/test_*", "patchtst"):
        fault_t = pd.read_csv(label_file(recording.path), keep_default_na=False)["fault"].to_numpy()
        outside_t = ((recording.values_tc < low_c) | (recording.values_tc > high_c)).any(axis=1)
        for kind in set(fault_t) - {""}:
            kinds.add(kind)
            assert outside_t[fault_t == kind].mean() < 0.3, kind
    assert kinds == chamber.FAULTS.keys()


def test_a_fault_changes_no_other_rows():
    fault = chamber.Fault("oscillation", 1000, 1200, 3.0)
    healthy = chamber.simulate(np.random.default_rng(1), 2000, age=0.2)
    faulty = chamber.simulate(np.random.default_rng(1), 2000, age=0.2, faults=(fault,))
    changed_t = np.any([healthy[name] != faulty[name] for name in healthy], axis=0)
    assert changed_t.any()
    assert set(np.flatnonzero(changed_t)) <= set(range(1000, 1200))


@pytest.mark.slow
def test_rig_files_are_valid(plant):
    root, _ = plant
    train, test = recordings(root, "data/vib/train_*", "swinmae"), recordings(root, "data/vib/test_*", "swinmae")
    assert (len(train), len(test)) == (8, 12)
    for recording in (*train, *test):
        report = report_of(recording, "swinmae")
        assert (report.decision, report.warnings) == ("keep", ())
        assert recording.channels == ("x", "y", "z")
        assert recording.sampling_rate_hz == 6400
        assert recording.healthy is None
        assert "label" not in json.loads(recording.path.with_suffix(".json").read_text())
    shares = {recording.path.stem: labels_of(recording).mean() for recording in test}
    assert shares["test_healthy_1"] == 0
    assert shares["test_outer_race"] == 1
    assert shares["test_outer_race_onset"] == pytest.approx(0.5, abs=0.001)
    (stamped,) = [recording for recording in train if recording.time_source == "timestamp"]
    assert stamped.path.name == "train_8.csv"


@pytest.mark.slow
def test_healthy_recordings_cover_the_operating_points_of_the_test(plant):
    def points_of(prefix):
        runs = [file.run for file in RIG_FILES if file.name.startswith(prefix)]
        operations = [rig.simulate(np.random.default_rng(0), run)[1] for run in runs]
        return np.concatenate([np.stack([at.rpm_t / 600, at.load_t], axis=1)[::640] for at in operations])

    train_p2, test_p2 = points_of("train"), points_of("test")
    distance_pp = np.linalg.norm(test_p2[:, None] - train_p2, axis=2)
    assert distance_pp.min(axis=1).max() < 0.1
    assert (np.ptp(test_p2, axis=0) > (0.9, 0.7)).all()


def test_the_json_of_a_recording_names_its_operating_range(plant):
    facts = json.loads((plant[0] / "data/vib/train_1.json").read_text())
    low, high = facts["rpm_range"]
    assert 1150 < low < facts["rpm"] < high < 1850
    low, high = facts["load_range"]
    assert 0.2 < low < facts["load"] < high <= 1


def test_bearing_frequencies_of_a_6205():
    """Published orders of the 6205-2RS JEM SKF drive-end bearing (Case Western Reserve University)."""
    bearing = rig.BEARING
    orders = (bearing.bpfo, bearing.bpfi, 2 * bearing.bsf, bearing.ftf)
    assert orders == pytest.approx((3.5848, 5.4152, 4.7135, 0.39828), rel=2e-3)


@pytest.mark.parametrize(("fault", "order"), [("outer_race", "bpfo"), ("inner_race", "bpfi")])
def test_the_envelope_shows_the_defect_frequency(fault, order):
    run = rig.Run(8.0, ((0.0, 1800, 0.5),), fault, 1.0)
    values_ta, _ = rig.simulate(np.random.default_rng(0), run)
    x_t = values_ta[:, 0]
    spectrum = np.fft.fft(x_t)
    hertz = np.fft.fftfreq(len(x_t), 1 / rig.SAMPLING_RATE_HZ)
    envelope = np.abs(np.fft.ifft(np.where((hertz > 1700) & (hertz < 2600), 2 * spectrum, 0)))
    lines = np.abs(np.fft.rfft(envelope - envelope.mean()))
    at = np.fft.rfftfreq(len(x_t), 1 / rig.SAMPLING_RATE_HZ)
    expected = getattr(rig.BEARING, order) * 30
    band = (at > 60) & (at < 250)
    assert at[band][lines[band].argmax()] == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("fault", rig.FAULTS)
def test_rows_before_an_onset_are_unchanged(fault):
    def simulate(size):
        run = rig.Run(2.0, ((0.0, 1500, 0.2), (2.0, 1800, 1.0)), fault, size, 1.0)
        return rig.simulate(np.random.default_rng(3), run)[0]

    # The sensor's own noise is drawn after the fault, so equal draws cancel.
    difference = np.abs(simulate(1.0) - simulate(0.0)).max(axis=1)
    onset = rig.SAMPLING_RATE_HZ
    assert difference[:onset].max() == 0
    assert difference[onset + onset // 2 :].max() > 0.01


def test_a_file_in_place_of_the_folder_is_a_usage_error(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith(f"landfall sample-data: --out {tmp_path / 'file'} is not a folder — ")


@pytest.mark.nightly
def test_command_line_writes_json_to_stdout(tmp_path):
    command = [sys.executable, "-m", "pipelines.sample_data", "--out", str(tmp_path), "--seed", "3"]
    done = subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["seed"] == 3
    assert "wrote" in done.stderr
    assert json.loads(subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True, check=True).stdout)["kept"]
