"""Every file of `bad_files` through the data check: one line that names it, or a finding that counts every row."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from core.cli import run_command
from core.config.schema import Data
from core.data.dataset import SPLIT_NAMES, check_quality, load_stream_data
from core.data.readers import read_recordings
from core.data.sentinels import SENTINEL
from core.data.timestamps import TIME_NAMES
from core.errors import EXIT_DATA, EXIT_FAILURE, DataError, QualityError
from tests.core.data import bad_files
from tests.core.data.bad_file_cases import JUDGED, REFUSED, config_for, names
from tests.support import REPO_ROOT


def test_more_than_sixty_bad_files_are_tested():
    assert len(set(names(REFUSED) + names(JUDGED))) == len(REFUSED) + len(JUDGED) > 100


@pytest.mark.parametrize(("bad", "stream"), REFUSED, ids=names(REFUSED))
def test_an_unusable_file_is_an_error_of_one_line_with_a_hint(bad, stream, tmp_path):
    bad.make(tmp_path / bad.name)
    config = config_for(stream, bad.name, **bad.settings)
    with pytest.raises(DataError) as caught:
        check_quality(config, root=tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000
    assert caught.value.hint
    assert [word for word in bad.words if word not in message] == []
    assert caught.value.path.parent == tmp_path
    assert (caught.value.row, caught.value.column) == (bad.row, bad.column)


@pytest.mark.parametrize(("bad", "stream"), JUDGED, ids=names(JUDGED))
def test_dropped_rows_of_a_readable_file_are_reported(bad, stream, tmp_path, caplog):
    caplog.set_level("INFO")
    bad.make(tmp_path / bad.name)
    config = config_for(stream, bad.name, **bad.settings)
    if bad.dropped:
        with pytest.raises(QualityError, match=re.escape(bad.name)):
            check_quality(config, root=tmp_path)
    else:
        check_quality(config, root=tmp_path)
    (file,) = (tmp_path / "artifacts/dqvl").glob("*.json")
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report["metrics"]["rows"] == bad.rows
    assert report["decision"] == ("drop" if bad.dropped else "keep")
    found = {finding["rule"] for finding in report["hard_fails"] + report["warnings"]}
    assert found >= set(bad.findings)
    notes = " | ".join(report["metrics"]["notes"])
    assert [word for word in bad.notes if word not in notes] == []


def test_a_file_with_one_row_is_rejected(tmp_path):
    bad_files.data(bad_files.table(rows=1))(tmp_path / "f.csv")
    with pytest.raises(DataError, match=r"train .*256 rows \(longest: 1\)"):
        load_stream_data(config_for("patchtst", "f.csv", splits=["train"]), root=tmp_path, splits=["train"])


@pytest.mark.nightly
def test_five_thousand_columns_are_read_exactly(tmp_path):
    bad_files.wide(tmp_path / "f.csv")
    config = config_for("patchtst", "f.csv", store_dir="")
    (recording,) = read_recordings(tmp_path / "f.csv", root=tmp_path, stream="patchtst", settings=config.data)
    expected = (bad_files.wave()[:, None] + np.arange(bad_files.WIDE)).astype(np.float32)
    np.testing.assert_array_equal(recording.values_tc, expected)
    (report,) = check_quality(config, root=tmp_path)
    assert len(report.metrics["channels"]) == bad_files.WIDE


@pytest.mark.parametrize("pattern", bad_files.PATTERNS)
def test_a_pattern_without_files_is_an_error_of_one_line(pattern, tmp_path):
    bad_files.data("timestamp,anomaly\n")(tmp_path / "a.labels.csv")
    with pytest.raises(DataError) as caught:
        check_quality(config_for("patchtst", pattern), root=tmp_path)
    text = str(caught.value)
    assert text.startswith("no data:")
    assert len(text.splitlines()) == 1
    assert "mkdir -p" in text
    assert "landfall sample-data" not in text  # the folder has a file, so the sample data would not be used


# ------------------------------------------------------------------------------------------------------- random tables
_NAMES = st.lists(st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=8),
                  min_size=1, max_size=5, unique=True)  # fmt: skip
_LARGEST = float(np.nextafter(np.float32(SENTINEL), np.float32(0)))
_CELLS = st.one_of(st.floats(-_LARGEST, _LARGEST, width=32), st.integers(-(2**20), 2**20))


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    values=st.integers(1, 30).flatmap(
        lambda rows: st.lists(st.lists(_CELLS, min_size=rows, max_size=rows), min_size=1, max_size=5)
    ),
    names=_NAMES,
    delimiter=st.sampled_from(",;\t|"),
    decimal=st.sampled_from(".,"),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_a_random_table_is_read_exactly_or_rejected(tmp_path, values, names, delimiter, decimal, encoding):
    columns = dict(zip(names, values, strict=False))
    # The name of an only column that holds a delimiter is two names.
    assume(len(columns) > 1 or not set(names[0]) & set(",;|"))
    frame = pd.DataFrame(columns)
    text = frame.to_csv(index=False, sep=delimiter, decimal=decimal)
    (tmp_path / "f.csv").write_bytes(text.encode(encoding))
    with suppress(DataError):
        (recording,) = read_recordings(tmp_path / "f.csv", root=tmp_path, stream="patchtst", settings=Data())
        assert len(recording) == len(frame)
        for place, name in enumerate(recording.channels):
            np.testing.assert_array_equal(recording.values_tc[:, place], frame[name].to_numpy(np.float32))
        left_out = set(frame.columns) - set(recording.channels)
        assert all(any(repr(name) in note for note in recording.notes) for name in left_out - set(TIME_NAMES))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    content=st.one_of(
        st.binary(max_size=200), st.text(",;\t\n\r\"'.0123456789-+eE:ZTab µ°", max_size=200).map(str.encode)
    )
)
@pytest.mark.parametrize("name", ["f.csv", "f.csv.gz", "f.parquet", "f.npy", "f.npz"])
def test_any_bytes_are_read_or_rejected_in_one_line(tmp_path, content, name):
    (tmp_path / name).write_bytes(content)
    stream = "swinmae" if name.startswith("f.np") else "patchtst"
    try:
        read_recordings(tmp_path / name, root=tmp_path, stream=stream, settings=Data(sampling_rate_hz=10.0))
    except DataError as error:
        message = error
    else:
        return
    assert message.path == tmp_path / name
    assert message.hint


# ----------------------------------------------------------------------------------------------------- the command line
def landfall(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=REPO_ROOT, capture_output=True, text=True, check=False)


def parts_of(file: str) -> list[str]:
    return [f"data.splits.{name}.files=['{file}']" for name in SPLIT_NAMES]


@pytest.mark.nightly
@pytest.mark.parametrize(("identity", "more"), [("units in cells", ()), ("flipped bits in gzip", ("--debug",))])
def test_the_command_prints_one_line_and_more_on_request(identity, more, workspace):
    (bad,) = (bad for bad in bad_files.TABLES_REFUSED if bad.id == identity)
    bad.make(workspace / bad.name)
    check = ("-m", "pipelines.check_data_quality", "--config", "configs/patchtst_ssl_local.yaml", "data.root=.")
    done = landfall(*check, *parts_of(bad.name), "--repo-root", str(workspace), *more)
    assert done.returncode == EXIT_DATA
    assert ("Traceback" in done.stderr) == bool(more)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("landfall quality: ")]
    assert all(word in line for word in (*bad.words, bad.name))


@pytest.mark.nightly
def test_training_reports_a_bad_file_in_one_line(workspace):
    bad_files.data(bad_files.table() + bytes(10))(workspace / "f.csv")
    settings = ("data.root=.", "local/devices=cpu", "max_threads=1", *parts_of("f.csv"))
    done = landfall("landfall.py", "train", "patchtst", "--repo-root", str(workspace), *settings)
    assert done.returncode == EXIT_DATA
    assert "Traceback" not in done.stderr
    assert f"f.csv, row {bad_files.ROWS + 2}: " in done.stderr


def test_control_characters_in_file_names_are_escaped(capsys):
    def fail(arguments: argparse.Namespace) -> int:
        raise DataError("odd", path="a\nb\x1b[2J.csv")

    assert run_command(fail, argparse.ArgumentParser(prog="odd"), []) == EXIT_DATA
    assert capsys.readouterr().err == "odd: a\\nb\\x1b[2J.csv: odd\n"


def test_an_unexpected_error_is_also_one_line(capsys):
    def fail(arguments: argparse.Namespace) -> int:
        raise ZeroDivisionError("division by zero")

    assert run_command(fail, argparse.ArgumentParser(prog="odd"), []) == EXIT_FAILURE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("odd: ")
    assert re.search(r"ZeroDivisionError: division by zero.*--debug", line)
    run_command(fail, argparse.ArgumentParser(prog="odd"), ["--debug"])
    assert "Traceback" in capsys.readouterr().err
