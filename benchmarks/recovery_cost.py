"""What it costs a healthy step to be watched: `trainers.recovery` against the optimizer alone, in alternating rounds.

    python -m benchmarks.recovery_cost [--rounds 20] [--steps 10]

Prints, for both streams at the sizes of their configurations and for a PatchTST as small as tests train, the median
milliseconds of a step and what watching adds: looked at once, as on a CPU, and told by the device, as on CUDA. They are
the processor's, so that others who use it do not count.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch

from core.config.compose import load_config, local_config_file
from core.data.inputs import Identity, Inputs
from core.data.recording import Recording
from core.data.windows import Series, WindowSet
from core.devices.batching import BatchPlan
from core.devices.plan import DevicePlan
from core.models.factory import build_model
from core.workspace import find_root
from trainers.context import RunContext
from trainers.loop import Trainer
from trainers.recovery import NonFiniteGuard

PLAN = DevicePlan("cpu", "CPU", "32", 1, "a benchmark", "a benchmark")
CHANNELS, NUM_WINDOWS, BATCH = 8, 64, 32
SMALL = (
    "data.window=64", "model.patch_length=8", "model.patch_stride=8", "model.d_model=32", "model.num_heads=2",
    "model.num_layers=2", "model.d_ff=64",
)  # fmt: skip
_WAVES = ["data.window=2048", "scalogram.frequency_min_hz=10"]


class Images(Identity):
    """Random images in place of scalograms, whose making is no part of a step."""

    def __init__(self, size: int):
        self.size = size

    def __call__(self, x_bta: torch.Tensor) -> torch.Tensor:
        return torch.randn(len(x_bta), 3, self.size, self.size, generator=torch.Generator().manual_seed(0))


def make_trainer(stream: str, overrides: Sequence[str], folder: Path) -> Trainer:
    recipe = ["data.window=256", "model.patch_length=16", "model.patch_stride=16"] if stream == "patchtst" else _WAVES
    overrides = [*recipe, "training.windows_per_epoch=0", *overrides]
    loaded = load_config(local_config_file(stream), overrides, root=find_root(), environment={})
    config = loaded.config
    channels = CHANNELS if stream == "patchtst" else 3
    values_tc = torch.randn(NUM_WINDOWS * config.data.window, channels).numpy()
    names = tuple(f"c{c}" for c in range(channels))
    recording = Recording("r", Path("r"), values_tc, torch.arange(len(values_tc)).numpy(), names, None, "index")
    starts_w = torch.arange(0, len(values_tc), config.data.window)
    windows = WindowSet(Series.of([recording], values_tc), starts_w, config.data.window)
    transform = Identity() if stream == "patchtst" else Images(config.scalogram.image_size)
    inputs = Inputs(windows, transform, PLAN.device)
    batch = BatchPlan(
        starting=BATCH, effective=BATCH, micro=BATCH, accumulate=1, largest=None, gradient_checkpointing=False,
        peak_mb=None, seconds_per_step=None, reason="a benchmark",
    )  # fmt: skip
    model = build_model(config, num_channels=channels)
    bundle = {"run_id": "r", "config": config.model_dump(mode="json")}
    trainer = Trainer(model, inputs, inputs, context=RunContext(loaded, folder, PLAN), batch=batch, bundle=bundle)
    trainer.model.train()
    trainer._loss_sum = torch.zeros(())
    return trainer


def unguarded(guard: NonFiniteGuard, optimizer: torch.optim.Optimizer, *_: torch.Tensor) -> torch.Tensor:
    optimizer.found_inf = None
    optimizer.step()
    return guard._skipped


def milliseconds(trainer: Trainer, steps: int) -> float:
    index_b, started = torch.arange(BATCH), time.process_time()
    for step in range(steps):
        trainer._optimize(index_b, 0, step)
    return (time.process_time() - started) / steps * 1000


def compare(trainer: Trainer, *, rounds: int, steps: int) -> dict[str, list[float]]:
    """Milliseconds a step in each round, by how the step is guarded."""

    def plain() -> float:
        with patch.object(NonFiniteGuard, "step", unguarded):
            return milliseconds(trainer, steps)

    def guarded(at_once: bool) -> float:
        trainer.guard.reads_every_step = at_once
        trainer.optimizer.found_inf = None
        return milliseconds(trainer, steps)

    ways: dict[str, Callable[[], float]] = {
        "unguarded": plain, "by the host": lambda: guarded(True), "by the device": lambda: guarded(False),
    }  # fmt: skip
    found: dict[str, list[float]] = {name: [] for name in ways}
    milliseconds(trainer, steps)
    for number in range(rounds):
        order = list(ways) if number % 2 else list(ways)[::-1]
        for name in order:
            found[name].append(ways[name]())
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    cases = {"small patchtst": ("patchtst", SMALL), "patchtst": ("patchtst", ()), "swinmae": ("swinmae", ())}
    for name, (stream, overrides) in cases.items():
        with TemporaryDirectory() as folder:
            trainer = make_trainer(stream, ["device.prefer=cpu", *overrides], Path(folder))
            found = compare(trainer, rounds=arguments.rounds, steps=arguments.steps)
        plain = found.pop("unwatched")
        told = [f"{way} {median(w / p - 1 for w, p in zip(ms, plain, strict=True)):+.2%}" for way, ms in found.items()]
        sys.stdout.write(f"{name}: {median(plain):.2f} ms a step; {', '.join(told)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
