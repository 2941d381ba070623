"""Labels stay with their rows for every form of label file and after cleaning."""

from __future__ import annotations

import dataclasses
import gzip

import numpy as np
import pandas as pd
import pytest

from core.config.schema import Data
from core.data.cleaning import cleaned
from core.data.labels import fault_names, label_file, labels_of
from core.data.readers import read_recordings
from core.data.recording import NOT_A_TIME, LabelledSpan
from core.errors import DataError
from tests.support import SHARED_DATA, needs_shared_data


@pytest.fixture
def recording(tmp_path):
    """Ten rows a second apart, out of order, one stamp repeated, one unreadable."""
    second = ["00", "02", "01", "03", "03", "bad", "06", "07", "08", "09"]
    rows = "".join(f"2024-01-01 00:00:{text},{number}\n" for number, text in enumerate(second))
    (tmp_path / "run.csv").write_text(f"timestamp,a\n{rows}")
    return read_recordings(tmp_path / "run.csv", root=tmp_path, stream="patchtst", settings=Data())[0]


def label(recording, text, name="run.labels.csv"):
    path = recording.path.with_name(name)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return recording


def test_recordings_may_have_no_label_file(recording):
    assert labels_of(recording) is None
    assert labels_of(dataclasses.replace(recording, healthy=True)).tolist() == [0] * 10
    assert labels_of(dataclasses.replace(recording, healthy=False)).tolist() == [1] * 10


@pytest.mark.parametrize(
    ("sensor", "labels"),
    [
        ("valve1_0.csv.gz", "valve1_0.labels.csv.gz"),
        ("machine-1-6.test.parquet", "machine-1-6.test.labels.csv.gz"),
        ("a.npy", "a.labels.csv"),
    ],
)
def test_label_file_names(tmp_path, sensor, labels):
    assert label_file(tmp_path / sensor) is None
    (tmp_path / labels).write_bytes(b"")
    assert label_file(tmp_path / sensor) == tmp_path / labels


def test_maintenance_is_not_judged_and_says_nothing_about_other_rows(recording):
    clean = cleaned(recording, 10.0)
    noted = dataclasses.replace(clean, labelled=(LabelledSpan(2.0, 3.0, "maintenance"),))
    assert labels_of(noted) is None
    assert labels_of(dataclasses.replace(noted, healthy=True)).tolist() == [0, 0, -1, -1, 0, 0, 0, 0]
    label(recording, "start,end\n1,2\n")
    assert labels_of(noted).tolist() == [0, 1, -1, -1, 0, 0, 0, 0]
    assert labels_of(clean).tolist() == [0, 1, 1, 0, 0, 0, 0, 0]


def test_rows_by_time_stamp_on_raw_and_cleaned(recording):
    # In order of time, unlike the recording; stamp :03 is labelled twice.
    stamps = ["00", "01", "02", "03", "03", "04", "06", "07", "08", "09"]
    text = "".join(f"2024-01-01 00:00:{stamp},{int(stamp in ('02', '07'))}\n" for stamp in stamps)
    label(recording, f"timestamp,anomaly\n{text}", "run.labels.csv.gz")
    assert labels_of(recording).tolist() == [0, 1, 0, 0, 0, 0, 0, 1, 0, 0]
    assert labels_of(recording).dtype == np.int8
    clean = cleaned(recording, 10.0)
    assert labels_of(clean).tolist() == [0, 0, 1, 0, 0, 1, 0, 0]
    assert len(clean) == 8


def test_rows_of_the_same_stamps_stay_row_by_row(recording):
    text = recording.path.read_text().replace(",a\n", ",anomaly\n", 1)
    lines = text.splitlines()
    label(recording, "\n".join([lines[0], *(line.rsplit(",", 1)[0] + f",{n % 2}" for n, line in enumerate(lines[1:]))]))
    assert labels_of(recording).tolist() == [0, 1] * 5


def test_rows_without_time_need_equal_length(recording):
    label(recording, "anomaly\n" + "1\n" * 10)
    assert labels_of(recording).tolist() == [1] * 10
    with pytest.raises(DataError, match=r"\b10 .*\b8 "):
        labels_of(cleaned(recording, 10.0))


def test_a_row_without_a_label_is_named(recording):
    label(recording, "timestamp,anomaly\n2024-01-01 00:00:00,1\n")
    with pytest.raises(DataError, match=r"\b8 of 10 .* row 2\b"):
        labels_of(recording)


@pytest.mark.parametrize(
    "text",
    [
        "start,end,fault\n2024-01-01 00:00:02,2024-01-01 00:00:03,spike\n2024-01-01 00:00:08,,drift\n",
        "start,end\n2,3\n8,\n",
        "Start;End\n1704067202;1704067203\n1704067208;\n",
    ],
)
def test_intervals(recording, text):
    label(recording, text)
    assert labels_of(recording).tolist() == [0, 1, 0, 1, 1, 0, 0, 0, 1, 1]
    assert labels_of(cleaned(recording, 10.0)).tolist() == [0, 0, 1, 1, 0, 0, 1, 1]


def test_overlapping_intervals_and_none(recording):
    label(recording, "start,end\n1,3\n2,7\n")
    assert labels_of(cleaned(recording, 10.0)).tolist() == [0, 1, 1, 1, 1, 1, 0, 0]
    label(recording, "start,end,fault\n")
    assert labels_of(recording).tolist() == [0] * 10


@pytest.mark.parametrize(
    ("text", "row", "words"),
    [
        ("start,end\n1,2\n5,3\n", 3, "'5' to '3'"),
        ("start,end\n,3\n", 2, "to '3'"),
        ("timestamp,anomaly\n2024-01-01,2\n", 2, "neither 0 nor 1"),
        ("when,what\n1,2\n", None, "when, what"),
    ],
)
def test_label_files_without_content_are_rejected(recording, text, row, words):
    label(recording, text)
    with pytest.raises(DataError, match=words) as caught:
        labels_of(recording)
    assert caught.value.row == row


def test_intervals_in_seconds_of_an_array_and_not_in_stamps(tmp_path):
    np.save(tmp_path / "v.npy", np.zeros(1000, dtype=np.float32))
    (recording,) = read_recordings(
        tmp_path / "v.npy", root=tmp_path, stream="swinmae", settings=Data(sampling_rate_hz=100)
    )
    label(recording, "start,end,fault\n2.5,10,ball\n", "v.labels.csv")
    assert labels_of(recording).sum() == 750
    label(recording, "start,end\n2024-01-01,2024-01-02\n", "v.labels.csv")
    with pytest.raises(DataError, match="has none"):
        labels_of(recording)


@pytest.mark.parametrize(
    "text",
    [
        "start,end,fault\n2024-01-01 00:00:01,2024-01-01 00:00:02,leak\n2024-01-01 00:00:07,,drift\n",
        "start,end,fault\n1,2,leak\n7,9,drift\n",
        "timestamp,anomaly,fault\n2024-01-01 00:00:01,1,leak\n2024-01-01 00:00:03,0,\n2024-01-01 00:00:08,1,drift\n",
    ],
)
def test_faults_are_named_by_their_time(recording, text):
    label(recording, text)
    assert fault_names(recording, [(1, 2), (8, 9), (3, 6)]) == ["leak", "drift", None]


@pytest.mark.parametrize("text", [None, "start,end\n1,2\n", "timestamp,fault\n2024-01-01 00:00:01,1\n"])
def test_faults_without_names_stay_unnamed(recording, text):
    """A column `fault` of 0 and 1 is the label itself."""
    if text is not None:
        label(recording, text)
    assert fault_names(recording, [(1, 2)]) == [None]


def test_a_set_of_records_has_no_label_file(tmp_path):
    np.savez(tmp_path / "s.npz", x=np.zeros((2, 10, 3), dtype=np.float32))
    recording = read_recordings(tmp_path / "s.npz", root=tmp_path, stream="swinmae", settings=Data(sampling_rate_hz=1))[
        0
    ]
    label(recording, "start,end\n1,2\n", "s.labels.csv")
    with pytest.raises(DataError, match="set of records"):
        labels_of(recording)


@needs_shared_data
def test_real_labels_fit_their_recordings():
    shares = {}
    for name in ("fdc/skab/valve1_0.csv.gz", "fdc/smd/machine-1-6.test.parquet", "fdc/asd/omi-1.test.parquet"):
        path = SHARED_DATA / name
        (recording,) = read_recordings(path, root=SHARED_DATA, stream="patchtst", settings=Data())
        label_t = labels_of(recording)
        published = pd.read_csv(label_file(path))["anomaly"].to_numpy()
        np.testing.assert_array_equal(label_t, published)
        assert labels_of(cleaned(recording, 10.0)).sum() <= label_t.sum()
        assert (recording.time_ns != NOT_A_TIME).all()
        shares[name] = label_t.mean()
    assert all(0 < share < 0.5 for share in shares.values()), shares


def test_faults_without_a_row_of_the_recording_are_logged(recording, caplog):
    label(recording, "start,end\n2024-01-01 00:00:02,2024-01-01 00:00:03\n2012-01-01 00:00:00,2012-01-02 00:00:00\n")
    assert labels_of(cleaned(recording, 1e9)).sum() > 0
    assert "1 of 2 faults contain no row" in caplog.text
    assert "in row 3" in caplog.text
