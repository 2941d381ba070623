"""The views of the device and of the migration in a real browser."""

from __future__ import annotations

import pytest

from tests.dashboard.browsing import card, data_of, show

pytestmark = pytest.mark.browser


def test_the_device_view_shows_decisions_with_reasons_and_memory(opened):
    show(opened, "device")
    assert "update its driver" in card(opened, "This machine").inner_text()
    text = card(opened, "PatchTST-SSL").inner_text()
    for expected in (
        "first CUDA device that passed a matrix product",
        "global batch size 64, micro-batch 32 × 2",
        "15,360 MiB",
    ):
        assert expected in text
    assert "measured peak is 80 %" in text


def test_the_migration_view_shows_findings_and_manual_steps(opened):
    show(opened, "migration")
    assert "cell 3, line 2: a key → revoke it" in card(opened, "Manual changes").inner_text()
    assert data_of(opened, "Findings by rule")["Findings"] == ["4", "1"]
    assert "local_plant.ipynb" in card(opened, "Notebooks").inner_text()
