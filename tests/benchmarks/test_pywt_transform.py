"""Compared with PyWavelets itself, at short and long wavelets, odd lengths and precisions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.pywt_transform import coefficients

pywt = pytest.importorskip("pywt")


@pytest.mark.parametrize("precision", [10, 12, 15])
@pytest.mark.parametrize("wavelet", ["morl", "cmor1.5-1.0", "cmor2.0-0.954930"])
@pytest.mark.parametrize("num_samples", [997, 1024])
def test_the_coefficients_are_those_of_pywavelets(wavelet, precision, num_samples):
    signal_bat = np.random.default_rng(0).standard_normal((2, 3, num_samples))
    scales = tuple(np.geomspace(1.3, 400.0, 17))  # the longest wavelets are six times the signal
    theirs_fbat, _ = pywt.cwt(signal_bat, scales, wavelet, axis=-1, precision=precision)
    ours_baft = coefficients(torch.from_numpy(signal_bat), scales, wavelet, precision).numpy()
    assert ours_baft.dtype == (np.float32 if wavelet == "morl" else np.complex64)
    error = np.abs(ours_baft - np.moveaxis(theirs_fbat, 0, 2)).max()
    assert error < 1e-5 * np.abs(theirs_fbat).max()


def test_other_wavelets_and_too_small_scales_are_rejected():
    x_bat = torch.zeros(1, 1, 64)
    with pytest.raises(ValueError, match="neither morl nor cmorB-C"):
        coefficients(x_bat, (2.0,), "mexh")
    with pytest.raises(ValueError, match=r"scale 0\.05 leaves"):
        coefficients(x_bat, (0.05,))
