"""An interrupted run in a notebook, or one with a killed kernel, gives the same result as an uninterrupted one."""

from __future__ import annotations

import signal

import pytest

from core.config.compose import load_config
from tests.notebooks.test_working_in_a_notebook import PATIENCE_S, Page, page
from tests.support.killing import Outcome
from tests.support.small_workspace import CONFIGS

pytestmark = pytest.mark.nightly

__all__ = ["page"]  # the fixture: one kernel for the tests of this module

WORDS = ("deterministic=true", "cudnn_benchmark=false", "training.checkpoint_every_minutes=0.001", "model.dropout=0.1")
EPOCHS = 30


def outcome_of(page: Page) -> Outcome:
    """After scoring what was trained."""
    scored = page.run(page.cell("score_stream"))
    assert scored.reply["status"] == "ok", scored.reply
    return Outcome.of(load_config(CONFIGS["patchtst"], WORDS, root=page.root, environment={}).config, root=page.root)


def kill_when(page: Page, code: str, words: str) -> None:
    """Runs a cell, kills its kernel with -9 when the cell has printed a text, and starts another kernel."""
    page.hold(words)
    request, said = page.client.execute(code), ""
    while words not in said:
        message = page.client.get_iopub_msg(timeout=PATIENCE_S)
        if message["parent_header"].get("msg_id") != request:
            continue
        assert message["content"].get("execution_state") != "idle", said
        said += message["content"]["text"] if message["msg_type"] == "stream" else ""
    page.manager.signal_kernel(signal.SIGKILL)
    page.manager.restart_kernel(now=True)
    page.client.wait_for_ready(timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def straight(page) -> Outcome:
    page.open(*WORDS, epochs=EPOCHS)
    assert page.run(page.cell("from trainers.run import train")).reply["status"] == "ok"
    return outcome_of(page)


def test_an_interrupted_cell_that_runs_again_is_bit_exact(page, straight):
    training = page.cell("from trainers.run import train")
    for words in (f"epoch 2/{EPOCHS}", f"epoch 20/{EPOCHS}"):
        stopped = page.run(training, stop_when=words)
        assert stopped.reply.get("ename") == "StoppedError", stopped.reply
    done = page.run(training)
    assert "resuming bit-exactly" in done.said
    assert outcome_of(page).differences(straight) == []


@pytest.mark.nightly
def test_a_cell_that_runs_again_after_a_killed_kernel_is_bit_exact(page, straight):
    training = page.cell("from trainers.run import train")
    kill_when(page, training, f"epoch 3/{EPOCHS}")
    page.open(*WORDS, epochs=EPOCHS)
    done = page.run(training)
    assert "resuming bit-exactly" in done.said
    assert outcome_of(page).differences(straight) == []
