"""Tests every device and the disk, with a remedy for each failure: `landfall devices --doctor`."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from core.devices.manager import DeviceManager
from core.process_memory import MIB
from core.workspace import root_or
from pipelines.checklist import Status
from pipelines.devices.document import CheckResult

GIB = 2**30

# Limits of `grade`.
FREE_DISK_GIB = (10.0, 1.0)
SHARED_MEMORY_GIB = (1.0, 0.06)  # Docker's default of 64 MiB is too little for the processes of several GPUs
WRITE_MIB_PER_S = (50.0, 1.0)
WRITE_SIZE_MIB = 64
# Largest difference from the CPU, relative to the largest value: TF32 keeps 10 bits of mantissa, bfloat16 7.
PARITY_TOLERANCE = 5e-3
BFLOAT16_TOLERANCE = 2e-2


@dataclass(frozen=True)
class SubjectResult:
    """The result of one check on one subject: a device or a folder."""

    subject: str
    status: Status
    detail: str


@dataclass(frozen=True)
class CheckContext:
    """The input of the checks: the hardware and the output folder of runs. shared_memory: folder through which the
    processes of several GPUs pass gradients."""

    manager: DeviceManager
    root: Path
    shared_memory: Path = Path("/dev/shm")

    @property
    def accelerators(self) -> list[torch.device]:
        return [device for device in self.manager.devices if device.type != "cpu"]


@dataclass(frozen=True)
class Check:
    """A check, and the remedy if it does not pass."""

    title: str
    run: Callable[[CheckContext], Iterator[SubjectResult]]
    remedy: str


def run_checks(manager: DeviceManager, root: Path | None = None) -> list[CheckResult]:
    """The results of all checks, in order; a check that raises has failed. root: default: the current workspace."""
    context = CheckContext(manager, root or root_or(Path.cwd()))
    return [result for check in CHECKS for result in _results(check, context)]


def _results(check: Check, context: CheckContext) -> Iterator[CheckResult]:
    try:
        for result in check.run(context):
            remedy = check.remedy if result.status in ("WARN", "FAIL") else None
            yield CheckResult(check=check.title, **vars(result), cure=remedy)
    except Exception as error:  # a broken driver may raise any error, and the next checks must run
        yield CheckResult(check=check.title, subject="", status="FAIL", detail=_words(error), cure=check.remedy)


# ------------------------------------------------------------------------------------------------------------- devices
def unusable_platforms(context: CheckContext) -> Iterator[SubjectResult]:
    broken = [found for found in context.manager.found if not found.usable]
    for found in broken:
        yield SubjectResult(found.kind, "WARN", f"{found.name}: {found.reason}")
    if not broken:
        yield SubjectResult("all", "PASS", "all devices can be used")


def forward_and_backward(context: CheckContext) -> Iterator[SubjectResult]:
    yield from _on_each(context.manager.devices, _train_step, "no device")


def parity_with_cpu(context: CheckContext) -> Iterator[SubjectResult]:
    yield from _on_each(context.accelerators, _compare_with_cpu, "the CPU is the reference")


def bfloat16_matmul(context: CheckContext) -> Iterator[SubjectResult]:
    native = {found.kind for found in context.manager.found if "bfloat16" in found.native_dtypes}
    yield from _on_each(context.manager.devices, lambda device: _multiply_bfloat16(device, native), "no device")


def pinned_memory(context: CheckContext) -> Iterator[SubjectResult]:
    gpus = [device for device in context.accelerators if device.type == "cuda"]
    yield from _on_each(gpus, _copy_pinned, "only a CUDA GPU reads pinned memory")


def _on_each(
    devices: list[torch.device], work: Callable[[torch.device], tuple[bool, str]], none: str
) -> Iterator[SubjectResult]:
    """One result per device; a device that raises an error has failed, and the next one is checked."""
    for device in devices:
        try:
            passed, detail = work(device)
        except Exception as error:
            passed, detail = False, _words(error)
        yield SubjectResult(str(device), "PASS" if passed else "FAIL", detail)
    if not devices:
        yield SubjectResult("–", "SKIP", none)


class Trial(nn.Module):
    """A small model with the operations of both streams: convolution, the two normalisations, attention, and the
    Fourier transform of the scalogram."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(1, 16, kernel_size=4, stride=4)
        self.norms = nn.ModuleList([nn.BatchNorm1d(16), nn.LayerNorm(16)])
        self.heads = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)

    def forward(self, x_bhw: torch.Tensor) -> torch.Tensor:
        spectrum_bhw = torch.fft.ifft(torch.fft.fft(x_bhw, dim=-1), dim=-1).abs()
        tokens_bdn = self.norms[0](self.embed(spectrum_bhw[:, None]).flatten(2))
        tokens_bnd = self.norms[1](tokens_bdn.transpose(1, 2))
        query, key, value = self.heads(tokens_bnd).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        mixed_bnd = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return self.out(F.gelu(tokens_bnd + mixed_bnd))


def _trial_step(device: torch.device) -> list[torch.Tensor]:
    """Output and gradients of one step, on the CPU; equal on every device, within its precision."""
    generator = torch.Generator().manual_seed(0)
    model = Trial()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) / 4)
    x_bhw = torch.randn(4, 32, 32, generator=generator)
    model.to(device)
    y_bnd = model(x_bhw.to(device))
    y_bnd.square().mean().backward()
    return [tensor.detach().cpu() for tensor in (y_bnd, *(weight.grad for weight in model.parameters()))]


def _train_step(device: torch.device) -> tuple[bool, str]:
    _trial_step(device)  # the first one loads kernels
    start = time.perf_counter()
    finite = all(tensor.isfinite().all() for tensor in _trial_step(device))
    took = f"a small step took {(time.perf_counter() - start) * 1000:.1f} ms"
    return finite, took if finite else f"{took} and gave values that are not finite"


def _compare_with_cpu(device: torch.device) -> tuple[bool, str]:
    return agreement(_trial_step(device), _trial_step(torch.device("cpu")))


def agreement(got: Sequence[torch.Tensor], reference: Sequence[torch.Tensor]) -> tuple[bool, str]:
    """Whether a device agrees with the CPU, within the precision of its tensor cores."""
    worst = max(_difference(one, other) for one, other in zip(got, reference, strict=True))
    return worst <= PARITY_TOLERANCE, f"outputs and gradients differ by {worst:.1e} at most"


def _multiply_bfloat16(device: torch.device, native: set[str]) -> tuple[bool, str]:
    a, b = torch.randn(2, 256, 256, generator=torch.Generator().manual_seed(0))
    product = (a.to(device, torch.bfloat16) @ b.to(device, torch.bfloat16)).float().cpu()
    difference = _difference(product, a @ b)
    kind = "tpu" if device.type == "xla" else device.type
    how = "native" if kind in native else "emulated, so not chosen by precision=auto"
    return difference <= BFLOAT16_TOLERANCE, f"differs from float32 by {difference:.1e}; {how}"


def _copy_pinned(device: torch.device) -> tuple[bool, str]:
    host = torch.arange(16 * MIB // 4, dtype=torch.float32).pin_memory()
    host.to(device)  # the first copy initialises the device
    start = time.perf_counter()
    copy = host.to(device)
    speed = host.nbytes / GIB / (time.perf_counter() - start)
    return torch.equal(copy.cpu(), host), f"{speed:.1f} GiB/s from the host"


def _difference(got: torch.Tensor, want: torch.Tensor) -> float:
    """Largest difference relative to the largest value; infinite if a value is not finite."""
    worst = ((got - want).abs().max() / want.abs().max().clamp_min(1e-12)).item()
    return math.inf if math.isnan(worst) else worst


# --------------------------------------------------------------------------------------------------------------- disk
def disk_write_speed(context: CheckContext) -> Iterator[SubjectResult]:
    """Writes a file, flushes it to the disk, and removes it."""
    block = os.urandom(MIB)
    with tempfile.TemporaryFile(dir=context.root) as file:
        start = time.perf_counter()
        for _ in range(WRITE_SIZE_MIB):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        speed = WRITE_SIZE_MIB / (time.perf_counter() - start)
    yield SubjectResult("workspace", grade(speed, WRITE_MIB_PER_S), f"{speed:.0f} MiB/s")


def free_disk(context: CheckContext) -> Iterator[SubjectResult]:
    usage = shutil.disk_usage(context.root)
    free = usage.free / GIB
    yield SubjectResult("workspace", grade(free, FREE_DISK_GIB), f"{free:.1f} of {usage.total / GIB:.1f} GiB free")


def shared_memory(context: CheckContext) -> Iterator[SubjectResult]:
    folder = context.shared_memory
    if not folder.is_dir():
        yield SubjectResult(str(folder), "SKIP", "this system has no such folder")
        return
    usage = shutil.disk_usage(folder)
    free = usage.free / GIB
    yield SubjectResult(str(folder), grade(free, SHARED_MEMORY_GIB), f"{free:.2f} of {usage.total / GIB:.2f} GiB free")


def grade(value: float, limits: tuple[float, float]) -> Status:
    """A warning below the first limit, a failure below the second."""
    warn, fail = limits
    return "FAIL" if value < fail else "WARN" if value < warn else "PASS"


def _words(error: Exception) -> str:
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


CHECKS: tuple[Check, ...] = (
    Check(
        "platforms",
        unusable_platforms,
        "follow the recommendations; until then runs use another device",
    ),
    Check(
        "forward and backward",
        forward_and_backward,
        "update the driver, or install a torch build for this device (make setup TORCH_INDEX=…); "
        "COMPUTE_PREFER=cpu runs without it",
    ),
    Check(
        "parity with the CPU",
        parity_with_cpu,
        "update the driver and torch; COMPUTE_PREFER=cpu until the results agree with the CPU",
    ),
    Check("bfloat16 product", bfloat16_matmul, "set precision=32 (or 16-mixed on a GPU)"),
    Check("pinned memory", pinned_memory, "raise the limit on locked memory (ulimit -l unlimited)"),
    Check("disk write speed", disk_write_speed, "put the workspace on a local disk that this user may write to"),
    Check("free disk", free_disk, "remove old folders below runs/ and artifacts/notebooks/"),
    Check("shared memory", shared_memory, "give the container more memory: docker run --shm-size=8g, or --ipc=host"),
)
