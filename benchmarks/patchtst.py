"""PatchTST-SSL: training steps and scoring, compared with the public implementations of the same model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.floor import floor_seconds
from benchmarks.implementations import Work
from benchmarks.paired import Comparison, Task, compare
from benchmarks.placed import Place
from benchmarks.run import Effort
from core.config.execution import Device, Execution
from core.config.schema import PatchTSTModel
from core.devices.manager import DeviceManager
from core.models.patchtst import PatchTST

# Two sizes: many channels with wide heads, and the paper's own recipe for seven channels.
SETTINGS: dict[str, dict[str, int]] = {
    "64 channels": {
        "batch": 16, "channels": 64, "window": 512, "patch": 16, "width": 128, "heads": 4, "layers": 3, "hidden": 256,
    },
    "7 channels": {
        "batch": 64, "channels": 7, "window": 504, "patch": 12, "width": 128, "heads": 16, "layers": 3, "hidden": 512,
    },
}  # fmt: skip
MASK_RATIO = 0.4
DEFAULT = "bfloat16 (default), compared with fp32"
_WIDTH = {"32": "fp32", "bf16": "bfloat16"}
# Dropout of the paper's recipes.
PAPER_DROPOUT = 0.2
# From its configuration.
KH87JOO2_DROPOUT = 0.1


def comparisons(effort: Effort) -> Iterator[Comparison]:
    """Training steps: first with the default settings of the libraries, then with the same dropout and process for
    both."""
    for name, sizes in SETTINGS.items() if effort.full else [("7 channels", SETTINGS["7 channels"])]:
        for arithmetic in ("32", "bf16") if effort.bf16 else ("32",):
            yield from _steps(name, sizes, arithmetic, effort)


def _steps(name: str, sizes: dict[str, int], arithmetic: str, effort: Effort) -> Iterator[Comparison]:
    def task(name: str, maker: str, *, tuned: bool = True, **options: Any) -> Task:
        return Task(name, f"benchmarks.patchtst:{maker}", {"sizes": sizes, "arithmetic": arithmetic, **options}, tuned)

    def against(title: str, ours: Task, theirs: Task, goal: float, width: str = _WIDTH[arithmetic]) -> Comparison:
        title = f"{name}, {width}: {title}"
        return compare(title, ours, theirs, unit="windows", count=sizes["batch"], rounds=effort.rounds, goal=goal)

    ours, visible = task("Landfall", "our_step"), task("Landfall, visible patches", "our_step", drop_masked_tokens=True)
    as_run = task("transformers, dropout .2", "transformers_step", tuned=False, dropout=PAPER_DROPOUT)
    tuned = task("transformers", "transformers_step", dropout=0.0)
    fastest = {"64 channels": 4.5, "7 channels": 6.0}[name] if arithmetic == "32" else 4.0
    yield against("out of the box", ours, as_run, 3.0)
    yield against("out of the box, visible patches only", visible, as_run, fastest)
    if arithmetic == "32" and default_precision() == "bf16-mixed":
        ours_default = task("Landfall", "our_step", arithmetic="bf16")
        visible_default = task("Landfall, visible patches", "our_step", arithmetic="bf16", drop_masked_tokens=True)
        yield against("out of the box", ours_default, as_run, 3.0, DEFAULT)
        yield against("out of the box, visible patches only", visible_default, as_run, fastest, DEFAULT)
    if not effort.full:
        return
    yield against("same dropout and process", ours, tuned, 1.5)
    yield against("same dropout and process, visible patches only", visible, tuned, 2.2)
    yield against("scoring, compared with a training step", task("Landfall, scoring", "our_scoring"), ours, 3.0)
    if effort.peers:
        theirs = task("official PatchTST", "official_step", tuned=False, folder=str(effort.peers / "PatchTST"))
        yield against("out of the box, the authors' code", ours, theirs, 3.0)
        theirs = task("kh87joo2", "kh87joo2_step", tuned=False, folder=str(effort.peers / "AnomalyDetection"))
        yield against("out of the box, kh87joo2's code", ours, theirs, 3.0)


def default_precision() -> str:
    """The default precision of training on this processor."""
    return DeviceManager(Execution(device=Device(prefer="cpu"), tune=False)).plan().precision


# ------------------------------------------------------------------------------------------------------ implementations
def our_step(
    sizes: dict[str, int], arithmetic: str, drop_masked_tokens: bool = False, place: dict[str, Any] | None = None
) -> Work:
    s, where = SimpleNamespace(**sizes), Place(**(place or {}))
    settings = PatchTSTModel(
        patch_length=s.patch, mask_ratio=MASK_RATIO, d_model=s.width, num_heads=s.heads,
        num_layers=s.layers, d_ff=s.hidden, drop_masked_tokens=drop_masked_tokens,
    )  # fmt: skip
    model = PatchTST(settings, num_channels=s.channels, window=s.window)
    x_btc = torch.randn(s.batch, s.window, s.channels).to(where.device)
    # As in training, the mask is drawn outside of what torch.compile translates.
    loss = lambda: model(x_btc, model.draw_mask(s.batch, device=x_btc.device)).loss  # noqa: E731
    return training_step(model, loss, arithmetic, fused=True, floor=not place, place=where)


def our_scoring(sizes: dict[str, int], arithmetic: str, place: dict[str, Any] | None = None) -> Work:
    """Every patch is masked once and predicted, in three passes; always in fp32."""
    s, where = SimpleNamespace(**sizes), Place(**(place or {}))
    settings = PatchTSTModel(
        patch_length=s.patch, mask_ratio=MASK_RATIO, d_model=s.width, num_heads=s.heads,
        num_layers=s.layers, d_ff=s.hidden,
    )  # fmt: skip
    model = PatchTST(settings, num_channels=s.channels, window=s.window)
    x_btc = torch.randn(s.batch, s.window, s.channels).to(where.device)
    model.to(x_btc.device)
    return where.work(lambda: model.inpaint(x_btc))


def transformers_step(
    sizes: dict[str, int], arithmetic: str, dropout: float, place: dict[str, Any] | None = None
) -> Work:
    from transformers import PatchTSTConfig, PatchTSTForPretraining

    s, where = SimpleNamespace(**sizes), Place(**(place or {}))
    config = PatchTSTConfig(
        num_input_channels=s.channels, context_length=s.window, patch_length=s.patch, patch_stride=s.patch,
        d_model=s.width, num_attention_heads=s.heads, num_hidden_layers=s.layers, ffn_dim=s.hidden,
        attention_dropout=dropout, ff_dropout=dropout, positional_dropout=dropout, path_dropout=0.0, head_dropout=0.0,
        mask_type="random", random_mask_ratio=MASK_RATIO, scaling=None, do_mask_input=True,
    )  # fmt: skip
    model = PatchTSTForPretraining(config)
    x_btc = torch.randn(s.batch, s.window, s.channels).to(where.device)
    loss = lambda: model(past_values=x_btc).loss  # noqa: E731
    return training_step(model, loss, arithmetic, fused=dropout == 0.0, place=where)


def official_step(sizes: dict[str, int], arithmetic: str, folder: str, place: dict[str, Any] | None = None) -> Work:
    """The authors' code (github.com/yuqinie98/PatchTST) as in its pre-training script."""
    sys.path.insert(0, str(Path(folder) / "PatchTST_self_supervised"))
    from src.models.patchTST import PatchTST as Official

    s, where = SimpleNamespace(**sizes), Place(**(place or {}))
    num_patches = s.window // s.patch
    model = Official(
        c_in=s.channels, target_dim=0, patch_len=s.patch, stride=s.patch, num_patch=num_patches, n_layers=s.layers,
        n_heads=s.heads, d_model=s.width, d_ff=s.hidden, shared_embedding=True, dropout=PAPER_DROPOUT,
        head_dropout=PAPER_DROPOUT, act="relu", head_type="pretrain", res_attention=False,
    )  # fmt: skip
    x_bncp = torch.randn(s.batch, num_patches, s.channels, s.patch).to(where.device)
    keep = num_patches - int(MASK_RATIO * num_patches)

    def loss() -> torch.Tensor:
        # Like its callback `PatchMaskCB`: a random order of patches for each channel, of which the first are kept.
        order = torch.rand(s.batch, num_patches, s.channels, device=x_bncp.device).argsort(dim=1)
        hidden = order.argsort(dim=1) >= keep
        error = (model(x_bncp.masked_fill(hidden.unsqueeze(-1), 0.0)) - x_bncp).square().mean(-1)
        return (error * hidden).sum() / hidden.sum()

    return training_step(model, loss, arithmetic, fused=False, place=where)


def kh87joo2_step(sizes: dict[str, int], arithmetic: str, folder: str) -> Work:
    """The model of github.com/kh87joo2/AnomalyDetection with the dropout of its configuration."""
    sys.path.insert(0, folder)
    from models.patchtst.patchtst_ssl import PatchTSTSSL

    s = SimpleNamespace(**sizes)
    model = PatchTSTSSL(
        seq_len=s.window, patch_len=s.patch, patch_stride=s.patch, d_model=s.width, nhead=s.heads,
        num_layers=s.layers, ff_dim=s.hidden, dropout=KH87JOO2_DROPOUT, mask_ratio=MASK_RATIO,
    )  # fmt: skip
    x_btc = torch.randn(s.batch, s.window, s.channels)
    return training_step(model, lambda: model.masked_mse(model(x_btc)), arithmetic, fused=False)


def training_step(
    model: torch.nn.Module,
    loss: Callable[[], torch.Tensor],
    arithmetic: str,
    *,
    fused: bool,
    floor: bool = False,
    place: Place = Place(),  # noqa: B008  frozen
) -> Work:
    """Forward, backward and AdamW; with `floor` it also measures the minimum time of its matrix products, on a CPU."""
    model.to(place.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused or None)
    if arithmetic == "tf32":
        torch.set_float32_matmul_precision("high")

    def step() -> None:
        with torch.autocast(place.device, torch.bfloat16, enabled=arithmetic == "bf16"):
            value = loss()
        value.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    if floor:
        step.facts = {"floor_seconds": floor_seconds(step)}  # type: ignore[attr-defined]
    return place.work(step, model)
