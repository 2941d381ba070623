"""Readers against files with the defects real files have."""

from __future__ import annotations

import gzip
import json
import os
import re

import numpy as np
import pandas as pd
import pytest

from core.config.schema import Data
from core.data.files import data_stem, expand, matches
from core.data.readers import read_recordings
from core.data.recording import NOT_A_TIME
from core.data.sampling import sampling_rate
from core.data.timestamps import parse_times
from core.errors import DataError
from tests.support import SHARED_DATA, needs_shared_data

_S = 1_000_000_000


def read(path, stream="patchtst", **settings):
    return read_recordings(path, root=path.parent, stream=stream, settings=Data(**settings))[0]


def write(path, text, encoding="utf-8"):
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def utc(text):
    return np.datetime64(text, "ns").astype(np.int64)


# --------------------------------------------------------------------------------------------------------------- expand
def test_expand_is_sorted_unique_and_ignores_labels_and_sidecars(tmp_path):
    for name in ("b.csv", "a.csv", "a.labels.csv", "D.run_labels.csv.gz", "a.json", ".hidden.csv", "n.npy"):
        (tmp_path / name).write_bytes(b"")
    found = expand(["*.csv", "a*", "*"], tmp_path)
    assert [path.name for path in found] == ["a.csv", "b.csv", "n.npy"]
    assert expand([str(tmp_path / "a.csv")], tmp_path) == [tmp_path / "a.csv"]


@pytest.mark.parametrize(
    "pattern, name",
    [
        ("none/*.csv", "none"),
        ("gone.csv", "gone.csv"),
        ("*.parquet", "*.parquet"),
        ("a.labels.*", "a.labels.*"),
        ("*.json", "*.json"),
    ],
)
def test_expand_names_the_pattern_and_the_folder(tmp_path, pattern, name):
    (tmp_path / "a.labels.csv").write_bytes(b"")
    (tmp_path / "a.json").write_bytes(b"{}")
    assert matches(pattern, tmp_path) == []
    with pytest.raises(DataError) as caught:
        expand([pattern], tmp_path)
    assert name in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "data.splits" in caught.value.hint


@pytest.mark.parametrize(
    "kind", ["folder", pytest.param("pipe", marks=pytest.mark.skipif(os.name == "nt", reason="Windows has none"))]
)
def test_a_folder_or_pipe_with_the_name_of_a_sensor_file_is_rejected(tmp_path, kind):
    (tmp_path / "train_1.csv").write_bytes(b"")
    path = tmp_path / "train_3.csv"
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    with pytest.raises(DataError, match=re.escape("train_3.csv")):
        expand(["train_*.csv"], tmp_path)


def test_a_folder_whose_files_are_matched_may_have_the_name_of_a_sensor_file(tmp_path):
    (tmp_path / "train.parquet").mkdir()
    (tmp_path / "train.parquet/part.parquet").write_bytes(b"")
    assert expand(["**/*.parquet"], tmp_path) == [tmp_path / "train.parquet/part.parquet"]


def test_stem_drops_data_suffixes_only(tmp_path):
    stems = {"valve1_0.csv.gz": "valve1_0", "machine-1-6.test.parquet": "machine-1-6.test", "A.CSV": "A", "x.npz": "x"}
    assert {name: data_stem(tmp_path / name) for name in stems} == stems


# ------------------------------------------------------------------------------------------------------ dialects of csv
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".txt"])
@pytest.mark.parametrize(
    ("delimiter", "decimal"), [(",", "."), (";", "."), (";", ","), ("\t", "."), ("\t", ","), ("|", ".")]
)
def test_delimiter_and_decimal_sign_are_found(tmp_path, suffix, delimiter, decimal):
    rows = [["Time", "a", "b"], ["2024-01-01 00:00:00", "1.5", "-2"], ["2024-01-01 00:00:01", "2.25", "3e-1"]]
    text = "\n".join(delimiter.join(row).replace(".", decimal) for row in rows)
    recording = read(write(tmp_path / f"f{suffix}", text))
    assert recording.channels == ("a", "b")
    np.testing.assert_array_equal(recording.values_tc, np.array([[1.5, -2], [2.25, 0.3]], dtype=np.float32))
    assert recording.values_tc.dtype == np.float32
    assert recording.time_ns.dtype == np.int64
    assert (recording.sampling_rate_hz, recording.time_source) == (1.0, "timestamp")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_encodings_of_plant_computers(tmp_path, encoding):
    path = write(tmp_path / "f.csv", "timestamp;Temp °C\n2024-01-01;1\n2024-01-02;2\n", encoding)
    assert read(path).channels == ("Temp °C",)


def test_text_in_a_numeric_column_is_missing_and_counted(tmp_path):
    path = write(tmp_path / "f.csv", "timestamp,a,b,c\n1700000000,1,x,\n1700000001,bad,y,\n1700000002,inf,z,\n")
    recording = read(path)
    assert recording.channels == ("a", "c")
    np.testing.assert_array_equal(recording.values_tc[:, 0], [1, np.nan, np.nan])
    assert np.isnan(recording.values_tc[:, 1]).all()
    notes = " | ".join(recording.notes)
    assert re.search(r"'a': 1 .*row 3 \('bad'\)", notes)
    assert "'b' left out" in notes
    assert re.search(r"'a': 1 .*row 4", notes)


def test_labels_and_nameless_columns_never_become_channels(tmp_path):
    path = write(tmp_path / "f.csv", ",timestamp,a,Anomaly,Time,\n0,2024-01-01,1,0,7.5,\n1,2024-01-02,2,1,7.6,\n")
    recording = read(path, exclude=("step",))
    assert recording.channels == ("a",)
    assert any("Anomaly" in note and "label" in note for note in recording.notes)
    assert any("nothing to exclude" in note and "step" in note for note in recording.notes)
    assert read(path, channels=("Anomaly",)).channels == ("Anomaly",)


def test_channels_are_chosen_in_order_and_excluded(tmp_path):
    path = write(tmp_path / "f.csv", "timestamp,a,b,c\n2024-01-01,1,2,3\n2024-01-02,1,2,3\n")
    assert read(path, channels=("c", "a")).channels == ("c", "a")
    assert read(path, exclude=("b",)).channels == ("a", "c")


def test_a_missing_channel_is_named_with_close_matches(tmp_path):
    path = write(tmp_path / "f.csv", "timestamp,pressure_mTorr\n2024-01-01,1\n")
    with pytest.raises(DataError) as caught:
        read(path, channels=("presure_mTorr",))
    assert (caught.value.path, caught.value.column) == (path, "presure_mTorr")
    assert "pressure_mTorr" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "row", "words"),
    [
        ("", None, "empty"),
        ("timestamp,a\n", None, "no rows"),
        ("timestamp,a\n2024-01-01,1\n2024-01-02,2,3\n", 3, "2 columns .* 3"),
        ("a,b\n1,2,3\n4,5,6\n", 2, "2 columns .* 3"),
        ("0.5,1.5\n2.5,3.5\n", 1, "values, not names"),
        ("timestamp,a\n2024-01-01,x\n", None, "no numeric channel"),
        ("Time,a\n10:00:01,1\n10:00:02,2\n", 2, "no time stamp"),
    ],
)
def test_files_that_are_not_tables_are_rejected_with_a_reason(tmp_path, text, row, words):
    path = write(tmp_path / "f.csv", text)
    with pytest.raises(DataError, match=words) as caught:
        read(path)
    assert caught.value.path == path
    assert caught.value.row == row
    assert caught.value.hint


def test_short_rows_and_trailing_delimiters_are_read(tmp_path):
    path = write(tmp_path / "f.csv", "timestamp;a;b\n2024-01-01;1;2;\n2024-01-02;3\n")
    np.testing.assert_array_equal(read(path).values_tc, [[1, 2], [3, np.nan]])


def test_a_cut_gzip_file_is_a_data_error(tmp_path):
    whole = gzip.compress(b"timestamp,a\n" + b"2024-01-01,1\n" * 5000)
    (tmp_path / "f.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "f.csv.gz")


def test_parquet_keeps_its_time_index_and_nullable_columns(tmp_path):
    index = pd.date_range("2024-01-01", periods=3, freq="2s", tz="Europe/Berlin", name="time")
    frame = pd.DataFrame(
        {"a": pd.array([1, None, 3], dtype="Int64"), "on": [True, False, True], "s": list("xyz")}, index
    )
    frame.to_parquet(tmp_path / "f.parquet")
    recording = read(tmp_path / "f.parquet")
    assert recording.channels == ("a", "on")
    np.testing.assert_array_equal(recording.values_tc, [[1, 1], [np.nan, 0], [3, 1]])
    assert recording.time_ns[0] == utc("2023-12-31T23:00:00")
    assert recording.sampling_rate_hz == 0.5
    (tmp_path / "g.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path / "g.parquet")


# ---------------------------------------------------------------------------------------------------------- time stamps
@pytest.mark.parametrize(
    ("texts", "first", "note"),
    [
        (["2024-02-03 04:05:06.5"], "2024-02-03T04:05:06.5", None),
        (["2024-02-03 04:05:06,250"], "2024-02-03T04:05:06.25", None),
        (["2024/02/03 04:05"], "2024-02-03T04:05", None),
        (["2024-02-03T04:05:06+02:00"], "2024-02-03T02:05:06", "UTC"),
        (["03.02.2024 04:05", "13.02.2024 04:05:30"], "2024-02-03T04:05", "day first"),
        (["02/13/2024 1:05:06 PM"], "2024-02-13T13:05:06", "month first"),
        (["03/04/2024", "04/04/2024"], "2024-04-03", "day first"),
        (["04/03/2024", "04/04/2024"], "2024-04-03", "month first"),
        (["05/04/2024 10:00"], "2024-04-05T10:00", "ambiguous"),
        (["03-Feb-24 04:05:06"], "2024-02-03T04:05:06", None),
        (["20240203 040506", "20240203 040507"], "2024-02-03T04:05:06", None),
    ],
)
def test_text_forms_of_time(texts, first, note):
    times = parse_times(pd.Series(texts))
    assert times.time_ns[0] == utc(first)
    assert (times.time_ns == NOT_A_TIME).sum() == 0
    assert (note is None and not times.notes) or any(note in said for said in times.notes)


@pytest.mark.parametrize(("factor", "unit"), [(1, "s"), (10**3, "ms"), (10**6, "µs"), (10**9, "ns")])
def test_numeric_epochs_by_magnitude(factor, unit):
    times = parse_times(pd.Series([1_700_000_000 * factor, 1_700_000_001 * factor]))
    np.testing.assert_array_equal(times.time_ns, [1_700_000_000 * _S, 1_700_000_001 * _S])
    assert unit in times.notes[0]


def test_numbers_that_are_not_epochs_are_rejected():
    assert parse_times(pd.Series([20240203040506])).time_ns[0] == utc("2024-02-03T04:05:06")
    assert parse_times(pd.Series([0, 1, 2])).source == "index"
    elapsed = parse_times(pd.Series([0.0, 0.005, 0.010]))
    assert elapsed.source == "timestamp"
    assert sampling_rate(elapsed.time_ns) == pytest.approx(200)


def test_unreadable_stamps_are_marked_and_the_rest_is_kept():
    times = parse_times(pd.Series(["2024-01-01", "bad", None, "9999-12-31", "2024-01-02"]))
    assert (times.time_ns == NOT_A_TIME).tolist() == [False, True, True, True, False]


def test_a_row_index_is_not_a_time_column(tmp_path):
    recording = read(write(tmp_path / "f.csv", "time,a\n" + "".join(f"{row},{row}\n" for row in range(9))))
    assert (recording.time_source, recording.sampling_rate_hz) == ("index", None)
    recording = read(write(tmp_path / "g.csv", "a,b\n1,2\n3,4\n"))
    assert (recording.time_source, recording.channels) == ("index", ("a", "b"))
    assert read(tmp_path / "g.csv", sampling_rate_hz=4).time_ns.tolist() == [0, _S // 4]


@pytest.mark.parametrize("names", ["Date;Time", "Datum;Uhrzeit"])
def test_date_and_time_of_day_in_two_columns_are_joined(tmp_path, names):
    path = write(tmp_path / "f.csv", f"{names};a;state\n03.02.2024;04:05:06;1;x\n03.02.2024;04:05:07;2;y\n")
    recording = read(path)
    assert recording.channels == ("a",)
    assert recording.time_ns[0] == utc("2024-02-03T04:05:06")
    assert recording.time_source == "timestamp"
    assert not [note for note in recording.notes if names.split(";")[0] in note and "left out" in note]


def test_a_column_named_in_the_settings_or_none_is_the_time(tmp_path):
    path = write(tmp_path / "g.csv", "stamp,a\n2024-01-01,1\n2024-01-02,2\n")
    assert read(path, timestamp="stamp").time_ns[0] == utc("2024-01-01")
    with pytest.raises(DataError, match="no such column"):
        read(path, timestamp="stemp")


# ------------------------------------------------------------------------------------------------------------ vibration
@pytest.mark.parametrize(
    ("header", "channels"),
    [
        ("timestamp,x,y,z", ("x", "y", "z")),
        ("Time,Z-axis,X-axis,Y-axis", ("x", "y", "z")),
        ("time,acc_x,acc_y", ("x", "y")),
        ("time,rpm,X [g]", ("x",)),
    ],
)
def test_vibration_csv_finds_its_axes(tmp_path, header, channels):
    width = header.count(",")
    rows = "".join(f"{row / 1000}," + ",".join(str(row + axis) for axis in range(width)) + "\n" for row in range(50))
    recording = read(write(tmp_path / "f.csv", f"{header}\n{rows}"), "swinmae")
    assert recording.channels == channels
    assert recording.values_tc.shape == (50, len(channels))
    assert recording.sampling_rate_hz == pytest.approx(1000)
    if header.startswith("Time,Z"):
        assert recording.values_tc[0].tolist() == [1, 2, 0]


def test_vibration_csv_without_axes_names_the_columns(tmp_path):
    path = write(tmp_path / "f.csv", "time,horizontal\n0.0,1\n0.1,2\n")
    with pytest.raises(DataError, match="horizontal"):
        read(path, "swinmae")
    assert read(path, "swinmae", channels=("horizontal",)).sampling_rate_hz == pytest.approx(10)


def test_time_stamps_coarser_than_the_sampling_are_interpolated(tmp_path):
    stamps = np.datetime64("2024-01-01", "ms") + (np.arange(6400) / 6.4).astype(int)
    pd.DataFrame({"timestamp": stamps, "x": np.arange(6400.0)}).to_csv(tmp_path / "f.csv", index=False)
    recording = read(tmp_path / "f.csv", "swinmae")
    assert recording.sampling_rate_hz == pytest.approx(6400, rel=1e-3)
    assert (np.diff(recording.time_ns) > 0).all()
    assert any("coarser" in note for note in recording.notes)


@pytest.mark.parametrize(("shape", "width"), [((100,), 1), ((100, 1), 1), ((100, 2), 2), ((100, 3), 3)])
def test_npy_shapes(tmp_path, shape, width):
    np.save(tmp_path / "f.npy", np.arange(np.prod(shape), dtype=np.int16).reshape(shape))
    recording = read(tmp_path / "f.npy", "swinmae", sampling_rate_hz=1000)
    assert recording.values_tc.shape == (100, width)
    assert recording.values_tc.dtype == np.float32
    assert recording.channels == ("x", "y", "z")[:width]
    assert recording.time_ns[-1] == 99_000_000
    assert recording.time_source == "sampling_rate"


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((3, 100)), "transposed"),
        (np.zeros((100, 6)), r"shape \(100, 6\)"),
        (np.zeros((0, 3)), "no samples"),
        (np.array([{"a": 1}], dtype=object), "never unpickled"),
        (np.zeros(5, dtype=complex), "real numbers"),
    ],
)
def test_arrays_that_are_not_recordings_are_rejected(tmp_path, array, words):
    np.save(tmp_path / "f.npy", array, allow_pickle=True)
    with pytest.raises(DataError, match=words):
        read(tmp_path / "f.npy", "swinmae", sampling_rate_hz=1000)


def test_an_npz_file_contains_many_recordings(tmp_path):
    np.savez(tmp_path / "s.npz", x=np.arange(24, dtype=np.float32).reshape(4, 3, 2))
    (tmp_path / "dataset.json").write_text(json.dumps({"fs": 10, "files": {"s": {"label": "Faulty (coin)"}}}))
    found = read_recordings(tmp_path / "s.npz", root=tmp_path, stream="swinmae", settings=Data())
    assert [recording.file_id for recording in found] == ["s.npz#0", "s.npz#1", "s.npz#2", "s.npz#3"]
    assert found[3].values_tc.tolist() == [[18, 19], [20, 21], [22, 23]]
    assert {recording.healthy for recording in found} == {False}
    np.savez(tmp_path / "t.npz", y=np.zeros(3))
    with pytest.raises(DataError, match="no array 'x'"):
        read(tmp_path / "t.npz", "swinmae")


def test_the_sidecar_sets_the_sampling_rate_and_a_difference_is_reported(tmp_path):
    rows = "".join(f"{row / 100},{row}\n" for row in range(50))
    path = write(tmp_path / "f.csv", f"time,x\n{rows}")
    (tmp_path / "dataset.json").write_text('{"sampling_rate_hz": 500}')
    (tmp_path / "f.json").write_text('{"sampling_rate_hz": 200, "label": "normal"}')
    recording = read(path, "swinmae", sampling_rate_hz=200)
    assert (recording.sampling_rate_hz, recording.healthy) == (200, True)
    assert any("200 Hz" in note and "100 Hz" in note for note in recording.notes)
    assert not any("data.sampling_rate_hz" in note for note in recording.notes)


@pytest.mark.parametrize(
    ("sidecar", "words"),
    [
        (None, "sampling_rate_hz"),
        ('{"fs": 0}', "sampling_rate_hz = 0"),
        ('{"fs": "fast"}', "sampling_rate_hz = 'fast'"),
        ("{", "f.json"),
        ("[]", "f.json"),
    ],
)
def test_a_recording_without_a_usable_rate_is_rejected(tmp_path, sidecar, words):
    np.save(tmp_path / "f.npy", np.zeros(10))
    if sidecar is not None:
        (tmp_path / "f.json").write_text(sidecar)
    with pytest.raises(DataError, match=words):
        read(tmp_path / "f.npy", "swinmae")


def test_infinities_of_arrays_are_missing(tmp_path):
    np.save(tmp_path / "f.npy", np.array([1, np.inf, -np.inf], dtype=np.float32))
    recording = read(tmp_path / "f.npy", "swinmae", sampling_rate_hz=10)
    assert np.isnan(recording.values_tc[1:]).all()


def test_file_types_of_another_stream_are_rejected(tmp_path):
    np.save(tmp_path / "f.npy", np.zeros(10))
    with pytest.raises(DataError, match="npy"):
        read(tmp_path / "f.npy", "patchtst")
    with pytest.raises(DataError, match="does not exist"):
        read(tmp_path / "gone.csv")


# ------------------------------------------------------------------------------------------------------------ real data
@pytest.mark.slow
@needs_shared_data
def test_every_real_fdc_file():
    files = expand(["fdc/*/*.csv.gz", "fdc/*/*.parquet"], SHARED_DATA)
    by_folder: dict[str, list] = {}
    for path in files:
        (recording,) = read_recordings(path, root=SHARED_DATA, stream="patchtst", settings=Data())
        assert recording.time_source == "timestamp"
        assert (recording.time_ns != NOT_A_TIME).all()
        by_folder.setdefault(path.parent.name, []).append(recording)
    widths = {"skab": 8, "ett": 7, "smd": 38, "asd": 19, "tep": 52, "nab": 1}
    for folder, width in widths.items():
        assert {recording.values_tc.shape[1] for recording in by_folder[folder]} == {width}, folder
    periods_s = {"skab": 1, "ett": 3600, "smd": 60, "asd": 300, "tep": 180}
    for folder, period in periods_s.items():
        assert {round(1 / recording.sampling_rate_hz) for recording in by_folder[folder]} == {period}, folder
    (ett,) = by_folder["ett"]
    assert ett.values_tc.shape == (17_420, 7)
    assert ett.channels[-1] == "OT"


@pytest.mark.slow
@needs_shared_data
def test_every_real_vibration_file():
    found = {}
    for path in expand(["vibration/*/*.npy", "vibration/*/*.npz"], SHARED_DATA):
        found[f"{path.parent.name}/{path.name}"] = read_recordings(
            path, root=SHARED_DATA, stream="swinmae", settings=Data()
        )
    rates = {"cwru": 48_000, "mfpt": 48_828, "motor_pump_3axis": 1000, "fan_3axis": 200, "femto": 25_600}
    for name, recordings in found.items():
        assert {recording.sampling_rate_hz for recording in recordings} == {rates[name.split("/")[0]]}, name
    fan = found["fan_3axis/fan_0_low_0_weight.npz"]
    assert (len(fan), fan[0].values_tc.shape, fan[0].healthy) == (585, (200, 3), True)
    assert found["fan_3axis/fan_0_low_1_weight.npz"][0].healthy is False
    (normal,) = found["cwru/normal.npy"]
    assert (normal.values_tc.shape, normal.healthy, normal.channels) == ((119_569, 1), True, ("de",))
    assert found["femto/Bearing1_1.npz"][0].channels == ("horizontal", "vertical")


# ------------------------------------------------------------------------------------------- time columns of any name
@pytest.mark.parametrize(
    "stamps, is_time",
    [
        (["02.03.2026 06:00:00", "02.03.2026 06:00:01", "02.03.2026 06:00:02"], True),
        (["03/02/2026 06:00:00 AM", "03/02/2026 06:00:01 AM", "03/02/2026 06:00:02 AM"], True),
        (["2026-03-02T06:00:00", "2026-03-02T06:00:01", "2026-03-02T06:00:02"], True),
        (["2026-03-02 06:00:00"] * 3, False),  # the time of the export, not of the rows
        (["2026-03-02", "2026-03-03", "2026-03-04"], False),
        (["batch 1-2-3 4:05", "batch 2-2-3 4:06", "batch 3-2-3 4:07"], False),
    ],
)
def test_a_time_column_is_found_by_its_content(tmp_path, stamps, is_time):
    rows = "".join(f"1,{stamp},{number}\n" for number, stamp in enumerate(stamps))
    (tmp_path / "a.csv").write_text("p,Zeit,q\n" + rows, encoding="utf-8")
    (recording,) = read_recordings(tmp_path / "a.csv", root=tmp_path, stream="patchtst", settings=Data())
    assert recording.channels == ("p", "q")
    assert recording.time_source == ("timestamp" if is_time else "index")
    assert any("'Zeit' read" in note for note in recording.notes) == is_time


@pytest.mark.parametrize("mark", ["\u2028", "\x0b", "\x0c", "\x1c", "\x85"])
def test_only_line_feeds_and_carriage_returns_end_the_header(tmp_path, mark):
    rows = "".join(f"2026-01-05 00:00:0{n},2026-01-05 00:00:0{n},{n}\n" for n in range(5))
    (tmp_path / "a.csv").write_text(f"{mark}time,x{mark},time\n{rows}", encoding="utf-8")
    with pytest.raises(DataError, match="two columns have this name"):
        read_recordings(tmp_path / "a.csv", root=tmp_path, stream="patchtst", settings=Data())


def test_a_column_with_the_name_of_times_is_preferred(tmp_path):
    text = "Zeit,time,p\n" + "".join(f"2020-01-01 00:00:0{n},2026-01-01 00:00:0{n},{n}\n" for n in range(3))
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    (recording,) = read_recordings(tmp_path / "a.csv", root=tmp_path, stream="patchtst", settings=Data())
    assert str(recording.time_ns[:1].astype("datetime64[ns]")[0]).startswith("2026")


@pytest.mark.parametrize(
    "stamp, expected",
    [
        ("03.04.2026 06:00:0{}", "2026-04-03"),
        ("03/04/2026 06:00:0{} AM", "2026-03-04"),
        ("03/04/2026 06:00:0{}", "2026-04-03"),
    ],
)
def test_ambiguous_dates_are_read_by_convention(tmp_path, stamp, expected):
    rows = "".join(f"{stamp.format(second)};{second}\n" for second in range(5))
    (tmp_path / "a.csv").write_text("time;p\n" + rows, encoding="utf-8")
    (recording,) = read_recordings(tmp_path / "a.csv", root=tmp_path, stream="patchtst", settings=Data())
    assert str(recording.time_ns[:1].astype("datetime64[ns]")[0]).startswith(expected)
