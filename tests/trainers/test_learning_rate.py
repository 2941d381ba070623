import pytest

from trainers.optimizer import learning_rate


def rates(total: int, warmup: int, *, peak: float = 1.0, final: float = 0.1) -> list[float]:
    return [
        learning_rate(step, total_steps=total, warmup_steps=warmup, peak=peak, final=final) for step in range(total)
    ]


def test_the_warm_up_is_linear_and_starts_above_zero():
    assert rates(20, 4)[:4] == [0.25, 0.5, 0.75, 1.0]


def test_the_decay_is_half_a_cosine_from_peak_to_final():
    decay = rates(25, 4)[4:]
    assert decay[0] == 1.0
    assert decay[10] == pytest.approx(0.55), "half of the steps, half of the decay"
    assert decay[-1] == 0.1
    assert decay == sorted(decay, reverse=True)
    assert [1.1 - rate for rate in reversed(decay)] == pytest.approx(decay), "symmetric about its middle"


@pytest.mark.parametrize(
    "total, warmup, expected", [(1, 0, [1.0]), (2, 0, [1.0, 0.1]), (3, 3, [1 / 3, 2 / 3, 1.0]), (2, 1, [1.0, 1.0])]
)
def test_the_shortest_runs(total, warmup, expected):
    assert rates(total, warmup) == pytest.approx(expected)


def test_after_the_last_step_the_rate_is_constant():
    assert learning_rate(99, total_steps=10, warmup_steps=2, peak=1.0, final=0.1) == 0.1
