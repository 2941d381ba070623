"""The input of a model: scaled windows, or their standardised scalograms."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, Self

import torch

from core.config.recipe import lowest_frequency
from core.config.schema import AnyConfig, SwinMAEConfig
from core.data.feed import Feed
from core.data.scalogram import Scalogram, with_level_added, with_level_apart
from core.data.windows import WindowSet
from core.devices.memory import cache_limit_mb
from core.devices.plan import kind_of
from core.process_memory import MIB
from core.progress import Mode, Progress

log = logging.getLogger(__name__)

# Windows for the statistics of scalograms, evenly spaced over the training split.
STATISTICS_WINDOWS = 512
TRANSFORM_BATCH = 32
# Windows for the mean training input, evenly spaced over the training split.
MEAN_WINDOWS = 2048
# Smallest deviation of a row, in decades of amplitude: 1 dB. A constant row would otherwise be divided by 0.
SMALLEST_DEVIATION = 0.05


def evenly_spaced(length: int, most: int) -> torch.Tensor:
    """Up to `most` of the indices below `length`, from the first to the last: int64, ascending."""
    return torch.linspace(0, length - 1, min(length, most)).long().unique()


class InputTransform(Protocol):
    """Turns scaled windows (B, T, C) into model input."""

    def __call__(self, x_btc: torch.Tensor) -> torch.Tensor: ...
    def to_dict(self) -> dict[str, Any]: ...


class Identity:
    """The input of PatchTST is the windows."""

    def __call__(self, x_btc: torch.Tensor) -> torch.Tensor:
        return x_btc

    def to_dict(self) -> dict[str, Any]:
        return {}


class StandardisedScalogram:
    """Windows (B, T, A) to images (B, 3, H, W), standardised per image plane (one per axis) and frequency row; six
    planes with `scalogram.envelope`.

    mean, deviation: float32 (3, H, 1), or one number for all, in decades of amplitude, from the training split only.
    Rows differ more from each other than over time. With a single mean and deviation for all of them, most of the loss
    would come from the mean spectrum, which a model learns as a constant. With `scalogram.level: separate`, rows with
    the level follow those of the image (`core.data.scalogram.with_level_apart`), with a mean and a deviation too.
    """

    def __init__(
        self,
        scalogram: Scalogram,
        sampling_rate_hz: float,
        *,
        remove_mean: bool,
        mean: torch.Tensor | float = 0.0,
        deviation: torch.Tensor | float = 1.0,
    ):
        self.scalogram, self.sampling_rate_hz = scalogram, sampling_rate_hz
        self.remove_mean = remove_mean
        self.mean, self.deviation = torch.as_tensor(mean), torch.as_tensor(deviation)

    @classmethod
    def fit(cls, scalogram: Scalogram, sampling_rate_hz: float, windows: WindowSet, *, remove_mean: bool) -> Self:
        plain = cls(scalogram, sampling_rate_hz, remove_mean=remove_mean)
        count = total = squares = 0
        for index_b in evenly_spaced(len(windows), STATISTICS_WINDOWS).split(TRANSFORM_BATCH):
            images = plain(windows.batch(index_b)).double()
            count = count + (~images.isnan()).sum(dim=(0, 3)).unsqueeze(-1)
            total = total + images.nansum(dim=(0, 3)).unsqueeze(-1)
            squares = squares + images.square().nansum(dim=(0, 3)).unsqueeze(-1)
        mean = total / count
        deviation = (squares / count - mean.square()).clamp(min=SMALLEST_DEVIATION**2).sqrt()
        # The planes of missing axes have no value; they stay NaN.
        plain.mean, plain.deviation = mean.nan_to_num(0.0).float(), deviation.nan_to_num(1.0).float()
        return plain

    def __call__(self, x_bta: torch.Tensor) -> torch.Tensor:
        if self.remove_mean:
            x_bta = x_bta - x_bta.nanmean(dim=1, keepdim=True)
        image_bahw = self.scalogram(x_bta, self.sampling_rate_hz)
        if self._level_is_apart:
            image_bahw = with_level_apart(image_bahw)
        return (image_bahw - self.mean.to(image_bahw.device)) / self.deviation.to(image_bahw.device)

    def decades(self, image_bahw: torch.Tensor) -> torch.Tensor:
        """Reverses the standardisation: images (B, 3, H, W) in decades of amplitude."""
        image_bahw = image_bahw * self.deviation.to(image_bahw.device) + self.mean.to(image_bahw.device)
        return with_level_added(image_bahw) if self._level_is_apart else image_bahw

    @property
    def _level_is_apart(self) -> bool:
        return self.scalogram.settings.level == "separate"

    def to_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "deviation": self.deviation}


def build_transform(
    config: AnyConfig,
    *,
    sampling_rate_hz: float | None,
    windows: WindowSet | None = None,
    fitted: Mapping[str, Any] | None = None,
) -> InputTransform:
    """The transform of the stream: `fitted` comes from a checkpoint; without it, fitted on the training `windows`."""
    if not isinstance(config, SwinMAEConfig):
        return Identity()
    settings, remove_mean = config.scalogram, config.data.remove_mean
    if windows is not None:
        settings = lowest_frequency(settings, windows.window, sampling_rate_hz)
    scalogram = Scalogram(settings)
    if fitted is not None:
        return StandardisedScalogram(scalogram, sampling_rate_hz, remove_mean=remove_mean, **fitted)
    return StandardisedScalogram.fit(scalogram, sampling_rate_hz, windows, remove_mean=remove_mean)


class Inputs:
    """Model input by window index, on the device of the computation."""

    def __init__(self, windows: WindowSet, transform: InputTransform, device: torch.device, *, progress: Mode = "off"):
        self.feed = Feed(windows, device)
        self.transform = transform
        self._cache: torch.Tensor | None = None
        if not isinstance(transform, Identity):
            self._cache = self._fill_cache(progress)

    @property
    def windows(self) -> WindowSet:
        return self.feed.windows

    def __len__(self) -> int:
        return len(self.windows)

    def batch(self, index_b: torch.Tensor) -> torch.Tensor:
        if self._cache is not None:
            return self._cache[index_b.to(self._cache.device)]
        return self.transform(self.feed.batch(index_b))

    def expect(self, index_b_each: Iterable[torch.Tensor]) -> None:
        """The batches that are likely to be requested next, in this order."""
        if self._cache is None:
            self.feed.expect(index_b_each)

    def _fill_cache(self, progress: Mode) -> torch.Tensor | None:
        """All images, so that no epoch repeats the transform; None if the memory does not suffice."""
        one = self.batch(torch.tensor([0]))
        needed_mb, limit_mb = one.nbytes * len(self) / MIB, cache_limit_mb(kind_of(one.device))
        if needed_mb > limit_mb:
            log.info(
                "%d scalograms need %.0f MiB, %s has %.0f MiB for them: they are computed in each epoch",
                len(self), needed_mb, one.device, limit_mb,
            )  # fmt: skip
            return None
        images = one.new_empty(len(self), *one.shape[1:])
        with Progress(len(self), "scalograms", unit="windows", mode=progress) as bar:
            for index_b in torch.arange(len(self)).split(TRANSFORM_BATCH):
                images[index_b] = self.batch(index_b)
                bar.advance(len(index_b))
        return images


def mean_input(inputs: Inputs) -> torch.Tensor:
    """The mean of training inputs at each position, in the shape of one sample; NaN where no value is observed.

    It is the best prediction of a model that ignores the visible values: the mean window of each channel, or the mean
    scalogram, in the units of the loss.
    """
    total = count = 0
    for index_b in evenly_spaced(len(inputs), MEAN_WINDOWS).split(TRANSFORM_BATCH):
        batch = inputs.batch(index_b)
        total, count = total + batch.nansum(0), count + (~batch.isnan()).sum(0)
    return total / count
