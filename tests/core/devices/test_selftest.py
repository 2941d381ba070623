import pytest
import torch

from core.devices.selftest import failure_on, first_line, native_dtypes

CPU = torch.device("cpu")


class Faulty:
    """torch with a wrong matrix product."""

    def __init__(self, matmul):
        self.matmul = matmul

    def __getattr__(self, name):
        return getattr(torch, name)


def raising(first, second):
    raise RuntimeError("CUDA error: no kernel image is available\nCompile with TORCH_USE_CUDA_DSA")


def test_a_healthy_device_passes_in_every_type():
    assert failure_on(CPU) is None
    assert native_dtypes(CPU, ["float16", "bfloat16"]) == ("float32", "float16", "bfloat16")


def test_the_first_line_of_an_error_is_the_reason():
    assert failure_on(CPU, Faulty(raising)).endswith(": CUDA error: no kernel image is available")


@pytest.mark.parametrize(
    "matmul",
    [
        lambda first, second: torch.matmul(first, second) + 1,
        lambda first, second: torch.matmul(first, second) * float("nan"),
        lambda first, second: torch.matmul(first, second.detach()) + (second - second.detach()),
    ],
    ids=["forward", "nan", "backward"],
)
def test_wrong_numbers_are_noticed(matmul):
    assert "wrong numbers" in failure_on(CPU, Faulty(matmul))


@pytest.mark.parametrize(
    "wrong, warning",
    [(raising, "fails in bfloat16: CUDA error"), (lambda first, second: first, "computes wrong numbers in bfloat16")],
)
def test_a_type_that_fails_is_not_native(wrong, warning, caplog):
    def matmul(first, second):
        return wrong(first, second) if first.dtype == torch.bfloat16 else torch.matmul(first, second)

    assert native_dtypes(CPU, ["float16", "bfloat16"], Faulty(matmul)) == ("float32", "float16")
    assert warning in caplog.text


@pytest.mark.parametrize("surroundings", [torch.no_grad, torch.inference_mode])
def test_the_caller_may_have_gradients_off(surroundings):
    with surroundings():
        assert failure_on(CPU) is None


def test_the_callers_random_numbers_and_default_type_do_not_matter(monkeypatch):
    before = torch.get_rng_state()
    torch.set_default_dtype(torch.float64)
    try:
        assert failure_on(CPU) is None
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_error_without_a_message_is_named_by_its_class():
    assert first_line(ValueError()) == "ValueError"
