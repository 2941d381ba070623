"""Speed on a device: implementations of the same work in separate processes, started together, timed in turn."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from benchmarks.data import BATCH, IMAGE_BATCH
from benchmarks.implementations import Implementation
from benchmarks.patchtst import PAPER_DROPOUT
from benchmarks.patchtst import SETTINGS as PATCHTST
from benchmarks.placed import ceilings
from benchmarks.scalogram import SAMPLES
from benchmarks.swinmae import DEEP, FORMS, SHALLOW
from core.devices.backend import backend
from core.errors import first_line
from core.host import usable_cores
from tools.prove_cuda.rows import Row, Where

# Maximum time to build, compile and warm up one implementation; a slower one is skipped.
READY_S = 120.0
STEPS, ROUNDS = 10, 5
# Memory of a contender in MiB: its process with weights and optimizer, and each window of a step. All contenders are in
# memory at the same time. Estimates with a reserve, not measured on a GPU.
PROCESS_MB = {"patchtst": 700.0, "tiny": 1200.0, "base": 2200.0, "shallow": 1200.0}
WINDOW_MB = {"patchtst": 8.0, "tiny": 120.0, "base": 200.0, "shallow": 120.0}
SMALL_SIZES = {
    "batch": 2, "channels": 3, "window": 32, "patch": 8, "width": 8, "heads": 2, "layers": 1, "hidden": 16,
}  # fmt: skip
BASE = (2, 2, 18, 2)
MODES = ("eager", "compiled", "graphs")
DETERMINISTIC = "Landfall, deterministic"


@dataclass(frozen=True)
class Contender:
    """One implementation in one mode. count: windows of a step. needs: a package, or a folder below `peers`; without it
    the implementation is skipped. ours: whether it is Landfall, whose failure fails the section; that of a peer does
    not."""

    name: str
    mode: str
    maker: str
    settings: dict[str, Any]
    count: int
    ours: bool = True
    needs: str = ""

    @property
    def title(self) -> str:
        return f"{self.name}, {self.mode}"


def fitting_batch(most: int, contenders: int, free_mb: float, group: str) -> int:
    """Windows of a step: the largest power of two up to `most` for which the memory is enough, and at least 1."""
    windows = (free_mb / contenders - PROCESS_MB[group]) / WINDOW_MB[group]
    return min(most, 2 ** int(math.log2(max(windows, 1.0))))


def race(where: Where, contenders: Sequence[Contender], arithmetic: str, unit: str) -> Iterator[Row]:
    """The start-up time of each implementation, its figures, and the ratios of ours to the peers."""
    best = ceilings(where.device, *((256, 8) if where.is_small else (8192, 2048)))
    backend(where.device).empty_cache()  # the contenders need it
    # Their compilers share the cores.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(max(1, usable_cores() // len(contenders)))
    steps = 2 if where.is_small else STEPS
    ready: dict[str, Implementation] = {}
    with ExitStack() as stack:
        present = []
        for one in contenders:
            if (missing := _missing(one, where)) is None:
                present.append(one)
            else:
                yield Row(one.title, "skipped", reason=missing)
        pool = stack.enter_context(ThreadPoolExecutor(1 if where.is_small else len(contenders)))

        def start(one: Contender) -> tuple[Implementation, float]:
            place = {"device": where.device, "mode": one.mode, "steps": steps}
            place["deterministic"] = one.name == DETERMINISTIC
            settings = {**one.settings, "place": place}
            if one.needs.startswith("peers/"):
                settings["folder"] = str(where.peers / one.needs.removeprefix("peers/"))
            started = time.monotonic()
            found = Implementation(one.maker, tuned=one.ours, limit_s=READY_S, **settings)
            return found, time.monotonic() - started

        futures = {pool.submit(start, one): one for one in present}
        for future in as_completed(futures):
            one = futures[future]
            try:
                ready[one.title], seconds = future.result()
            except RuntimeError as error:
                yield Row(one.title, "failed" if one.ours else "skipped", reason=first_line(error))
                continue
            stack.enter_context(ready[one.title])
            yield Row(f"{one.title}: ready", "measured", {"seconds": seconds})
        times = {title: [] for title in ready}
        for _ in range(2 if where.is_small else ROUNDS):
            for title, implementation in ready.items():
                times[title].append(implementation.seconds() / steps)
        for one in present:
            if one.title in ready:
                facts = ready[one.title].facts()
                yield Row(one.title, "measured", _figures(one, times[one.title], facts, best, arithmetic, unit))
    yield from _ratios([one for one in present if one.title in ready], times)


def _missing(one: Contender, where: Where) -> str | None:
    """Why an implementation cannot be started here; None if it can."""
    if one.needs.startswith("peers/"):
        name = one.needs.removeprefix("peers/")
        if where.peers is None or not (where.peers / name).is_dir():
            return f"no clone of {name}: pass its folder with --peers"
    elif one.needs and find_spec(one.needs) is None:
        return f"the package {one.needs} is not installed"
    return None


def _figures(
    one: Contender, times: Sequence[float], facts: dict[str, Any], best: dict[str, float], arithmetic: str, unit: str
) -> dict[str, Any]:
    """Medians of the rounds. The bytes are counted for eager operations, so their rate is reported only in eager
    mode."""
    seconds = statistics.median(times)
    share = facts["flops"] / seconds / best[arithmetic]
    found = {
        f"{unit}/s": one.count / seconds, f"{unit} per step": one.count, "ms per step": 1e3 * seconds,
        "spread": (max(times) - min(times)) / seconds, "share of peak FLOP/s": share, "peak MiB": facts["peak_mb"],
        "submit share": facts["submit_share"],
    }  # fmt: skip
    if one.mode == "eager":
        found["share of copy rate"] = facts["bytes"] / seconds / best["bytes"]
    return found


def _ratios(present: Sequence[Contender], times: dict[str, list[float]]) -> Iterator[Row]:
    """Ours compared with each peer, both in eager mode and in the best mode of each; and the cost of determinism."""
    names = dict.fromkeys((one.name, one.ours) for one in present if one.name != DETERMINISTIC)
    for ours, peer in ((a, b) for a, is_ours in names for b, is_other in names if is_ours and not is_other):
        for title, goal, modes in (("eager", 3.0, MODES[:1]), ("best mode of each", 1.5, MODES)):
            our_s, their_s = (_best(name, present, times, modes) for name in (ours, peer))
            if our_s and their_s and (modes == MODES[:1] or _is_compiled(peer, present)):
                facts = {"times as fast": their_s / our_s, "goal": goal, "met": their_s / our_s >= goal}
                yield Row(f"{ours} : {peer}, {title}", "measured", facts)
    plain_s, fixed_s = (_best(name, present, times, MODES[:1]) for name in ("Landfall", DETERMINISTIC))
    if plain_s and fixed_s:
        yield Row("cost of determinism", "measured", {"times the seconds": fixed_s / plain_s})


def _best(name: str, present: Sequence[Contender], times: dict[str, list[float]], modes: Sequence[str]) -> float | None:
    """Seconds per window in the fastest of the modes; None if none was measured."""
    found = [statistics.median(times[o.title]) / o.count for o in present if o.name == name and o.mode in modes]
    return min(found, default=None)


def _is_compiled(name: str, present: Sequence[Contender]) -> bool:
    return any(one.name == name and one.mode != "eager" for one in present)


# ------------------------------------------------------------------------------------------------------------ sections


def patchtst(where: Where) -> Iterator[Row]:
    """Training steps in bfloat16 at the size of the paper; only the authors' code uses the dropout of the paper."""
    free_mb, _ = backend(where.device).memory_mb()
    full = {**PATCHTST["7 channels"], "batch": fitting_batch(512, 12, free_mb, "patchtst")}
    sizes = SMALL_SIZES if where.is_small else full

    def made(name: str, maker: str, mode: str, *, ours: bool = True, needs: str = "", **options: Any) -> Contender:
        settings = {"sizes": sizes, "arithmetic": "bf16", **options}
        return Contender(name, mode, f"benchmarks.patchtst:{maker}", settings, sizes["batch"], ours, needs)

    modes = MODES[:2] if where.is_small else MODES
    found = [made("Landfall", "our_step", mode) for mode in modes]
    found.append(made(DETERMINISTIC, "our_step", "eager"))
    for mode in modes[:1] if where.is_small else modes[:2]:
        transformers = {"ours": False, "needs": "transformers", "dropout": 0.0}
        found.append(made("transformers", "transformers_step", mode, **transformers))
        found.append(made("official", "official_step", mode, ours=False, needs="peers/PatchTST"))
    if not where.is_small:
        found += [made("Landfall, visible patches", "our_step", mode, drop_masked_tokens=True) for mode in modes]
        as_run = {"ours": False, "needs": "transformers", "dropout": PAPER_DROPOUT}
        found.append(made("transformers, dropout .2", "transformers_step", "eager", **as_run))
    yield from race(where, found, "bf16", "windows")


# The authors' code of Swin-MAE fails under autocast.
ARITHMETIC = {"tiny": "bf16", "base": "bf16", "shallow": "tf32"}


def _image_contenders(where: Where, group: str) -> list[Contender]:
    """Implementations of one size: `tiny` and `base` as in SimMIM, `shallow` as in the authors' code of Swin-MAE."""
    free_mb, _ = backend(where.device).memory_mb()
    most = {"tiny": 8, "base": 5, "shallow": 5}[group]
    batch, modes = (1, MODES[:1]) if where.is_small else (fitting_batch(64, most, free_mb, group), MODES[:2])
    arithmetic = ARITHMETIC[group]
    published, visible = FORMS["Landfall"], FORMS["Landfall, visible windows"]
    found: list[Contender] = []

    def add(name: str, maker: str, modes: Sequence[str] = modes, needs: str = "", **options: Any) -> None:
        settings = {"arithmetic": arithmetic, "batch": batch, **options}
        ours, path = name.startswith("Landfall"), f"benchmarks.swinmae:{maker}"
        found.extend(Contender(name, mode, path, settings, batch, ours, needs) for mode in modes)

    size = {"depths": {"tiny": DEEP, "base": BASE, "shallow": SHALLOW}[group], "width": 128 if group == "base" else 96}
    if where.is_small:
        size = {"depths": (1, 1, 1, 1), "width": 96}
    add("Landfall", "our_step", **size, **published)
    add("Landfall, visible windows", "our_step", modes[-1:], **size, **visible)
    if group == "shallow":
        add("Swin-MAE", "official_step", needs="peers/Swin-MAE")
        return found
    add("transformers SimMIM", "transformers_step", needs="transformers", **size)
    if group == "tiny":
        add(DETERMINISTIC, "our_step", modes[:1], **size, **published)
        add("SimMIM", "simmim_step", needs="peers/SimMIM")
    return found


def swinmae(where: Where, group: str) -> Iterator[Row]:
    """Training steps on images of 224 pixels."""
    contenders, best = _image_contenders(where, group), 0.0
    for row in race(where, contenders, ARITHMETIC[group], "images"):
        if row.name.startswith("Landfall"):
            best = max(best, row.facts.get("share of peak FLOP/s", 0.0))
        yield row
    if best and group == "base" and not where.is_small:
        yield Row("Swin base", "measured", {"share of peak FLOP/s": best, "goal": 0.35, "met": best >= 0.35})


def data_path(where: Where) -> Iterator[Row]:
    """A step that gathers its windows, or makes its scalograms, and one whose batch is prepared."""
    for name, maker, batch in (("PatchTST", "patchtst_step", BATCH), ("Swin-MAE", "swinmae_step", IMAGE_BATCH)):
        size = 2 if where.is_small else 4 * batch
        pair = [
            Contender(f"{name}, {what}", "eager", f"benchmarks.data:{maker}", {"prepared": done, "batch": size}, size)
            for what, done in (("with its data", False), ("prepared", True))
        ]
        found = {}
        for row in race(where, pair, "32", "windows"):
            found[row.name] = row.facts.get("ms per step")
            yield row
        with_data, prepared = (found.get(one.title) for one in pair)
        if with_data and prepared:
            share = 1 - prepared / with_data
            yield Row(f"{name}: data path", "measured", {"share of a step": share, "goal": 0.05, "met": share <= 0.05})


def scalograms(where: Where) -> Iterator[Row]:
    """Images of 224 pixels from three axes; PyWavelets runs on the CPU, because it does not support GPUs."""
    count, size = (1, 32) if where.is_small else (64, 224)
    settings = {"windows": count, "size": size}
    ours = Contender("Landfall", "eager", "benchmarks.scalogram:our_images", settings, count)
    yield from race(where, [ours], "32", f"windows of {SAMPLES} samples")
    if find_spec("pywt") is None:
        yield Row("PyWavelets", "skipped", reason="the package PyWavelets is not installed")
        return
    from benchmarks.scalogram import WINDOWS

    with Implementation("benchmarks.scalogram:pywt_magnitudes", tuned=False, method="fft") as peer:
        yield Row("PyWavelets on the CPU", "measured", {f"windows of {SAMPLES} samples/s": WINDOWS / peer.seconds()})


def scoring(where: Where) -> Iterator[Row]:
    """Scoring: every value is predicted once while it is masked, in fp32, at the published sizes."""
    sizes = SMALL_SIZES if where.is_small else {**PATCHTST["7 channels"], "batch": 512}
    settings = {"sizes": sizes, "arithmetic": "32"}
    found = [Contender("PatchTST", "eager", "benchmarks.patchtst:our_scoring", settings, sizes["batch"])]
    batch = 1 if where.is_small else 64
    for name, form in FORMS.items():
        settings = {"batch": batch, "depths": (1, 1, 1, 1) if where.is_small else DEEP, **form}
        title = name.replace("Landfall", "Swin-MAE")
        found.append(Contender(title, "eager", "benchmarks.swinmae:our_scoring", settings, batch))
    yield from race(where, found, "32", "windows")
