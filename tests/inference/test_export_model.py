"""Models without PyTorch: the ONNX file computes what the checkpoint does, and is refused where it does not fit."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from core.checkpoint import describe, exported_path
from core.errors import EXIT_OK, EXIT_OUTPUT, EXIT_USAGE, OutputError
from inference import export_model
from inference.detector.stored import load_splits, open_model
from inference.detector_graph import TorchPredictor
from inference.model_errors import split_errors
from inference.predictor import OnnxPredictor
from inference.run_scoring_example import score_stream
from tests.inference.trained_workspace import OVERRIDES, SHARED, configuration
from tests.inference.watch.following import arguments_of, assert_equal_to_files, scored_by_files, watch_once
from tests.support import REPO_ROOT, built_once
from trainers.run import train

WEIGHT = "scoring.model_weight=0.3"
CHECKPOINTS = {"patchtst": "checkpoints/patchtst_ssl.pt", "swinmae": "checkpoints/swinmae_ssl.pt"}


@pytest.fixture(scope="module")
def exported_once(trained_once, tmp_path_factory) -> Path:
    """A workspace with the ONNX files of both models; to copy only."""

    def build(folder: Path) -> None:
        shutil.copytree(trained_once, folder, dirs_exist_ok=True)
        for stream in CHECKPOINTS:
            export_model.export_model(configuration(stream, folder), root=folder)

    return built_once(tmp_path_factory, "exported", build)


@pytest.fixture
def exported(exported_once, tmp_path) -> Path:
    return Path(shutil.copytree(exported_once, tmp_path / "workspace"))


def test_the_graph_gives_the_errors_of_scoring(trained):
    """Also of windows with missing values, and at the end of a file."""
    config, scoring = open_model(configuration("patchtst", trained), root=trained)
    windows = load_splits(config, scoring, ("test",), root=trained).splits["test"]
    wanted = split_errors(scoring, windows, batch_size=16, look_ahead=False)
    values_nc = windows.series.rows_nc
    values_btc = values_nc[windows.starts_w[:, np.newaxis] + np.arange(windows.window)]
    found_bpc = TorchPredictor(scoring, 5).errors(values_btc)
    assert np.isnan(found_bpc).any()
    stop_b = windows.starts_w + windows.window
    line_of = {row: line for line, row in enumerate(wanted.row_s.tolist())}
    for stop, error_pc in list(zip(stop_b.tolist(), found_bpc, strict=True))[:10]:
        lines = [line_of[row] for row in range(stop - len(error_pc), stop)]
        np.testing.assert_allclose(wanted.error_sc[lines], error_pc, rtol=1e-5, atol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("stream", CHECKPOINTS)
def test_onnx_gives_the_errors_of_pytorch_for_any_batch_and_missing_values(stream, exported):
    config, scoring = open_model(configuration(stream, exported), root=exported)
    by_onnx = OnnxPredictor(exported_path(scoring.path), num_threads=1, batch_size=7)
    values_btc = np.random.default_rng(5).normal(0.2, 3.0, (17, config.data.window, len(scoring.channels)))
    values_btc[3, 5:9, 0], values_btc[4, -2:, 1], values_btc[6, :, 2] = np.nan, np.nan, np.nan
    values_btc = values_btc.astype(np.float32)
    wanted = TorchPredictor(scoring, 16).errors(values_btc)
    assert np.isnan(wanted).any()
    np.testing.assert_allclose(by_onnx.errors(values_btc), wanted, rtol=1e-4, atol=1e-4)
    facts = by_onnx.facts
    assert (facts["stream"], facts["channels"], facts["window"]) == (stream, [*scoring.channels], config.data.window)
    assert facts["checkpoint_sha256"] == describe(scoring.path)["sha256"]
    assert facts["score_stride"] == config.score_stride
    if stream == "patchtst":
        assert facts["masks"] == "the newest 8 rows"
    else:
        assert sorted(np.concatenate(facts["masks"]).tolist()) == list(range(scoring.model.num_units))
    assert facts["versions"].keys() == {"landfall", "opset", "torch", "onnx", "onnxscript"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "stream, options, num_masks",
    [
        # Of small graphs: writing takes seconds for each pass and layer.
        ("patchtst", ["model.channel_attention=none", "model.masks=[patches]"], None),
        ("swinmae", ["scalogram.level=separate", "model.depths=[1]", "model.num_heads=[2]"], 2),
        (
            "swinmae",
            [
                "model.masks=[units,axes]",
                "model.drop_masked_tokens=false",
                "scalogram.envelope=true",
                "model.depths=[1]",
                "model.num_heads=[2]",
                "scalogram.level=separate",
            ],
            3,
        ),
    ],
)
def test_distributions_axes_envelopes_and_levels_are_trained_scored_and_exported(stream, options, num_masks, trained):
    loaded = configuration(
        stream, trained, "model.output=student_t", *options, "training.promote=always", "training.resume=never"
    )
    train(loaded, root=trained, run_id="other-output")
    assert score_stream(loaded, root=trained).summary["threshold"]["value"] > 0
    report = export_model.export_model(loaded, root=trained)  # raises if the errors differ
    assert report["windows"] > 10
    by_onnx = OnnxPredictor(trained / report["file"], num_threads=1, batch_size=16)
    skill = describe(trained / CHECKPOINTS[stream])["metrics"]["skill"]
    assert np.isfinite(skill["total"])
    if stream == "swinmae":
        masks = by_onnx.facts["masks"]
        assert len(masks) == num_masks
        assert masks == [[4], [5], [6]] or (4 in masks[0] and sorted(masks[0] + masks[1]) == [0, 1, 2, 3, 4])
        assert skill["channels"].keys() == set(by_onnx.channels)


# Runs the command, and fails if anything imported torch.
WITHOUT_TORCH = """
import json, sys
from inference.watch.command import main
code = main(json.loads(sys.argv[1]))
sys.exit("torch was imported" if "torch" in sys.modules else code)
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("stream", "weight", "moved"),
    [
        pytest.param("patchtst", WEIGHT, False, id="sensors, with the checkpoint", marks=pytest.mark.nightly),
        pytest.param("patchtst", WEIGHT, True, id="sensors, without it"),
        pytest.param("swinmae", WEIGHT, True, id="vibration"),
        pytest.param(
            "swinmae", "scoring.model_weight=0.0", True, id="vibration, charts alone", marks=pytest.mark.nightly
        ),
    ],
)
def test_a_monitor_without_pytorch_gives_the_scores_and_events_of_files(stream, weight, moved, exported):
    scored = scored_by_files(exported, weight, detector="model", stream=stream)
    if moved:
        for path in (exported / "checkpoints").iterdir():
            if path.suffix not in (".npz", ".onnx"):
                path.unlink()
    words = arguments_of(exported, "--once", "--runtime", "onnx", weight, stream=stream)
    command = [sys.executable, "-c", WITHOUT_TORCH, json.dumps(words)]
    done = subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True)
    assert done.returncode == EXIT_OK, done.stderr
    assert_equal_to_files(exported, scored, tolerance=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize("stream", ["patchtst", pytest.param("swinmae", marks=pytest.mark.nightly)])
def test_control_charts_alone_need_neither_pytorch_nor_a_checkpoint(stream, trained):
    scored = scored_by_files(trained, stream=stream)
    shutil.rmtree(trained / "checkpoints")
    words = arguments_of(trained, "--once", "--detector", "charts", stream=stream)
    command = [sys.executable, "-c", WITHOUT_TORCH, json.dumps(words)]
    done = subprocess.run(command, cwd=REPO_ROOT, capture_output=True, text=True)
    assert done.returncode == EXIT_OK, done.stderr
    assert_equal_to_files(trained, scored)


@pytest.mark.nightly
def test_a_file_of_another_model_or_detector_is_refused(exported, capsys):
    def refused(*more: str) -> str:
        assert watch_once(exported, "--runtime", "onnx", *more) == EXIT_OUTPUT
        return capsys.readouterr().err.splitlines()[-1]

    assert "no patchtst_ssl.detector.npz" in refused()
    scored_by_files(exported, WEIGHT, detector="model")
    assert "data.window was 32, is 64" in refused(WEIGHT, "data.window=64")
    path = exported / CHECKPOINTS["patchtst"]
    file = exported_path(path)
    sidecar = path.with_suffix(".json")
    sidecar.write_text(sidecar.read_text().replace(describe(path)["sha256"], "0" * 64))
    assert file.name in refused(WEIGHT)
    path.unlink()
    shutil.copy(exported_path(exported / CHECKPOINTS["swinmae"]), file)
    assert "swinmae" in refused(WEIGHT)
    file.write_bytes(file.read_bytes()[:1000])
    assert "not an exported model" in refused(WEIGHT)
    file.unlink()
    assert "export-model" in refused(WEIGHT)
    assert not (exported / "artifacts/watch").is_dir() or not list((exported / "artifacts/watch").glob("*.jsonl"))


@pytest.mark.nightly
def test_a_file_that_differs_from_the_checkpoint_is_not_written(exported, monkeypatch):
    file = exported_path(exported / CHECKPOINTS["patchtst"])
    graph = file.read_bytes()
    file.unlink()
    monkeypatch.setattr(export_model, "_write", lambda path, *_: path.write_bytes(graph))
    monkeypatch.setattr(export_model, "TOLERANCE", 0.0)
    with pytest.raises(OutputError, match=r"\b\d+ windows"):
        export_model.export_model(configuration("patchtst", exported), root=exported)
    assert not file.exists()
    monkeypatch.setattr(export_model, "TOLERANCE", 1e-4)
    export_model.export_model(configuration("patchtst", exported), root=exported)
    assert file.read_bytes() == graph


def test_missing_packages_are_named(trained, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    words = ["patchtst", "--repo-root", str(trained), *OVERRIDES["patchtst"], *SHARED]
    assert export_model.main(words) == EXIT_USAGE
    assert "onnxscript" in capsys.readouterr().err.splitlines()[-1]
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert watch_once(trained, "--runtime", "onnx") == EXIT_USAGE
    assert "pip install onnxruntime" in capsys.readouterr().err.splitlines()[-1]
