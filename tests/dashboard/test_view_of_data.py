"""The view of the data in a real browser."""

from __future__ import annotations

import pytest

from tests.dashboard.browsing import card, data_of, first_cells, show
from tests.dashboard.builders import HOSTILE

pytestmark = pytest.mark.browser


def test_the_data_view_shows_decisions_findings_and_maps(opened):
    show(opened, "data")
    part = card(opened, "PatchTST-SSL")
    assert first_cells(opened, "files-patchtst")[:3] == ["lot_broken.csv", "lot_stuck.csv", "lot_00.parquet"]
    row = part.locator("tr", has_text="lot_broken.csv")
    assert "Drop" in row.inner_text()
    row.get_by_text("62 % of the values").first.click()
    assert row.locator(".findings li").count() == 1
    missing = data_of(opened, "Share of missing values, PatchTST-SSL")
    assert missing["lot_broken.csv"] == ["0.62", "0"]
    part.get_by_text("repeated values").click()
    repeated = data_of(opened, "Share of repeated values, PatchTST-SSL")
    assert repeated["lot_stuck.csv"] == ["0.1", "0.71"]
    assert next(iter(repeated.values())) == [HOSTILE, "chamber_pressure"]
