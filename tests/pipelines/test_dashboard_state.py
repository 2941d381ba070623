"""The published documents: their schemas are valid, and the models keep what JSON and the page can hold."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

import jsonschema
import pytest
from pydantic import ValidationError

from core.documents import Document
from core.run_status import EpochPoint
from pipelines.dashboard.run_documents import RunsIndex, RunStream
from pipelines.export_training_dashboard_state import DOCUMENTS, main


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_printed_schema_is_valid_pins_the_version_and_allows_new_fields(name, capsys):
    assert main(["--schema", name]) == 0
    schema = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["properties"]["schema_version"]["const"] == 1
    assert "schema_version" in schema["required"]
    assert '"additionalProperties": false' not in json.dumps(schema)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_non_json_values_become_null(value):
    point = EpochPoint(epoch=1, train_loss=value)
    run = RunStream(state="failed", config={"training": {"clip": [value]}})
    assert point.train_loss is None
    assert json.loads(run.model_dump_json(), parse_constant=pytest.fail)["config"] == {"training": {"clip": [None]}}


@pytest.mark.parametrize("text", ["2026-11-21T08:30:00", "2026-11-21T08:30:00Z", "2026-11-21T17:30:00+09:00"])
def test_times_are_converted_to_utc(text):
    point = EpochPoint.model_validate({"epoch": 1, "time": text})
    assert point.time == datetime(2026, 11, 21, 8, 30, tzinfo=UTC)
    assert '"2026-11-21T08:30:00.000000Z"' in point.model_dump_json(), "one width, so that times in text sort"


def test_unknown_fields_are_ignored_and_other_versions_rejected():
    assert RunsIndex.model_validate({"schema_version": 1, "runs": [], "colour": "blue"}).runs == []
    with pytest.raises(ValidationError, match="schema_version"):
        RunsIndex.model_validate({"schema_version": 2, "runs": []})


def test_every_field_has_a_description():
    silent = [
        f"{model.__name__}.{name}"
        for model in Document.__subclasses__()
        for name, field in model.model_fields.items()
        if not field.description and name != "schema_version"
    ]
    assert silent == []
