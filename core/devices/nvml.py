"""How busy an NVIDIA GPU is, by its driver's own library; without it nobody knows. Imports no torch."""

from __future__ import annotations

import ctypes
import functools
import logging

log = logging.getLogger(__name__)

_LIBRARIES = ("libnvidia-ml.so.1", "nvml.dll")
_SUCCESS = 0


class _Utilisation(ctypes.Structure):
    """Percent of the driver's last sampling period, up to a second."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def utilisation(uuid: str) -> float | None:
    """Share of the last moments in which the GPU ran a kernel, 0 to 1; None where the driver does not tell, as it does
    of no slice of a GPU (MIG)."""
    library, handle = _library(), _handle(uuid)
    found = _Utilisation()
    if library is None or handle is None:
        return None
    if library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(found)) != _SUCCESS:
        return None
    return found.gpu / 100


@functools.cache
def _library() -> ctypes.CDLL | None:
    for name in _LIBRARIES:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        if library.nvmlInit_v2() == _SUCCESS:
            return library
    log.debug("no NVML: the utilisation of GPUs is not known")
    return None


@functools.cache
def _handle(uuid: str) -> ctypes.c_void_p | None:
    library, handle = _library(), ctypes.c_void_p()
    name = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    if library is None or library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle)) != _SUCCESS:
        return None
    return handle
