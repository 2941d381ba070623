"""A detector of the control charts alone, fitted to reference data: no checkpoint, no training, and no torch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from core.config.compose import with_values
from core.config.schema import AnyConfig
from core.data.dataset import StreamData, load_stream_data
from core.data.splits import SPLIT_NAMES, SplitName
from inference.detector.detector import Detector
from inference.detector.fitting import CHARTS_ONLY, fit
from inference.entries import SplitErrors
from inference.groups import reference_of

log = logging.getLogger(__name__)


def of_charts_alone(config: AnyConfig) -> AnyConfig:
    """The configuration of scoring with control charts alone, which run on the CPU."""
    return with_values(
        config, {**CHARTS_ONLY, "device.prefer": "cpu", "precision": "32"}, source="control charts alone"
    )


def fitted_charts(
    config: AnyConfig, *, root: Path, splits: Sequence[SplitName] = SPLIT_NAMES
) -> tuple[Detector, StreamData]:
    """A detector of the reference splits of the configuration, and the data with these splits loaded.

    Raises DataError for data that cannot be scored, is not available, or is too small to fit a detector.
    """
    log.info("scoring with control charts alone, without a model")
    data = load_stream_data(of_charts_alone(config), root=root, splits=splits)
    reference = reference_of(data.splits)
    entries = {"calibration": SplitErrors.without_model(config.stream, reference["calibration"])}
    return fit(data.config, None, reference, entries), data
