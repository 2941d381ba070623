"""Scoring end to end: tiny files, a tiny model trained for one epoch, every output read back."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from core.errors import EXIT_DATA, EXIT_OK, EXIT_OUTPUT, EXIT_USAGE
from core.numbers import counted
from inference.run_scoring_example import main, next_command, read_summary, score_stream
from inference.score_text import detection_table, score_text
from tests.inference.trained_workspace import FAULT, OVERRIDES, SHARED, configuration
from tests.support import REPO_ROOT


def run(root: Path, stream: str, *arguments: str) -> int:
    return main(["--stream", stream, "--repo-root", str(root), *OVERRIDES[stream], *SHARED, *arguments])


@pytest.mark.slow
def test_the_text_lists_the_worst_events_and_the_next_step(trained, capsys):
    assert run(trained, "patchtst") == EXIT_OK
    text = capsys.readouterr().out
    events = pd.read_csv(trained / "artifacts/scores/patchtst_events.csv")
    worst = events.loc[events["severity"].idxmax()]
    lines = text.splitlines()
    assert lines[0].startswith(f"patchtst: {counted(len(events), 'event')}")
    assert lines[1].split()[:2] == ["faults", "found"]
    first = lines[1 + next(n for n, line in enumerate(lines) if line.startswith("  event "))]
    assert first.split()[0] == str(worst["event_id"])
    assert worst["recording"] in first
    assert worst["top_channels"].split("; ")[0] in first
    assert lines[-1].startswith("next: landfall export")


def test_the_next_command_exports_what_was_scored():
    arguments = argparse.Namespace(
        config="configs/my line.yaml",
        repo_root=Path("machines/K2"),
        overrides=["data.root=plant", "scoring.event_gap=9"],
    )
    assert next_command(arguments, "patchtst") == (
        "landfall export --patch-config 'configs/my line.yaml' --repo-root machines/K2 data.root=plant "
        "&& landfall dashboard --repo-root machines/K2"
    )


@pytest.mark.slow
def test_the_table_names_sample_files_with_their_folder(trained, capsys):
    (trained / "samples").mkdir()
    (trained / "data").rename(trained / "samples/data")
    assert run(trained, "patchtst") == EXIT_OK
    assert "samples/data/fdc/test_1.csv" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["patchtst", pytest.param("swinmae", marks=pytest.mark.nightly)])
def test_every_output_agrees_with_every_other(trained, stream, capsys):
    assert run(trained, stream, "--json") == EXIT_OK
    printed = json.loads(capsys.readouterr().out)
    folder = trained / "artifacts/scores"
    summary = json.loads((folder / f"{stream}_summary.json").read_text())
    assert printed == summary == read_summary(configuration(stream, trained).config, root=trained)
    scores = pd.read_parquet(folder / f"{stream}_scores.parquet")
    events = pd.read_csv(folder / f"{stream}_events.csv")
    assert (folder / f"{stream}_timeline.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in folder.glob(f"{stream}*")} - {path.name for path in folder.glob("*_event_*.png")} == {
        f"{stream}_{name}"
        for name in (
            "events", "events.csv", "events.json", "recordings.csv", "scores.parquet", "summary.json", "timeline.png"
        )
    }  # fmt: skip
    output = json.loads((folder / f"{stream}_events.json").read_text())
    assert [event["sentence"] for event in output] == events["sentence"].tolist()

    weights = trained / summary["checkpoint"]
    assert summary["checkpoint_sha256"] == hashlib.sha256(weights.read_bytes()).hexdigest()
    assert (summary["schema_version"], summary["stream"], summary["run_id"]) == (1, stream, f"run-{stream}")
    assert summary["timeline"] == {"png": f"artifacts/scores/{stream}_timeline.png"}
    assert scores.columns.tolist() == [
        "recording", "row", "segment", "time", "seconds", "score", "threshold", "alarm", "label", "top_channel"
    ]  # fmt: skip
    assert len(scores) == summary["scores"] + summary["unscored_rows"]
    assert (scores["alarm"] == (scores["score"] > summary["threshold"]["value"])).all()
    assert (summary["alarms"], summary["events"]) == (scores["alarm"].sum(), len(events))
    assert summary["recordings"] == scores["recording"].nunique() == 2
    ranked = pd.read_csv(folder / f"{stream}_recordings.csv")
    assert ranked["events"].sum() == len(events)
    assert ranked["median"].is_monotonic_decreasing
    assert set(summary["detection"]) >= {
        "auroc", "average_precision", "f1", "precision", "recall", "false_alarm_rate", "prevalence",
        "event_precision", "event_recall", "faults_total", "faults_found", "false_events", "recorded_hours",
        "event_recall_by_chance",
    }  # fmt: skip
    expected = summary["threshold"]["expected"]
    assert expected["low"] <= expected["rate"] <= expected["high"]
    assert summary["threshold"]["statement"]
    assert summary["detector"]["file"] == f"checkpoints/{stream}_ssl.detector.npz"
    assert (summary["detector"]["recordings"], summary["detector"]["change"]) == (2, None)


@pytest.mark.nightly
def test_rows_outside_windows_are_scored_by_charts_alone(trained):
    by_model = score_stream(configuration("patchtst", trained, "scoring.model_weight=1"), root=trained)
    first = by_model.scores[by_model.scores["recording"] == "data/fdc/test_1.csv"]
    # A patch of 8 rows is predicted from the 24 before it; what follows the gap is shorter than a window.
    assert by_model.summary["unscored_rows"] == 24 + 20 + 24
    assert first["row"][first["score"].isna()].tolist() == [*range(24), *range(310, 330)]
    ahead = score_stream(
        configuration("patchtst", trained, "scoring.model_weight=1", "scoring.look_ahead=true"), root=trained
    )
    assert ahead.summary["unscored_rows"] == 20
    by_both = score_stream(configuration("patchtst", trained), root=trained)
    assert by_both.summary["unscored_rows"] == 0
    assert by_both.summary["detection"]["auroc"] > 0.9


@pytest.mark.nightly
@pytest.mark.parametrize("stream", ["patchtst", pytest.param("swinmae", marks=pytest.mark.slow)])
def test_calibration_alone_is_used_and_reported_without_training_files(trained, stream, caplog):
    gone = [f"data.splits.{split}.files=[data/gone_*]" for split in ("train", "validation")]
    result = score_stream(configuration(stream, trained, *gone), root=trained)
    assert "train and validation" in caplog.text
    assert result.summary["detection"]["auroc"] > 0.9


@pytest.mark.slow
def test_a_process_fault_is_found_and_named(trained):
    result = score_stream(configuration("patchtst", trained), root=trained)
    first = result.scores[result.scores["recording"] == "data/fdc/test_1.csv"]
    assert first["time"].is_monotonic_increasing
    assert first["label"].sum() == FAULT.stop - FAULT.start
    assert result.scores["label"][result.scores["recording"] == "data/fdc/test_2.csv"].isna().all()
    assert result.summary["detection"]["auroc"] > 0.9
    assert set(first["top_channel"][FAULT.start + 10 : FAULT.stop]) == {"r"}
    event = result.events.loc[result.events["peak_score"].idxmax()]
    assert event["recording"] == "data/fdc/test_1.csv"
    assert event["top_channels"] == "r"
    assert event["label_overlap"] > 0.4  # smoothing draws it out beyond the end of the fault
    assert result.timeline_png == result.paths.timeline
    assert event["recording"] in score_text(result.summary, result.events, events_file="events.csv")  # as in notebooks
    table = detection_table(result.summary)
    assert table.loc["faults found", "value"] == "1 of 1"
    assert float(table.loc["AUROC", "value"]) == pytest.approx(result.summary["detection"]["auroc"], abs=1e-3)
    assert detection_table({"detection": None}).empty


@pytest.mark.slow
def test_a_vibration_fault_is_found_and_scores_are_the_same_twice(trained):
    results = [score_stream(configuration("swinmae", trained), root=trained) for _ in range(2)]
    pd.testing.assert_frame_equal(results[0].scores, results[1].scores)
    scores = results[0].scores
    assert scores["time"].isna().all()
    assert scores["seconds"].iloc[0] == pytest.approx(0.127)
    assert scores["row"].iloc[:3].tolist() == [127, 191, 255]
    assert results[0].summary["detection"]["auroc"] > 0.9
    loud = scores[scores["recording"] == "data/vib/test_loud.npy"]
    assert (loud["top_channel"] == "z").mean() > 0.9


@pytest.mark.nightly
def test_a_model_of_another_file_is_scored_with_its_own_detector(trained, tmp_path):
    for suffix in (".pt", ".json"):
        shutil.move(trained / f"checkpoints/patchtst_ssl{suffix}", tmp_path / f"other{suffix}")
    words = ("patchtst", "--checkpoint", str(tmp_path / "other.pt"), "scoring.model_weight=0")
    assert run(trained, *words) == EXIT_OK
    assert (tmp_path / "other.detector.npz").is_file()
    assert run(trained, *words, "--unless-current") == EXIT_OK
    assert not (trained / "checkpoints/patchtst_ssl.detector.npz").exists()


@pytest.mark.slow
def test_errors_have_exit_codes_and_leave_no_outdated_summary(trained, capsys):
    assert run(trained, "patchtst", "--checkpoint", "checkpoints/none.pt") == EXIT_OUTPUT
    assert run(trained, "patchtst", "--checkpoint", "checkpoints/swinmae_ssl.pt") == EXIT_OUTPUT
    assert "is a swinmae model" in capsys.readouterr().err
    assert run(trained, "patchtst", "model.d_ff=64") == EXIT_OUTPUT
    assert "model.d_ff was 32, is 64" in capsys.readouterr().err
    assert run(trained, "patchtst", "scoring.threshold.min_calibration=9999") == EXIT_DATA
    assert "9999 are needed" in capsys.readouterr().err
    assert run(trained, "swinmae", "data.sampling_rate_hz=2000") == EXIT_DATA
    message = capsys.readouterr().err
    assert "1000 Hz" in message
    assert "data.resample_hz=1000" in message
    assert run(trained, "swinmae", "--config", "configs/patchtst_ssl_local.yaml") == EXIT_USAGE


@pytest.mark.slow
def test_help_and_print_config_never_import_torch():
    program = (
        "import sys; from inference.run_scoring_example import main; "
        "code = main(['--stream', 'swinmae', '--print-config', 'scoring.batch_size=7']); "
        "sys.exit(code or 'torch' in sys.modules or 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=REPO_ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert "  batch_size: 7" in done.stdout


@pytest.mark.nightly
def test_scores_of_a_model_do_not_depend_on_how_many_rows_follow(trained):
    """Patches of 8 rows end at rows 288 and 296. The last window of each file ends at its end."""
    file, scores = trained / "data/fdc/test_2.csv", []
    frame = pd.read_csv(file)
    for rows in (300, 295):
        frame[:rows].to_csv(file, index=False)
        table = score_stream(configuration("patchtst", trained, "scoring.model_weight=1.0"), root=trained).scores
        scores.append(table[table["recording"] == "data/fdc/test_2.csv"]["score"].reset_index(drop=True))
    pd.testing.assert_series_equal(scores[0][:288], scores[1][:288])
    assert scores[1][288:].notna().all()
    assert (scores[0][288:295] != scores[1][288:]).any(), "an incomplete patch is predicted from other rows"
