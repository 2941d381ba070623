"""Models that predict by a simple rule, and windows to score with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from core.config.schema import PatchTSTConfig, SwinMAEConfig
from core.data.inputs import Identity
from core.data.recording import Recording
from core.data.scaling import Scaler
from core.data.segments import window_starts
from core.data.windows import Series, WindowSet
from core.devices.plan import DevicePlan
from inference.scoring import ScoringModel

CPU = DevicePlan("cpu", "CPU", "32", 1, "a test", "a test")

WHERE = {"logging": {"log_dir": "runs", "checkpoint_path": "model.pt"}, "dqvl": {"report_dir": "quality"}}
CONFIGS = {"patchtst": PatchTSTConfig(**WHERE), "swinmae": SwinMAEConfig(**WHERE)}
PATCH = CONFIGS["patchtst"].model.patch_length


class OthersModel(torch.nn.Module):
    """Predicts each channel as the mean of the other observed ones: right for coupled channels."""

    def inpaint(self, x_btc: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        observed = ~x_btc.isnan()
        filled = x_btc.nan_to_num()
        others = observed.sum(-1, keepdim=True) - observed.int()
        prediction = (filled.sum(-1, keepdim=True) - filled) / others.clamp(min=1)
        return prediction, (prediction - x_btc).square()


class PastModel(torch.nn.Module):
    """Predicts the newest patch as the mean of the rows before it."""

    def forecast(self, x_btc: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        newest_bpc = x_btc[:, -PATCH:]
        prediction = x_btc[:, :-PATCH].mean(1, keepdim=True).expand_as(newest_bpc)
        return prediction, (newest_bpc - prediction) ** 2


class PlaceModel(torch.nn.Module):
    """The error is the position in the window, so it differs between the windows of a row."""

    def inpaint(self, x_btc: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        place_t1 = torch.arange(x_btc.shape[1], dtype=torch.float32).unsqueeze(1)
        return x_btc, place_t1 + 0 * x_btc


class LoudnessModel(torch.nn.Module):
    """Vibration: the error of an image is the transform of the window."""

    def inpaint(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros_like(image), image


class Loudness:
    """Windows (B, T, A) to images (B, 3, 2, 2) of their power; the planes of missing axes are NaN."""

    def __call__(self, x_bta: torch.Tensor) -> torch.Tensor:
        power_ba = x_bta.square().mean(1)
        planes_b3 = torch.nn.functional.pad(power_ba, (0, 3 - power_ba.shape[1]), value=torch.nan)
        return planes_b3[:, :, None, None].expand(-1, -1, 2, 2)

    def to_dict(self) -> dict[str, float]:
        return {}


def scoring_with(model: torch.nn.Module, stream: str = "patchtst", channels: int = 3) -> ScoringModel:
    names = tuple(f"c{number}" for number in range(channels))
    scaler = Scaler("none", names, (0.0,) * channels, (1.0,) * channels, 20.0, {})
    transform = Identity() if stream == "patchtst" else Loudness()
    return ScoringModel(model, CONFIGS[stream], scaler, transform, names, 100.0, CPU, "run", Path("model.pt"), "0")


def windows_over(
    splits: Sequence[np.ndarray], *, window: int, stride: int, segments: Sequence[tuple[int, int]] | None = None
) -> WindowSet:
    recordings = [
        Recording(
            file_id=f"file_{number}",
            path=Path(f"file_{number}.csv"),
            values_tc=values_tc.astype(np.float32),
            time_ns=np.arange(len(values_tc), dtype=np.int64) * 10**9 + number * 10**13,
            channels=tuple(f"c{channel}" for channel in range(values_tc.shape[1])),
            sampling_rate_hz=1.0,
            time_source="timestamp" if number == 0 else "sampling_rate",
            healthy=[None, True, False][number],
        )
        for number, values_tc in enumerate(splits)
    ]
    series = Series.of(recordings, np.concatenate([recording.values_tc for recording in recordings]))
    whole = list(zip(series.offsets_r[:-1], series.offsets_r[1:], strict=True))
    segments_k2 = np.array(segments or whole, dtype=np.int64)
    starts_w = window_starts(segments_k2, window, stride, cover_end=True)
    return WindowSet(series, starts_w, window, segments_k2)


def coupled(rows: int, seed: int, channels: int = 6) -> np.ndarray:
    """Channels that follow one slow signal, each with a little noise of its own."""
    rng = np.random.default_rng(seed)
    driver_t1 = np.sin(np.arange(rows) / 9)[:, None] + 0.3 * np.cumsum(rng.normal(size=(rows, 1)), axis=0) / rows**0.5
    return driver_t1 + 0.1 * rng.normal(size=(rows, channels))
