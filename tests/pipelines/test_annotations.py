"""Annotations of events and other time spans: stored next to the scores, exported, written through the server only."""

from __future__ import annotations

import http.client
import json
import threading
from pathlib import Path

import pandas as pd
import pytest

from core.data.annotations import NewAnnotation
from core.errors import EXIT_OK
from inference import run_scoring_example
from pipelines.dashboard.annotating import annotate
from pipelines.export_training_dashboard_state import export_state
from pipelines.serve_dashboard import LONGEST_BODY, make_server
from tests.dashboard.builders import SECOND, build_workspace, event_lines, write_checkpoint, write_scores
from tests.support.small_workspace import install_page, write_process_data
from tests.support.waiting import PATIENCE_S

FILE = "artifacts/scores/patchtst_annotations.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Seven events of process sensors, scored with the model in use and exported."""
    install_page(tmp_path)
    build_workspace(tmp_path)
    write_checkpoint(tmp_path, "patchtst", SECOND)
    write_scores(tmp_path, "patchtst", SECOND, labels=True)
    export_state(tmp_path)
    return tmp_path


def note(event: int, **changes) -> dict:
    line = event_lines("patchtst", 7)[event - 1]
    span = {name: line[name] for name in ("recording", "start_seconds", "end_seconds")}
    return span | {"acknowledged": True, "label": "fault", "comment": "a leak"} | changes


def exported(root: Path) -> dict:
    return json.loads((root / "training_dashboard/data/dashboard-state.json").read_text())["streams"]["patchtst"]


def test_an_annotation_is_in_the_exported_state_at_once_and_after_the_next_export(root):
    annotate(root, "patchtst", NewAnnotation(**note(7)))
    for _ in range(2):
        events = {event["id"]: event["annotation"] for event in exported(root)["detections"]["events"]}
        assert (events[7]["label"], events[7]["comment"]) == ("fault", "a leak")
        assert [number for number, found in events.items() if found] == [7]
        assert exported(root)["detections"]["acknowledged"] == 1
        assert exported(root)["light"]["detail"].startswith("6 open events")
        export_state(root)


def test_a_machine_whose_events_are_all_acknowledged_has_no_open_event(root):
    for event in range(1, 8):
        annotate(root, "patchtst", NewAnnotation(**note(event)))
    assert exported(root)["light"]["state"] == "no event"
    annotate(root, "patchtst", NewAnnotation(**note(3, acknowledged=False)))
    assert exported(root)["light"]["state"] == "open events"
    assert len(json.loads((root / FILE).read_text())) == 7, "a later note replaces that of the same span"


def test_an_annotation_stays_with_its_time_when_events_get_other_numbers(root):
    annotate(root, "patchtst", NewAnnotation(**note(5)))
    lines = event_lines("patchtst", 7)
    for line in lines:
        line["event_id"] += 10
        line["start_seconds"] -= 0.4
    (root / "artifacts/scores/patchtst_events.json").write_text(json.dumps(lines))
    export_state(root)
    events = exported(root)["detections"]["events"]
    assert [event["id"] for event in events if event["annotation"]] == [15]


def test_maintenance_acknowledges_its_events_until_it_is_removed(root):
    line = event_lines("patchtst", 7)[6]
    around = {"recording": line["recording"], "start_seconds": line["start_seconds"] - 60, "end_seconds": 9e4}
    annotate(root, "patchtst", NewAnnotation(**around, acknowledged=True, label="maintenance", comment="new pump"))
    for _ in range(2):
        found = exported(root)["detections"]
        assert [(each["label"], each["end_seconds"]) for each in found["annotations"]] == [("maintenance", 9e4)]
        assert (found["acknowledged"], found["events"][0]["annotation"]["comment"]) == (1, "new pump")
        export_state(root)
    later = {name: around[name] for name in ("recording", "end_seconds")} | {"start_seconds": line["end_seconds"] - 0.1}
    annotate(root, "patchtst", NewAnnotation(**around))
    annotate(root, "patchtst", NewAnnotation(**later, acknowledged=True, label="maintenance", comment="repair"))
    assert exported(root)["detections"]["acknowledged"] == 0, "what follows a fault does not explain it"
    annotate(root, "patchtst", NewAnnotation(**around, acknowledged=True, label="maintenance", comment="new pump"))
    annotate(root, "patchtst", NewAnnotation(**note(7)))
    assert exported(root)["detections"]["events"][0]["annotation"]["comment"] == "a leak", "its own is more similar"
    annotate(root, "patchtst", NewAnnotation(**note(7, acknowledged=False, label=None, comment="")))
    assert exported(root)["detections"]["events"][0]["annotation"]["comment"] == "new pump"
    for span in (around, later):
        annotate(root, "patchtst", NewAnnotation(**span))
    assert exported(root)["detections"]["annotations"] == []
    assert exported(root)["light"]["detail"].startswith("7 open events")
    assert json.loads((root / FILE).read_text()) == []


def test_annotations_of_other_data_are_neither_shown_nor_replaced(root):
    summary = root / "artifacts/scores/patchtst_summary.json"
    content = json.loads(summary.read_text())
    for data_root in ('"samples"', '"."'):
        summary.write_text(json.dumps(content | {"made_of": {"settings": {"data.root": data_root}}}))
        export_state(root)
        assert exported(root)["detections"]["annotations"] == []
        annotate(root, "patchtst", NewAnnotation(**note(7)))
    assert [each["data_root"] for each in json.loads((root / FILE).read_text())] == ["samples", "."]
    assert exported(root)["detections"]["acknowledged"] == 1


def test_a_damaged_file_is_a_problem_and_is_not_overwritten(root):
    (root / FILE).write_text("{")
    state = export_state(root)
    assert [problem.path for problem in state.problems if "annotations" in problem.path] == [FILE]
    with pytest.raises(ValueError):
        annotate(root, "patchtst", NewAnnotation(**note(1)))
    assert (root / FILE).read_text() == "{"


@pytest.fixture
def server(root: Path):
    with make_server(root / "training_dashboard", 0) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def post(server, body: bytes, *, path: str = "/annotations/patchtst", **headers: str | None) -> int:
    host = f"127.0.0.1:{server.server_port}"
    sent = {"Host": host, "Origin": f"http://{host}", "Content-Type": "application/json"}
    sent |= {"Content-Length": str(len(body))} | {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE_S)
    connection.putrequest("POST", path, skip_host=True)
    for name, value in sent.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(body)
    status = connection.getresponse().status
    connection.close()
    return status


def test_the_page_can_write_annotations(root, server):
    assert post(server, json.dumps(note(7)).encode()) == 200
    assert json.loads((root / FILE).read_text())[0]["comment"] == "a leak"


@pytest.mark.parametrize(
    "status, changes",
    [
        (403, {"Origin": "http://evil.example"}),
        (403, {"Origin": None}),
        (403, {"Origin": "null"}),
        (403, {"Host": "evil.example"}),
        (415, {"Content_Type": "text/plain"}),
        (411, {"Content_Length": None}),
        (411, {"Content_Length": "-1"}),
        (413, {"Content_Length": str(LONGEST_BODY + 1)}),
        (404, {"path": "/annotations/other"}),
        (404, {"path": "/data/dashboard-state.json"}),
    ],
)
def test_other_pages_and_paths_cannot_write(root, server, status, changes):
    before = (root / "training_dashboard/data/dashboard-state.json").read_bytes()
    assert post(server, json.dumps(note(7)).encode(), **changes) == status
    assert not (root / FILE).exists()
    assert (root / "training_dashboard/data/dashboard-state.json").read_bytes() == before


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        json.dumps(note(7, label="explosion")).encode(),
        json.dumps(note(7, comment="x" * 3000)).encode(),
        json.dumps(note(7, unknown=1)).encode(),
        json.dumps(note(7, start_seconds="soon")).encode(),
        json.dumps(note(7, end_seconds=0)).encode(),
    ],
)
def test_invalid_annotations_are_rejected(root, server, body):
    assert post(server, body) == 400
    assert not (root / FILE).exists()


@pytest.mark.slow
def test_labels_of_the_page_are_labels_of_the_next_scoring(workspace):
    """The fault of a recording without a label file becomes one; what is labelled maintenance is not judged."""
    write_process_data(workspace / "data/fdc")
    (workspace / "data/fdc/test_1.labels.csv").unlink()
    words = ["--stream", "patchtst", "--repo-root", str(workspace), "--detector", "charts", "--unless-current"]

    def scored() -> dict:
        assert run_scoring_example.main([*words, "scoring.event_gap=5", "scoring.event_min_length=3"]) == EXIT_OK
        return json.loads((workspace / "artifacts/scores/patchtst_summary.json").read_text())

    assert scored()["detection"] is None
    events = json.loads((workspace / "artifacts/scores/patchtst_events.json").read_text())
    event = max((each for each in events if "test_1" in each["recording"]), key=lambda each: each["severity"])
    span = {name: event[name] for name in ("recording", "start_seconds", "end_seconds")}
    annotate(workspace, "patchtst", NewAnnotation(**span, label="fault"))
    annotate(workspace, "patchtst", NewAnnotation(recording=span["recording"], start_seconds=0, end_seconds=9,
                                                  label="maintenance"))  # fmt: skip
    found = scored()["detection"]
    assert (found["faults_total"], found["faults_found"]) == (1, 1)
    table = pd.read_parquet(workspace / "artifacts/scores/patchtst_scores.parquet")
    label_s = table[table["recording"] == span["recording"]]["label"]
    assert label_s.iloc[:10].isna().all()
    assert label_s.iloc[10:].notna().all()
    assert table[table["recording"] != span["recording"]]["label"].isna().all(), "other recordings have no label"
    (stored, _) = json.loads((workspace / FILE).read_text())
    assert stored["data_root"] == "."
