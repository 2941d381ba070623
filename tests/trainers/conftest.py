from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

# A PatchTST that trains an epoch in milliseconds, with the same digits on every processor.
TINY = (
    "device.prefer=cpu",
    "precision='32'",
    "max_threads=1",
    "logging.progress='off'",
    "logging.tensorboard=false",
    "logging.every_steps=3",
    "data.window=32",
    "data.stride=8",
    "data.guard=0",
    "training.windows_per_epoch=0",
    "model.patch_length=8",
    "model.channel_attention=all",
    "model.d_model=16",
    "model.num_heads=2",
    "model.num_layers=1",
    "model.d_ff=32",
    "training.batch_size=8",
    "training.learning_rate=0.01",
)


@pytest.fixture
def plant(workspace: Path) -> Path:
    """A workspace with two recordings of three coupled sinusoids."""
    folder = workspace / "data" / "fdc"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(5)
    for number in range(2):
        time = np.arange(400)
        sensors = {f"c{c}": np.sin(time / 5 + c + number) + 0.02 * rng.normal(size=400) for c in range(3)}
        stamps = pd.date_range("2026-01-01", periods=400, freq="s")
        pd.DataFrame({"timestamp": stamps, **sensors}).to_csv(folder / f"train_{number}.csv", index=False)
    return workspace


@pytest.fixture(autouse=True)
def _torch_as_it_was():
    """Training sets threads and determinism for the process; they are restored for other tests."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)
