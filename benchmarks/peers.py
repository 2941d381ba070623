"""The comparisons, one function each: the same work, the same sizes, the same threads."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.pairs import Comparison, Work, compare
from core.config.schema import PatchTSTModel, Scalogram
from core.data.scalogram import Scalogram as ScalogramTransform
from core.models.patchtst import PatchTST


def patchtst_step(rounds: int) -> Comparison:
    """One training step (forward, backward, AdamW) in 32 bit against transformers' PatchTSTForPretraining.

    Window 512, patch 16, 64 channels, width 128, 4 heads, 3 layers, feed-forward 256, mask 0.4, dropout 0, batch 16.
    """
    from transformers import PatchTSTConfig, PatchTSTForPretraining

    batch, window, channels = 16, 512, 64
    settings = PatchTSTModel()
    peer_config = PatchTSTConfig(
        num_input_channels=channels, context_length=window, patch_length=settings.patch_length,
        patch_stride=settings.patch_stride, d_model=settings.d_model, num_attention_heads=settings.num_heads,
        num_hidden_layers=settings.num_layers, ffn_dim=settings.d_ff, attention_dropout=0.0, ff_dropout=0.0,
        positional_dropout=0.0, head_dropout=0.0, path_dropout=0.0, mask_type="random",
        random_mask_ratio=settings.mask_ratio, scaling=None, do_mask_input=True,
    )  # fmt: skip
    x_btc = torch.randn(batch, window, channels)
    ours = PatchTST(settings, num_channels=channels, window=window)
    theirs = PatchTSTForPretraining(peer_config)
    return compare(
        "PatchTST train step, 512 × 64, fp32",
        _step(ours, lambda: ours(x_btc).loss),
        _step(theirs, lambda: theirs(past_values=x_btc).loss),
        peer="transformers", unit="windows", count=batch, rounds=rounds,
    )  # fmt: skip


def scalogram(rounds: int) -> Comparison:
    """Morlet scalograms of three axes against PyWavelets' FFT method, 64 frequencies, windows of 2,048 samples."""
    import pywt

    rate_hz, settings = 6400.0, Scalogram()
    windows = torch.randn(16, 2048, 3)
    transform = ScalogramTransform(settings)
    wavelet = f"cmor2.0-{settings.omega0 / (2 * np.pi):.6f}"
    scales = settings.omega0 / (2 * np.pi) * rate_hz / transform.frequencies_hz(rate_hz).numpy()
    signals = windows.transpose(1, 2).numpy()

    def theirs() -> object:
        coefficients, _ = pywt.cwt(signals, scales, wavelet, method="fft", axis=-1)
        return np.log10(1.0 + np.abs(coefficients).astype(np.float32) / 1e-3)

    return compare(
        "scalogram, 2,048 samples × 3 axes × 64 rows", lambda: transform(windows, rate_hz), theirs,
        peer="PyWavelets", unit="windows", count=len(windows), rounds=rounds,
    )  # fmt: skip


def _step(model: torch.nn.Module, loss: Work) -> Work:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


BENCHMARKS = (patchtst_step, scalogram)
