"""Reads what the dashboard export wrote, as strictly as a browser and the published schemas do."""

from __future__ import annotations

import json

import jsonschema

from tests.dashboard.builders import REPOSITORY


def load(root, name):
    def refuse(constant):
        raise AssertionError(f"{name} holds {constant}")

    return json.loads((root / "training_dashboard" / "data" / name).read_text("utf-8"), parse_constant=refuse)


def validate(document, schema):
    published = REPOSITORY / "training_dashboard" / "schema" / schema
    validator = jsonschema.Draft202012Validator(json.loads(published.read_text("utf-8")))
    validator.validate(document)
