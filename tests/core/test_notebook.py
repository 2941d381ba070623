"""Output in notebooks, as far as it needs no kernel."""

from __future__ import annotations

import logging

import pandas as pd
import pytest

from core.notebook import start_notebook


@pytest.fixture
def root_logger():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(False)


def test_information_about_data_is_shown_once_and_warnings_always(root_logger, capsys):
    start_notebook()
    data, training = logging.getLogger("core.data.dataset"), logging.getLogger("trainers.run")
    for _ in range(2):
        data.info("train: %d windows", 400)
        data.warning("test_1.csv dropped")
        training.info("epoch 1")
    data.info("train: %d windows", 300)
    shown = capsys.readouterr().out.splitlines()
    assert [line for line in shown if "windows" in line] == ["train: 400 windows", "train: 300 windows"]
    assert sum("dropped" in line for line in shown) == 2
    assert shown.count("epoch 1") == 2


def test_messages_in_tables_are_complete(root_logger):
    with pd.option_context("display.max_colwidth", 50):
        start_notebook()
        assert "x" * 80 in pd.DataFrame({"warnings": ["x" * 80]}).to_html()
