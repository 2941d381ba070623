import pytest
import torch

from core import stopping
from core.stopping import StopRequest
from trainers.distributed import SINGLE_PROCESS, Decision, StopConsensus, World


class Others(World):
    """A world of two processes; the other one votes as the test sets: for stopping, for saving."""

    def vote(self, *votes: tuple[bool, bool]) -> "Others":
        object.__setattr__(self, "votes", list(votes))
        return self

    def all_reduce_sum(self, values):
        stop, save = self.votes.pop(0)
        return values + torch.tensor([float(stop), values[1].item(), float(save)])


NONE, STOP, SAVE = (False, False), (True, False), (False, True)
EXPECTED = {"step_seconds": 4.0, "validation_seconds": 0.0, "save_is_due": False}


def consensus_of(world: World, stop: StopRequest | None = None) -> StopConsensus:
    return StopConsensus(stop or StopRequest(), world, torch.device("cpu"))


def test_all_processes_stop_if_one_must():
    consensus = consensus_of(Others(size=2).vote(NONE, STOP))
    assert consensus.decide(**EXPECTED, steps_left=9) == Decision(stop=False, save=False)
    assert consensus.decide(**EXPECTED, steps_left=8) == Decision(stop=True, save=False)
    assert consensus.stop.reason.startswith("another process")


def test_all_processes_save_if_one_is_due():
    """All processes gather the shards of the weights."""
    consensus = consensus_of(Others(size=2).vote(SAVE, NONE))
    assert consensus.decide(**EXPECTED, steps_left=9) == Decision(stop=False, save=True)
    assert consensus.stop.reason is None
    assert consensus.decide(**{**EXPECTED, "save_is_due": True}, steps_left=8) == Decision(stop=False, save=True)


@pytest.mark.parametrize("due", [False, True])
def test_a_single_process_decides_without_votes(due):
    assert consensus_of(SINGLE_PROCESS).decide(**{**EXPECTED, "save_is_due": due}, steps_left=9) == Decision(
        stop=False, save=due
    )


def test_fast_steps_vote_every_few_seconds():
    world = Others(size=2).vote(*[NONE] * 4)
    consensus = consensus_of(world)
    for left in range(100, 0, -1):
        decision = consensus.decide(step_seconds=0.125, validation_seconds=0.0, steps_left=left, save_is_due=False)
        assert decision == Decision(stop=False, save=False)
    assert world.votes == [NONE], "steps 1, 41 and 81 met"


def test_slow_steps_vote_again_once_their_duration_is_known():
    world = Others(size=2).vote(NONE, STOP)
    consensus = consensus_of(world)
    assert not consensus.decide(step_seconds=0.0, validation_seconds=0.0, steps_left=9, save_is_due=False).stop
    assert consensus.decide(step_seconds=60.0, validation_seconds=0.0, steps_left=8, save_is_due=False).stop


@pytest.mark.parametrize("steps_left, due", [(60, False), (40, True)])
def test_a_validation_before_the_next_vote_counts(monkeypatch, steps_left, due):
    monkeypatch.setattr(stopping, "seconds_since_start", lambda: 3600 - 60 - 100.0)
    consensus = consensus_of(Others(size=2).vote(NONE, NONE), StopRequest(timeout_hours=1.0))
    consensus._interval = 50
    decision = consensus.decide(step_seconds=0.1, validation_seconds=300.0, steps_left=steps_left, save_is_due=False)
    assert decision.stop is due
