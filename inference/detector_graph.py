"""The computations of a detector with a model as one graph: from windows in the units of the sensors to errors.

Scaling and, for vibration, the scalogram are part of the graph. PyTorch runs it in `landfall watch`, and `landfall
export-model` writes it as an ONNX file; both give the errors of `inference.model_errors` for the same windows.

Shape suffixes: b window, t row, p row of the newest patch, c channel or axis.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from core.data.scaling import Scaler
from core.devices.memory import until_it_fits
from inference.scoring import ScoringModel, channel_errors


class DetectorGraph(nn.Module):
    """Maps values (B, T, C) to the predictions of the model, in scaled units, and its errors.

    Process sensors: both float32 (B, P, C), the newest patch of each window as predicted from the rows before it. The
    detector does not look ahead. Vibration: predicted images as in `infer_score`, and mean errors of axes (B, C).
    """

    def __init__(self, scoring: ScoringModel):
        super().__init__()
        self.stream, self.model, self.transform = scoring.stream, scoring.model, scoring.transform
        self.scaled = _Scaled(scoring.scaler).to(scoring.device)

    def forward(self, values_btc: Tensor) -> tuple[Tensor, Tensor]:
        x_btc = self.scaled(values_btc)
        if self.stream == "patchtst":
            return self.model.forecast(x_btc)
        expected, error = self.model.inpaint(self.transform(x_btc))
        return expected, channel_errors(error, self.stream)[:, : values_btc.shape[-1]]


class _Scaled(nn.Module):
    """`core.data.windows.Series.scaled_` as a module."""

    def __init__(self, scaler: Scaler):
        super().__init__()
        for name, column_c in zip(("center_c", "rest_c", "scale_c"), scaler.columns(), strict=True):
            self.register_buffer(name, torch.from_numpy(column_c))
        self.clip = scaler.clip

    def forward(self, values_btc: Tensor) -> Tensor:
        x_btc = (values_btc - self.center_c - self.rest_c) / self.scale_c
        # ONNX does not define Clip for NaN.
        return torch.where(values_btc.isnan(), values_btc, x_btc.clamp(-self.clip, self.clip))


class TorchPredictor:
    """The model of a checkpoint on its device. batch_size: number of windows, reduced if memory is exhausted."""

    def __init__(self, scoring: ScoringModel, batch_size: int):
        self.sha256, self.channels = scoring.sha256, scoring.channels
        self._graph, self._size = DetectorGraph(scoring), batch_size
        self._device, self._kind = scoring.device, scoring.kind

    def errors(self, values_btc: np.ndarray) -> np.ndarray:
        return self.expected_and_errors(values_btc)[1]

    def expected_and_errors(self, values_btc: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The predictions, in scaled units, and the errors; shapes as for `DetectorGraph`."""
        found, self._size = until_it_fits(partial(self._run, torch.from_numpy(values_btc)), self._size, kind=self._kind)
        return found

    @torch.no_grad()
    def _run(self, values_btc: Tensor, size: int) -> tuple[np.ndarray, np.ndarray]:
        found = [self._graph(part_btc.to(self._device)) for part_btc in values_btc.split(size)]
        return tuple(torch.cat([each.cpu() for each in parts]).numpy() for parts in zip(*found, strict=True))
