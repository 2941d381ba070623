"""Every rule detects its defect and nothing else; cleaning and segmentation keep rows in place."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import numpy as np
import pytest

from core.config.data import HardLimits, WarnLimits
from core.config.schema import Data, Quality
from core.data import quality
from core.data.cleaning import cleaned
from core.data.files import expand
from core.data.quality import RULES, write_report
from core.data.quality_metrics import measure
from core.data.readers import read_recordings
from core.data.recording import NOT_A_TIME, Recording
from tests.support import SHARED_DATA, needs_shared_data

_S = 1_000_000_000
LIMITS = Quality(report_dir="artifacts/dqvl/fdc")


def recording(values_tc=None, *, time_ns=None, rows=2000, rate=1.0, source="timestamp", file_id="data/f.csv"):
    """White noise of three channels, one row a second, by default."""
    if values_tc is None:
        values_tc = np.random.default_rng(0).standard_normal((rows, 3))
    values_tc = np.asarray(values_tc, dtype=np.float32)
    if time_ns is None:
        time_ns = np.arange(len(values_tc)) * int(_S / rate)
    channels = tuple("abcdefgh"[: values_tc.shape[1]])
    return Recording(file_id, Path(file_id), values_tc, np.asarray(time_ns, dtype=np.int64), channels, rate, source)


def judge(found, *, stream="patchtst", limits=LIMITS, run_id=""):
    metrics = measure(found, cleaned(found, 10.0), stream=stream)
    return quality.judge(metrics, limits, stream=stream, file_id=found.file_id, run_id=run_id)


def fired(report):
    return {finding.rule for finding in (*report.hard_fails, *report.warnings)}


def changed(change, rows=2000):
    """A recording whose values (T, C) and times were changed in place."""
    found = recording(rows=rows)
    values_tc, time_ns = found.values_tc.copy(), found.time_ns.copy()
    change(values_tc, time_ns)
    return dataclasses.replace(found, values_tc=values_tc, time_ns=time_ns)


@pytest.mark.parametrize("stream", ["patchtst", "swinmae"])
def test_good_data_triggers_no_rule(stream):
    report = judge(recording(), stream=stream, run_id="r1")
    assert fired(report) == set()
    assert (report.decision, report.run_id, report.schema_version) == ("keep", "r1", 1)


# --------------------------------------------------------------------------------------------------------- single rules
def lose_times(values_tc, time_ns):
    time_ns[10:60] = NOT_A_TIME


def shuffle_times(values_tc, time_ns):
    time_ns[:] = np.random.default_rng(1).permutation(time_ns)


def repeat_times(values_tc, time_ns):
    time_ns[1000:] = time_ns[999]


def lose_values(values_tc, time_ns):
    values_tc[:, :2] = np.nan


def freeze_all(values_tc, time_ns):
    values_tc[:] = 5.0


def leave_gap(values_tc, time_ns):
    time_ns[1000:] += 500 * _S


def lose_some(values_tc, time_ns):
    values_tc[::10, 1] = np.nan


def stick(values_tc, time_ns):
    values_tc[400:1600, 1] = 0.5


def jump(values_tc, time_ns):
    values_tc[700, 1] += 40


def clip(values_tc, time_ns):
    np.clip(values_tc[:, 1], -1, 1, out=values_tc[:, 1])


DEFECTS = {
    "invalid_timestamps": (lose_times, "hard", None),
    "non_monotonic": (shuffle_times, "hard", None),
    "duplicates": (repeat_times, "hard", None),
    "missing": (lose_values, "hard", None),
    "constant_channels": (freeze_all, "hard", None),
    "gaps": (leave_gap, "warn", None),
    "missing_channel": (lose_some, "warn", "b"),
    "stuck": (stick, "warn", "b"),
    "jumps": (jump, "warn", "b"),
    "clipping": (clip, "warn", "b"),
}


@pytest.mark.parametrize("rule", DEFECTS)
def test_each_rule_is_triggered_by_its_defect(rule):
    change, severity, channel = DEFECTS[rule]
    report = judge(changed(change))
    findings = report.hard_fails if severity == "hard" else report.warnings
    (finding,) = [found for found in findings if found.rule == rule and found.channel in (channel, None)]
    assert finding.value > finding.limit
    assert finding.channel == channel
    assert report.decision == ("drop" if severity == "hard" else "keep")


def test_a_value_that_repeats_far_longer_than_in_the_reference_is_a_stuck_sensor():
    def report(name, rows):
        values_tc = np.random.default_rng(0).standard_normal((1_000, 4)).round(1)
        values_tc[100 : 100 + rows] = values_tc[100]  # all channels
        values_tc[:, 2] = np.arange(1_000) % 100 > 60 if name != "test" else 1  # a switch
        values_tc[:, 3] = 0.0 if name == "train_1" else values_tc[:, 3]
        return judge(recording(values_tc, file_id=name))

    train = [report("train_1", 4), report("train_2", 6)]
    for rows, expected in ((150, {"a", "b"}), (50, set())):
        *same, compared = quality.with_long_runs([*train, report("test", rows)], {"train_1", "train_2"})
        assert same == train
        found = [each for each in compared.warnings if each.rule == "long_run"]
        assert {each.channel for each in found} == expected
        assert all((each.value, each.limit) == (150, 60) for each in found)
    assert quality.with_long_runs([report("test", 150)], ()) == [report("test", 150)], "nothing to compare with"


def test_every_rule_is_tested():
    vibration = {"sampling_rate", "rms_low", "rms_high", "flat"}
    assert {rule.id for rule in RULES} == DEFECTS.keys() | vibration
    assert {rule.id for rule in RULES if rule.streams == ("swinmae",)} == vibration


def test_vibration_rules():
    flat = recording(np.repeat(np.random.default_rng(0).standard_normal((500, 3)), 4, axis=0), source="sampling_rate")
    assert fired(judge(flat, stream="swinmae")) == {"flat"}
    assert fired(judge(flat, stream="patchtst")) == set()

    limits = LIMITS.model_copy(update={"hard": HardLimits(rms_min=0.5, rms_max=2.0)})
    values_tc = np.random.default_rng(0).standard_normal((2000, 3)) * [0.1, 1.0, 10.0] + 100
    report = judge(recording(values_tc), stream="swinmae", limits=limits)
    assert [(fail.rule, fail.channel) for fail in report.hard_fails] == [("rms_low", "a"), ("rms_high", "c")]
    assert report.metrics["channels"]["b"]["rms"] == pytest.approx(1.0, rel=0.1)
    assert fired(judge(recording(values_tc), stream="patchtst", limits=limits)) == set()


def test_the_sampling_rate_is_compared_with_the_time_stamps():
    found = recording(rate=1000.0)
    assert fired(judge(dataclasses.replace(found, sampling_rate_hz=1040.0), stream="swinmae")) == set()
    report = judge(dataclasses.replace(found, sampling_rate_hz=2000.0), stream="swinmae")
    assert [fail.rule for fail in report.hard_fails] == ["sampling_rate"]
    assert report.metrics["sampling_rate_mismatch"] == pytest.approx(0.5)
    unstamped = dataclasses.replace(found, time_source="sampling_rate", sampling_rate_hz=9.0)
    assert fired(judge(unstamped, stream="swinmae")) == set()


# ------------------------------------------------------------------------------------------------------ jumps, clipping
def test_one_jump_of_a_constant_channel_is_reported():
    values_tc = np.full((1000, 1), 20.0)
    values_tc[500] = 21
    assert "jumps" in fired(judge(recording(values_tc)))
    switch_tc = (np.arange(1000) > 990).astype(float)[:, None]
    (found,) = [each for each in judge(recording(switch_tc)).warnings if each.rule == "jumps"]
    assert found.value == pytest.approx(10_000), "the scale of a channel that is mostly 0 is not 0"


def test_regular_switching_is_not_a_jump_but_an_outlier_is():
    values_tc = np.tile(np.repeat([0.0, 1.0], 40), 50)[:, None]
    assert "jumps" not in fired(judge(recording(values_tc)))
    values_tc[2000] = 50
    assert "jumps" in fired(judge(recording(values_tc)))


def test_many_jumps_do_not_raise_the_limit():
    """Compared with the 99.9th percentile of the data, twenty jumps in 2,000 rows would not be detected."""
    values_tc = np.random.default_rng(0).standard_normal((2000, 1))
    values_tc[50::100] += 60
    assert "jumps" in fired(judge(recording(values_tc)))


def test_a_level_change_across_a_gap_is_not_a_jump():
    found = changed(leave_gap)
    found.values_tc[1000:] += 60
    assert fired(judge(found)) == {"gaps"}


def test_discrete_channels_are_not_clipped():
    values_tc = np.random.default_rng(0).integers(0, 4, (2000, 1))
    assert judge(recording(values_tc)).metrics["channels"]["a"]["clipping_ratio"] is None


def test_values_are_measured_in_order_of_time():
    ramp_tc = np.linspace(0, 100, 2000)[:, None] + 0.01 * np.random.default_rng(0).standard_normal((2000, 1))
    order = np.r_[1000:2000, 0:1000]
    found = recording(ramp_tc[order], time_ns=order * _S)
    assert fired(judge(found)) == set()


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_a_file_with_very_few_rows_is_reported(rows):
    report = judge(recording(np.ones((rows, 2))))
    json.loads(report.to_json())
    assert report.decision == ("drop" if rows != 1 else "keep")


def test_an_all_missing_channel_triggers_only_the_missing_rule():
    found = changed(lambda values_tc, time_ns: values_tc[:, 1].fill(np.nan))
    assert fired(judge(found)) == {"missing_channel"}


def test_limits_come_from_the_configuration():
    found = changed(leave_gap)
    assert fired(judge(found, limits=LIMITS.model_copy(update={"warn": WarnLimits(gap_count=1)}))) == set()


# -------------------------------------------------------------------------------------------------------------- reports
def test_reports_of_equal_file_names_are_separate_strict_json(tmp_path):
    ids = ["data/a/run 1.csv", "data/b/run 1.csv", "data/a/run_1.csv", "set.npz#0", "set.npz#1", "../../etc/passwd"]
    paths = {write_report(judge(recording(file_id=file_id)), tmp_path / "dqvl") for file_id in ids}
    assert len(paths) == len(ids)
    assert {path.parent for path in paths} == {tmp_path / "dqvl"}
    written = json.loads(write_report(judge(changed(jump)), tmp_path).read_text())
    assert written["warnings"][0]["rule"] == "jumps"
    assert written["metrics"]["channels"]["b"]["largest_jump_sigma"] > 12


# ----------------------------------------------------------------------------------------------- cleaning and segments
def test_cleaning_ordered_rows_copies_nothing():
    found = recording()
    assert cleaned(found, 10.0).values_tc is found.values_tc


def test_cleaning_sorts_rows_and_keeps_the_first_duplicate():
    found = recording(np.arange(6)[:, None], time_ns=[3 * _S, NOT_A_TIME, 1 * _S, 3 * _S, 2 * _S, 1 * _S])
    clean = cleaned(found, 10.0)
    assert clean.time_ns.tolist() == [1 * _S, 2 * _S, 3 * _S]
    assert clean.values_tc[:, 0].tolist() == [2, 4, 0]
    assert [note.partition(" ")[0] for note in clean.notes] == ["1", "rows", "2"]
    assert len(found) == 6
    assert cleaned(clean, 10.0).time_ns is clean.time_ns
    assert len(cleaned(recording(np.zeros((3, 1)), time_ns=[NOT_A_TIME] * 3), 10.0)) == 0


def test_segments_are_free_of_gaps():
    found = changed(leave_gap)
    assert cleaned(found, 10.0).segments_s2.tolist() == [[0, 1000], [1000, 2000]]
    assert cleaned(found, 1000.0).segments_s2.tolist() == [[0, 2000]]
    assert cleaned(recording(), 10.0).segments_s2.tolist() == [[0, 2000]]
    assert cleaned(recording(np.ones((0, 1))), 10.0).segments_s2.shape == (0, 2)
    assert cleaned(recording(np.ones((1, 1))), 10.0).segments_s2.tolist() == [[0, 1]]


@pytest.mark.slow
def test_a_large_recording_is_checked_within_seconds():
    values_tc = np.random.default_rng(0).standard_normal((200_000, 40), dtype=np.float32)
    found = dataclasses.replace(recording(values_tc[:, :1]), values_tc=values_tc, channels=tuple(map(str, range(40))))
    began = time.process_time()
    judge(found)
    assert time.process_time() - began < 20


@pytest.mark.slow
@needs_shared_data
def test_real_data_is_kept_and_clipped_axes_are_reported():
    def reports(pattern, stream):
        for path in expand([pattern], SHARED_DATA):
            found = read_recordings(path, root=SHARED_DATA, stream=stream, settings=Data())[0]
            yield path.stem, judge(found, stream=stream)

    assert {report.decision for _, report in reports("fdc/skab/*.csv.gz", "patchtst")} == {"keep"}
    assert {report.decision for _, report in reports("vibration/cwru/*.npy", "swinmae")} == {"keep"}
    clipped = {
        stem
        for stem, report in reports("vibration/motor_pump_3axis/F0[0-3]*.npy", "swinmae")
        if "clipping" in fired(report)
    }
    assert len(clipped) == 37
