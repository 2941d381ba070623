"""`landfall check`: available, required and unusual data, before training."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from core.config.compose import load_config, local_config_file
from core.data.dataset import load_stream_data
from core.errors import EXIT_DATA, EXIT_OK, DataError
from pipelines import check_data, check_data_quality
from tests.support.small_workspace import write_process_data


def pump(rows: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    load_t = np.sin(np.arange(rows) / 40)
    values = {"flow": 40 + 5 * load_t, "pressure": 6 + load_t, "current": 12 + 2 * load_t}
    frame = pd.DataFrame({name: each + 0.1 * rng.normal(size=rows) for name, each in values.items()})
    frame.insert(0, "timestamp", pd.date_range("2026-03-01", periods=rows, freq="s"))
    return frame


def write_wave(path: Path) -> None:
    """A minute of three axes at 1 kHz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.random.default_rng(0).normal(size=(60_000, 3)).astype(np.float32))
    path.with_suffix(".json").write_text('{"sampling_rate_hz": 1000}', encoding="utf-8")


def check(capsys, root: Path, *arguments: str | Path) -> tuple[int, dict]:
    code = check_data.main([*map(str, arguments), "--repo-root", str(root), "--json"])
    return code, json.loads(capsys.readouterr().out)


def texts(found: dict, severity: str) -> str:
    return "\n".join(each["text"] for each in found["findings"] if each["severity"] == severity)


@pytest.mark.nightly
def test_data_of_both_streams_is_ready_and_the_time_to_train_is_measured(workspace, capsys):
    write_process_data(workspace / "data/fdc")
    for name in ("train_1", "test_1"):
        write_wave(workspace / f"data/vib/{name}.npy")
    torch.set_num_threads(2)
    code, found = check(capsys, workspace, "training.epochs=3", "device.prefer=cpu", "max_threads=1")
    assert torch.get_num_threads() == 1, "measured with the threads of a training"
    assert code == EXIT_OK
    assert set(found) == {"patchtst", "swinmae"}
    for stream, one in found.items():
        assert one["ready"]
        assert one["next"].startswith(f"landfall train {stream} ")
        assert 0 < one["training_seconds"] < 3600
        assert all(split["is_enough"] for split in one["splits"])
    assert not (workspace / "artifacts").exists(), "nothing is written but the store"


def test_sample_data_is_named_with_its_folder(workspace, capsys):
    write_process_data(workspace / "samples/data/fdc")
    frame = pd.read_csv(workspace / "samples/data/fdc/test_1.csv")
    frame["stuck"] = 5.0
    frame.to_csv(workspace / "samples/data/fdc/test_1.csv", index=False)
    train = pd.read_csv(workspace / "samples/data/fdc/train_1.csv").columns.tolist()
    assert check_data.main(["--repo-root", str(workspace), "--no-time", f"data.channels=[{','.join(train[1:])}]"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert "samples/" in first
    _, found = check(capsys, workspace, "--no-time")
    assert "samples/data/fdc/test_1.csv" in "\n".join(
        texts(found["patchtst"], each) for each in ("stop", "warn", "note")
    )


def test_a_problem_of_many_files_is_shown_once(workspace, capsys):
    names = [*(f"train_{number}.npy" for number in range(5)), "test_1.npy"]
    for name in names:
        wave = workspace / "data/vib" / name
        write_wave(wave)
        wave.with_suffix(".json").unlink()
    assert check_data.main(["--stream", "swinmae", "--repo-root", str(workspace)]) == EXIT_DATA
    found = capsys.readouterr().out
    assert [name in found for name in names] == [True] * 3 + [False] * 3
    assert "3 more: the sampling rate is unknown" in found
    assert found.count("data.sampling_rate_hz=") == 1
    code, after = check(capsys, workspace, "--stream", "swinmae", "--no-time", "data.sampling_rate_hz=1000")
    assert code == EXIT_OK
    assert after["swinmae"]["next"] == "landfall train swinmae data.sampling_rate_hz=1000"


def test_many_short_runs_are_ready_and_their_warnings_are_summarised(workspace, capsys):
    for number in range(30):
        frame = pump(110, seed=number)
        frame["timestamp"] += pd.Timedelta(hours=number)
        frame.loc[: 60 + number, "flow"] = 40.0
        frame["run"], frame["unused"] = number, 0
        frame["valve"] = 1 if number else np.arange(110) % 2
        file = workspace / f"data/fdc/{'train' if number < 25 else 'test'}_{number}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        frame.to_csv(file, index=False)
    code = check_data.main(["--stream", "patchtst", "--repo-root", str(workspace), "--no-time"])
    text = capsys.readouterr().out
    assert code == EXIT_OK
    assert "each recording belongs to one split" in text
    (stuck,) = [line for line in text.splitlines() if "one value repeats" in line]
    assert "data/fdc/test_29.csv: flow: one value repeats without a break for 81.82 %" in stuck
    assert "29 more in 30 files, of flow; `landfall quality` writes all to artifacts/dqvl/fdc" in stuck
    for line in (
        "train_0.csv and 29 more: constant: unused",
        "'data.exclude=[unused]' leaves them out",
        "train_0.csv and 29 more: constant in each file, but not the same in all: run",
        "'data.exclude=[run]' leaves them out, as is necessary for the number of a run",
        "train_1.csv: constant in some files only: valve (29 files)",
    ):
        assert line in text, line


def test_few_short_runs_need_longer_or_more_files(workspace, capsys):
    def write(count: int) -> tuple[int, dict]:
        for number in range(count):
            file = workspace / f"data/fdc/{'train' if number else 'test'}_{number}.csv"
            file.parent.mkdir(parents=True, exist_ok=True)
            pump(110, seed=number).to_csv(file, index=False)
        return check(capsys, workspace, "--no-time")

    code, found = write(6)
    (hint,) = [each["hint"] for each in found["patchtst"]["findings"] if each["severity"] == "stop"]
    assert (code, hint.startswith("record 214 rows or more without a gap in one file, or 7 files or more, or")) == (
        EXIT_DATA, True,
    )  # fmt: skip
    assert write(8)[0] == EXIT_OK


def test_runs_of_a_recipe_that_are_divided_by_time_are_named(workspace, capsys):
    for number in range(5):
        frame = pump(1_000, seed=number)
        frame["timestamp"] += pd.Timedelta(hours=number)
        (workspace / "data/fdc").mkdir(parents=True, exist_ok=True)
        frame.to_csv(workspace / f"data/fdc/train_{number}.csv", index=False)
    frame.to_csv(workspace / "data/fdc/test_1.csv", index=False)
    overrides = [f"data.splits.{name}.by=recording" for name in ("train", "validation", "calibration")]
    for given, is_named in (([], True), (overrides, False)):
        _, found = check(capsys, workspace, "--stream", "patchtst", "--no-time", *given)
        findings = [each for each in found["patchtst"]["findings"] if "take the same course" in each["text"]]
        assert bool(findings) == is_named
        assert all("by: recording" in each["hint"] for each in findings)


def test_a_stream_without_data_is_left_out(workspace, capsys):
    write_process_data(workspace / "data/fdc")
    code, found = check(capsys, workspace, "--no-time")
    assert code == EXIT_OK
    assert set(found) == {"patchtst"}


@pytest.mark.parametrize("rows", [40, 90, 200, 230, 260])
def test_the_reported_number_of_rows_is_sufficient(workspace, tmp_path, capsys, rows):
    file = tmp_path / "own" / "pump.csv"
    file.parent.mkdir()
    pump(rows).to_csv(file, index=False)
    code, found = check(capsys, workspace, file, "--no-time")
    short = [split for split in found["patchtst"]["splits"] if not split["is_enough"]]
    assert code == EXIT_DATA
    assert short
    needed = max(split["file_rows_needed"] for split in short)
    assert needed > rows
    pump(needed).to_csv(file, index=False)
    assert check(capsys, workspace, file, "--no-time")[0] == EXIT_OK


def test_too_few_windows_of_calibration_are_counted(workspace, capsys):
    folder = workspace / "data/vib"
    folder.mkdir(parents=True)
    for number in range(60):
        values_ta = np.random.default_rng(number).normal(size=(2_560, 2)).astype(np.float32)
        np.save(folder / f"{'train' if number < 59 else 'test'}_{number}.npy", values_ta)
    settings = ("data.sampling_rate_hz=25600", "data.window=2048")
    code, found = check(capsys, workspace, "--no-time", *settings)
    (stop,) = [finding for finding in found["swinmae"]["findings"] if finding["severity"] == "stop"]
    assert (code, stop["text"]) == (EXIT_DATA, "the split calibration has 42 windows of 2,048 rows; it needs 50")
    assert "1.2 times" in stop["hint"]
    assert check(capsys, workspace, "--no-time", settings[0])[0] == EXIT_OK


def test_without_data_each_stream_reports_what_to_copy_where(workspace, capsys):
    code, found = check(capsys, workspace, "--no-time")
    assert code == EXIT_DATA
    for stream, folder in (("patchtst", "data/fdc"), ("swinmae", "data/vib")):
        (finding,) = found[stream]["findings"]
        assert folder in finding["text"]
        assert all(word in finding["hint"] for word in (folder, "train_*", "test_*", "docs/your-data.md"))


def test_quality_without_arguments_judges_the_streams_in_use(workspace, capsys):
    write_process_data(workspace / "data/fdc")
    assert check_data_quality.main(["--repo-root", str(workspace)]) == EXIT_OK
    assert set(json.loads(capsys.readouterr().out)) == {"patchtst"}
    assert list((workspace / "artifacts/dqvl/fdc").glob("*.json"))


def test_a_split_without_rows_reports_the_number_needed(workspace):
    (workspace / "data/fdc").mkdir(parents=True)
    pump(60).to_csv(workspace / "data/fdc/train_1.csv", index=False)
    config = load_config(local_config_file("patchtst"), root=workspace).config
    with pytest.raises(DataError) as raised:
        load_stream_data(config, root=workspace, splits=["train", "validation"])
    assert "214 rows" in raised.value.message
    assert "landfall check" in raised.value.hint


def test_each_fault_is_reported_once_and_without_what_follows_from_it(workspace, capsys):
    (workspace / "data/fdc").mkdir(parents=True)
    pump(2000).to_csv(workspace / "data/fdc/train_1.csv", index=False)
    _, found = check(capsys, workspace, "--no-time")
    (missing,) = (each for each in found["patchtst"]["findings"] if each["severity"] == "stop")
    assert "test_*" in missing["text"]
    assert "sample-data" not in missing["hint"], "files of one's own hide it"
    assert [split["name"] for split in found["patchtst"]["splits"]] == ["train", "validation", "calibration"]
    pump(2000).rename(columns={"flow": "flux"}).to_csv(workspace / "data/fdc/test_1.csv", index=False)
    _, found = check(capsys, workspace, "--no-time")
    (differs,) = (each["text"] for each in found["patchtst"]["findings"] if each["severity"] == "stop")
    assert differs.index("test_1.csv") < differs.index("train_1.csv") < differs.index("flow") < differs.index("flux")
    assert found["patchtst"]["splits"] == []
    (workspace / "data/fdc/train_1.csv").unlink()
    _, found = check(capsys, workspace, "--no-time")
    assert texts(found["patchtst"], "stop").count("\n") == 0


def test_unusual_data_is_named(workspace, tmp_path, capsys):
    frame = pump(2000)
    frame["setpoint"], frame["copy"], frame["flow_lpm"] = 5.0, frame["flow"], frame["flow"] * 1000 / 60
    frame["operator"] = "early shift"
    frame.loc[::5, "current"] = np.nan
    frame.drop(index=range(300, 400)).to_csv(tmp_path / "pump.csv", index=False)
    code, found = check(capsys, workspace, tmp_path / "pump.csv", "--no-time")
    warned, noted = (texts(found["patchtst"], severity) for severity in ("warn", "note"))
    assert code == EXIT_OK
    for text in (
        "gaps in time: 1",
        "constant: setpoint",
        "copy has the values of flow",
        "flow_lpm moves exactly",
        "20.",
    ):
        assert text in warned, text
    assert warned.count("duplicate") == 2, "each copy once"
    assert "operator" in noted
    assert "false events" in noted, "half an hour says nothing about events per day"


def test_every_faulty_file_is_named(workspace, tmp_path, capsys):
    pump(1000).to_csv(tmp_path / "train_1.csv", index=False)
    pump(1000).drop(columns="flow").to_csv(tmp_path / "train_2.csv", index=False)
    (tmp_path / "train_3.csv").write_text("", encoding="utf-8")
    (tmp_path / "train_4.csv").write_text("timestamp;a\n2026-01-01 00:00:00;1,5\n2026-01-01 00:00:01;1.5\n")
    code, found = check(capsys, workspace, tmp_path, "--no-time", "--stream", "patchtst")
    stopped = texts(found["patchtst"], "stop")
    assert code == EXIT_DATA
    assert all(name in stopped for name in ("train_2.csv", "train_3.csv", "train_4.csv"))
    assert found["patchtst"]["next"] is None


def test_irregular_and_different_sampling_is_named(workspace, tmp_path, capsys):
    slow, fast = pump(1000), pump(1000)
    slow["timestamp"] = pd.date_range("2026-04-01", periods=1000, freq="2s")
    fast["timestamp"] += pd.to_timedelta(np.where(np.arange(1000) % 10 == 5, 0.3, 0.0), unit="s")
    slow.to_csv(tmp_path / "train_slow.csv", index=False)
    fast.to_csv(tmp_path / "train_fast.csv", index=False)
    _, found = check(capsys, workspace, tmp_path, "--no-time", "--stream", "patchtst")
    warned = texts(found["patchtst"], "warn")
    assert "train_fast.csv: 20" in warned, "a shifted stamp makes two steps irregular"
    assert "different sampling: 1 s in train_fast.csv, 2 s in train_slow.csv" in warned


def test_files_with_fewer_decimals_than_those_to_train_on_are_named(workspace, tmp_path, capsys):
    rounded = {
        "train_1": {},
        "test_1": {"pressure": 1, "flow": 2},
        "test_2": {"pressure": 1},
        "test_3": {"pressure": 3},
    }
    for name, decimals in rounded.items():
        frame = pump(1000)
        for channel, number in decimals.items():
            frame[channel] = frame[channel].round(number)
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    _, found = check(capsys, workspace, tmp_path, "--no-time", "--stream", "patchtst")
    warned = texts(found["patchtst"], "warn")
    assert "test_1.csv and 1 more: fewer decimals than in the files to train on: pressure" in warned
    assert "flow" not in warned, "rounding hardly changes it"
    assert "test_3" not in warned


def test_speeds_of_sidecars_that_are_not_used_are_named(workspace, tmp_path, capsys):
    rng = np.random.default_rng(0)
    for number, rpm in enumerate((900, 1200, 1500, 1800)):
        np.save(tmp_path / f"train_{number}.npy", rng.normal(size=(40_000, 3)).astype(np.float32))
        facts = {"sampling_rate_hz": 6400, "rpm": rpm, "load": 0.5, "speed_class": "slow"}
        (tmp_path / f"train_{number}.json").write_text(json.dumps(facts))
    named = "the sidecars have operating points: rpm from 900 to 1800"
    known = "data.context_channels=[rpm]"
    _, found = check(capsys, workspace, tmp_path, "--no-time")
    assert named in texts(found["swinmae"], "note")
    assert known in json.dumps(found["swinmae"]["findings"])
    _, found = check(capsys, workspace, tmp_path, "--no-time", known)
    assert named not in texts(found["swinmae"], "note")
    _, found = check(capsys, workspace, tmp_path, "--no-time", "data.context_channels=[torque]")
    assert "its sidecar has no torque" in texts(found["swinmae"], "stop")


def test_a_file_that_the_quality_check_drops_is_named(workspace, tmp_path, capsys):
    frame = pump(1000)
    frame.loc[::2, ["flow", "pressure", "current"]] = np.nan
    frame.to_csv(tmp_path / "train_1.csv", index=False)
    drop = "dqvl.hard.missing_ratio=0.4"
    code, found = check(capsys, workspace, tmp_path, drop, "--no-time", "--stream", "patchtst")
    assert (code, found["patchtst"]["rows"], found["patchtst"]["splits"]) == (EXIT_DATA, 0, [])
    assert "train_1.csv is not used" in texts(found["patchtst"], "stop")


def test_data_without_times_is_counted_in_rows(workspace, tmp_path, capsys):
    pump(1000).drop(columns="timestamp").to_csv(tmp_path / "train_1.csv", index=False)
    code, found = check(capsys, workspace, tmp_path, "--no-time")
    assert code == EXIT_OK
    assert {split["seconds"] for split in found["patchtst"]["splits"]} == {None}
    check_data.main([str(tmp_path), "--repo-root", str(workspace), "--no-time"])
    assert "no time stamps" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["absent.csv", "notes.md", "empty"])
def test_a_path_without_sensor_files_is_an_error(workspace, tmp_path, capsys, name):
    (tmp_path / "notes.md").touch()
    (tmp_path / "empty").mkdir()
    assert check_data.main([str(tmp_path / name), "--repo-root", str(workspace)]) == EXIT_DATA
    assert name in capsys.readouterr().err


def test_a_folder_with_the_name_of_a_sensor_file_is_an_error(workspace, tmp_path, capsys):
    pump(100).to_csv(tmp_path / "train_1.csv", index=False)
    (tmp_path / "train_3.csv").mkdir()
    assert check_data.main([str(tmp_path), "--repo-root", str(workspace)]) == EXIT_DATA
    assert "train_3.csv" in capsys.readouterr().err


def test_a_stream_given_as_a_path_is_recognised(workspace, monkeypatch, capsys):
    monkeypatch.chdir(workspace)
    assert check_data.main(["patchts", "--repo-root", str(workspace)]) == EXIT_DATA
    assert "--stream patchtst" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name, stream", [("wave.npy", "swinmae"), ("axes.csv", "swinmae"), ("sensors.csv", "patchtst")]
)
def test_the_stream_of_a_file_is_recognised_from_its_content(workspace, tmp_path, capsys, name, stream):
    rng = np.random.default_rng(0)
    if name == "wave.npy":
        write_wave(tmp_path / name)
    elif name == "axes.csv":
        frame = pd.DataFrame(rng.normal(size=(60_000, 3)), columns=list("xyz"))
        frame.insert(0, "timestamp", pd.date_range("2026-01-01", periods=60_000, freq="ms"))
        frame.to_csv(tmp_path / name, index=False)
    else:
        pump(1000).to_csv(tmp_path / name, index=False)
    code, found = check(capsys, workspace, tmp_path / name, "--no-time")
    assert code == EXIT_OK, found
    assert set(found) == {stream}
    assert str(tmp_path / name) in found[stream]["next"]


@pytest.mark.parametrize("prefixes", [("train_", "test_"), ("", "TEST")])
def test_the_next_command_copies_every_file_with_labels_and_sidecars(workspace, tmp_path, capsys, prefixes):
    source = tmp_path / "my export"
    source.mkdir()
    for name in (*(f"{prefixes[0]}pump_{number}" for number in (1, 2)), f"{prefixes[1]}pump_3"):
        pump(1000).to_csv(source / f"{name}.csv", index=False)
        (source / f"{name}.json").write_text("{}", encoding="utf-8")
    (source / f"{prefixes[1]}pump_3.labels.csv").write_text("start,end\n3,5\n", encoding="utf-8")
    (source / "dataset.json").write_text("{}", encoding="utf-8")
    code, found = check(capsys, workspace, source, "--no-time")
    assert code == EXIT_OK
    subprocess.run(["sh", "-c", found["patchtst"]["next"]], cwd=workspace, check=True)
    copied = sorted(file.name.lower() for file in (workspace / "data/fdc").iterdir())
    third = "test_pump_3" if prefixes[0] else "test_testpump_3"
    expected = {f"{name}.{suffix}" for name in ("train_pump_1", "train_pump_2", third) for suffix in ("csv", "json")}
    assert copied == sorted(expected | {f"{third}.labels.csv", "dataset.json"})
    assert check(capsys, workspace, "--no-time")[1]["patchtst"]["next"] == "landfall train patchtst"


def test_the_next_command_names_files_where_a_glob_would_match_others(workspace, tmp_path, capsys):
    for number in (1, 2):
        pump(1000).to_csv(tmp_path / f"train_{number}.csv", index=False)
    (tmp_path / "train_notes.md").touch()
    _, found = check(capsys, workspace, tmp_path, "--no-time")
    subprocess.run(["sh", "-c", found["patchtst"]["next"]], cwd=workspace, check=True)
    assert {file.name for file in (workspace / "data/fdc").iterdir()} == {"train_1.csv", "train_2.csv"}


def test_the_text_ends_with_the_next_step(workspace, capsys):
    write_process_data(workspace / "data/fdc")
    arguments = ["--repo-root", str(workspace), "--no-time"]
    assert check_data.main(arguments) == EXIT_OK
    assert capsys.readouterr().out.splitlines()[-1].endswith("landfall train patchtst")
    (workspace / "data/fdc/train_2.csv").write_text("", encoding="utf-8")
    assert check_data.main(arguments) == EXIT_DATA
    expected = capsys.readouterr().out
    assert "✗" in expected
    assert "not ready: 1" in expected.splitlines()[-1]


def test_the_override_of_a_hint_can_be_pasted_into_a_shell(workspace, tmp_path, capsys):
    frame = pump(1000).rename(columns={"flow": "flow [l/min]"})
    frame["copy, of flow"] = 2 * frame["flow [l/min]"]
    frame["unused %"] = 1.0
    frame.to_csv(tmp_path / "train_1.csv", index=False)
    excluded: list[str] = []
    for _ in range(2):
        _, found = check(capsys, workspace, tmp_path, "--no-time", "--stream", "patchtst", *excluded)
        hints = [each["hint"] for each in found["patchtst"]["findings"] if "data.exclude" in each["hint"]]
        assert hints, "each hint is followed, one after the other"
        excluded = shlex.split(hints[-1])[:1]
    _, found = check(capsys, workspace, tmp_path, "--no-time", "--stream", "patchtst", *excluded)
    assert found["patchtst"]["channels"] == ["flow [l/min]", "pressure", "current"]


def test_a_constant_channel_does_not_count_as_rounded(workspace, tmp_path, capsys):
    frame = pump(1000)
    frame.to_csv(tmp_path / "train_1.csv", index=False)
    frame.assign(pressure=6.0).to_csv(tmp_path / "test_1.csv", index=False)
    _, found = check(capsys, workspace, tmp_path, "--no-time", "--stream", "patchtst")
    assert "fewer decimals" not in texts(found["patchtst"], "warn")


def test_a_column_that_only_some_files_have_is_named_with_the_override_that_leaves_it_out(workspace, capsys):
    folder = workspace / "data/fdc"
    folder.mkdir(parents=True)
    pump(1000).to_csv(folder / "train_1.csv", index=False)
    pump(1000).assign(alarm=0).to_csv(folder / "test_1.csv", index=False)
    code, found = check(capsys, workspace, "--no-time", "--stream", "patchtst")
    (stop,) = [each for each in found["patchtst"]["findings"] if each["severity"] == "stop"]
    assert code == EXIT_DATA
    assert "1 additional (alarm)" in stop["text"]
    code, found = check(capsys, workspace, "--no-time", "--stream", "patchtst", shlex.split(stop["hint"])[0])
    assert code == EXIT_OK


def test_channels_in_another_order_are_read_in_the_order_that_the_hint_names(workspace, capsys):
    folder = workspace / "data/fdc"
    folder.mkdir(parents=True)
    frame = pump(1000)
    frame.to_csv(folder / "train_1.csv", index=False)
    frame[["timestamp", "current", "pressure", "flow"]].to_csv(folder / "test_1.csv", index=False)
    _, found = check(capsys, workspace, "--no-time", "--stream", "patchtst")
    (stop,) = [each for each in found["patchtst"]["findings"] if each["severity"] == "stop"]
    assert "another order" in stop["text"]
    override = stop["hint"].partition("(")[2].partition(")")[0]
    code, found = check(capsys, workspace, "--no-time", "--stream", "patchtst", *shlex.split(override))
    assert (code, found["patchtst"]["channels"]) == (EXIT_OK, ["flow", "pressure", "current"])


def test_what_scoring_would_refuse_is_reported_before_training(workspace, capsys):
    folder = workspace / "data/fdc"
    folder.mkdir(parents=True)
    for name in ("train_1", "test_1"):
        pump(1000).to_csv(folder / f"{name}.csv", index=False)
    code, _ = check(capsys, workspace, "--no-time", "--stream", "patchtst")
    assert code == EXIT_OK
    (folder / "test_1.labels.csv").write_text("from,to\n1,2\n")
    code, found = check(capsys, workspace, "--no-time", "--stream", "patchtst")
    assert code == EXIT_DATA
    assert "test_1.labels.csv: its columns are from, to" in texts(found["patchtst"], "stop")
    (folder / "test_1.labels.csv").unlink()
    code, found = check(capsys, workspace, "--no-time", "--stream", "patchtst", "data.context_channels=[recipe]")
    assert code == EXIT_DATA
    assert "'recipe' of data.context_channels is not a channel" in texts(found["patchtst"], "stop")


def test_files_of_other_formats_are_named(workspace, capsys):
    folder = workspace / "data/vib"
    folder.mkdir(parents=True)
    (folder / "train_1.wav").write_bytes(b"RIFF")
    _, found = check(capsys, workspace, "--no-time", "--stream", "swinmae")
    assert "no sensor file train_*; train_1.wav has another format" in texts(found["swinmae"], "stop")
    for name in ("train_1", "test_1"):
        write_wave(folder / f"{name}.npy")
    code, found = check(capsys, workspace, "--no-time", "--stream", "swinmae")
    assert code == EXIT_OK
    assert "data/vib/train_1.wav: not read" in texts(found["swinmae"], "warn")


def test_files_that_need_another_format_or_name_are_named_where_nothing_can_be_read(workspace, tmp_path, capsys):
    folder = workspace / "data/fdc"
    folder.mkdir(parents=True)
    (tmp_path / "export").mkdir()
    for number in (1, 2):
        (tmp_path / f"export/Batch_{number}.xlsx").write_bytes(b"PK")
        (folder / f"Batch_{number}.xlsx").write_bytes(b"PK")
    assert check_data.main([str(tmp_path / "export"), "--repo-root", str(workspace)]) == EXIT_DATA
    assert "has no sensor file; Batch_1.xlsx and 1 more have another format" in capsys.readouterr().err

    def named() -> str:
        _, found = check(capsys, workspace, "--no-time", "--stream", "patchtst")
        (first, *_) = [f"{each['text']}: {each['hint']}" for each in found["patchtst"]["findings"]]
        return first

    assert "no sensor file train_*; Batch_1.xlsx and 1 more have another format" in named()
    assert "Excel" in named()
    (folder / "Batch_1.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    assert "no sensor file train_*; Batch_1.csv has another name" in named()


def test_files_that_belong_to_no_split_are_named(workspace, capsys):
    folder = workspace / "data/fdc"
    (folder / "line_2").mkdir(parents=True)
    for name in ("train_1", "test_1"):
        pump(1000).to_csv(folder / f"{name}.csv", index=False)
    _, found = check(capsys, workspace, "--no-time", "--stream", "patchtst")
    assert "in no split" not in texts(found["patchtst"], "note")
    for name in ("Test_2", "line_2/test_1"):
        pump(1000).to_csv(folder / f"{name}.csv", index=False)
    _, found = check(capsys, workspace, "--no-time", "--stream", "patchtst")
    assert "data/fdc/Test_2.csv and 1 more: in no split" in texts(found["patchtst"], "note")
    _, found = check(capsys, workspace, folder / "train_1.csv", "--no-time")
    assert "in no split" not in texts(found["patchtst"], "note"), "only the file that was named is checked"


def test_a_file_to_score_that_is_a_copy_of_one_to_learn_from_is_named(workspace, capsys, caplog):
    folder = workspace / "data/fdc"
    folder.mkdir(parents=True)
    for name in ("train_1", "test_1"):
        pump(1000).to_csv(folder / f"{name}.csv", index=False)
    _, found = check(capsys, workspace, "--no-time", "--stream", "patchtst")
    assert "data/fdc/test_1.csv has the content of data/fdc/train_1.csv" in texts(found["patchtst"], "warn")
    load_stream_data(load_config(local_config_file("patchtst"), root=workspace).config, root=workspace)
    assert "has the content of" in caplog.text


def test_the_log_names_a_recording_that_is_shorter_than_a_window(workspace, caplog):
    folder = workspace / "data/fdc"
    folder.mkdir(parents=True)
    for name, rows in (("train_1", 1000), ("test_1", 1000), ("test_2", 5)):
        pump(rows, seed=rows).to_csv(folder / f"{name}.csv", index=False)
    load_stream_data(load_config(local_config_file("patchtst"), root=workspace).config, root=workspace)
    assert "left out, the first in data/fdc/test_2.csv" in caplog.text


def test_a_channel_that_only_increases_is_named(workspace, tmp_path, capsys):
    for number in range(2):
        frame = pump(1000, seed=number).drop(columns="timestamp")
        frame["Zeit"] = np.arange(len(frame))
        frame["meter"] = np.cumsum(np.maximum(frame["flow"], 0))
        frame.loc[100, "meter"] = np.nan
        frame["valve"] = (frame["Zeit"] > 500).astype(int)
        frame["hours"] = (7000 + (frame["Zeit"] + 1000 * number) / 360).round(1)
        frame["step"] = frame["Zeit"] // 90
        frame.to_csv(tmp_path / f"train_{number}.csv", index=False)
    _, found = check(capsys, workspace, tmp_path, "--no-time", "--stream", "patchtst")
    assert "only increasing, as a time or a meter: Zeit, meter, hours" in texts(found["patchtst"], "warn").splitlines()
    _, found = check(
        capsys, workspace, tmp_path, "--no-time", "--stream", "patchtst", "data.exclude=[Zeit,meter,hours]"
    )
    assert "only increasing" not in texts(found["patchtst"], "warn")
