"""Reads what the dashboard export wrote, as strictly as a browser and the documents' JSON Schemas do."""

from __future__ import annotations

import json

import jsonschema

from pipelines.export_training_dashboard_state import schema_of


def load(root, name):
    def refuse(constant):
        raise AssertionError(f"{name} holds {constant}")

    return json.loads((root / "training_dashboard" / "data" / name).read_text("utf-8"), parse_constant=refuse)


def validate(document, name):
    jsonschema.Draft202012Validator(json.loads(schema_of(name))).validate(document)
