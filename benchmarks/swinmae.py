"""Swin-MAE: training steps, compared with the authors' code and transformers' SimMIM."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from benchmarks.implementations import Work
from benchmarks.paired import Comparison, Task, compare
from benchmarks.patchtst import DEFAULT, default_precision, training_step
from benchmarks.placed import Place
from benchmarks.run import Effort
from core.config.schema import SwinMAEModel
from core.models.swinmae import SwinMAE

BATCH, SIZE, MASK_RATIO = 8, 224, 0.75
# Depths of the authors' code, and of SimMIM's Swin-T.
SHALLOW, DEEP = (2, 2, 2, 2), (2, 2, 6, 2)
# The published form, and that of the reduced size.
FORMS = {
    "Landfall": {"drop_masked_tokens": False, "decoder": "mirror", "decoder_depths": (2, 2, 2)},
    "Landfall, visible windows": {"drop_masked_tokens": True, "decoder": "light", "decoder_depths": (1,)},
}


def comparisons(effort: Effort) -> Iterator[Comparison]:
    """Images of 224 pixels, batches of 8, in fp32 unless stated otherwise."""

    def against(title: str, ours: Task, theirs: Task, goal: float) -> Comparison:
        return compare(title, ours, theirs, unit="images", count=BATCH, rounds=effort.rounds, goal=goal)

    full, visible = (
        Task(name, "benchmarks.swinmae:our_step", {"depths": DEEP, **form}) for name, form in FORMS.items()
    )
    simmim = Task("transformers (SimMIM)", "benchmarks.swinmae:transformers_step", {"depths": DEEP}, tuned=False)
    yield against("out of the box, visible windows only", visible, simmim, 0.0)
    if has_bfloat16 := default_precision() == "bf16-mixed":
        yield against(f"out of the box, visible windows only, {DEFAULT}", in_bfloat16(visible), simmim, 0.0)
    if not effort.full:
        return
    yield against("out of the box", full, simmim, 0.0)
    tuned = Task("transformers (SimMIM)", "benchmarks.swinmae:transformers_step", {"depths": DEEP})
    yield against("same process, visible windows only", visible, tuned, 3.3)
    for ours in (full, visible):
        scoring = Task(f"{ours.name}, scoring", "benchmarks.swinmae:our_scoring", ours.settings)
        yield against("scoring, compared with a training step", scoring, ours, 3.0)
    if effort.peers:
        options = {"folder": str(effort.peers / "SimMIM")}
        authors = Task("SimMIM", "benchmarks.swinmae:simmim_step", options, tuned=False)
        yield against("out of the box, SimMIM's own code", full, authors, 0.0)
        yield against("out of the box, SimMIM's own code, visible windows only", visible, authors, 0.0)
        folder = str(effort.peers / "Swin-MAE")
        official = Task("official Swin-MAE", "benchmarks.swinmae:official_step", {"folder": folder}, tuned=False)
        shallow, shallow_visible = (
            Task(name, "benchmarks.swinmae:our_step", {"depths": SHALLOW, **form}) for name, form in FORMS.items()
        )
        yield against("the authors' size, out of the box", shallow, official, 2.0)
        title = "the authors' size, out of the box, visible windows only"
        yield against(title, shallow_visible, official, 6.0)
        if has_bfloat16:
            yield against(f"{title}, {DEFAULT}", in_bfloat16(shallow_visible), official, 6.0)


def in_bfloat16(ours: Task) -> Task:
    return replace(ours, settings={**ours.settings, "arithmetic": "bf16"})


# ------------------------------------------------------------------------------------------------------ implementations
# Width and heads of the published sizes tiny and base.
WIDTHS: dict[int, tuple[int, ...]] = {96: (3, 6, 12, 24), 128: (4, 8, 16, 32)}


def our_step(
    arithmetic: str = "32",
    batch: int = BATCH,
    size: int = SIZE,
    width: int = 96,
    place: dict[str, Any] | None = None,
    **form: Any,
) -> Work:
    where = Place(**(place or {}))
    model, image_bchw = _ours(size, width, **form), torch.randn(batch, 3, size, size).to(where.device)
    loss = lambda: model(image_bchw, model.draw_mask(batch, device=image_bchw.device)).loss  # noqa: E731
    return training_step(model, loss, arithmetic, fused=True, floor=not place, place=where)


def our_scoring(batch: int = BATCH, size: int = SIZE, place: dict[str, Any] | None = None, **form: Any) -> Work:
    """Every unit is masked once and predicted, in two passes."""
    where = Place(**(place or {}))
    image_bchw = torch.randn(batch, 3, size, size).to(where.device)
    model = _ours(size, 96, **form).to(where.device)
    return where.work(lambda: model.inpaint(image_bchw))


def _ours(size: int, width: int, **form: Any) -> SwinMAE:
    settings = SwinMAEModel(
        embed_dim=width, num_heads=WIDTHS[width], window_size=7, mask_unit=8, mask_ratio=MASK_RATIO, **form
    )
    return SwinMAE(settings, image_size=size)


def transformers_step(
    depths: list[int],
    arithmetic: str = "32",
    batch: int = BATCH,
    size: int = SIZE,
    width: int = 96,
    place: dict[str, Any] | None = None,
) -> Work:
    """SimMIM's form: a Swin encoder and one linear layer to pixels, no decoder of blocks."""
    from transformers import SwinConfig, SwinForMaskedImageModeling

    where = Place(**(place or {}))
    config = SwinConfig(
        image_size=size, patch_size=4, embed_dim=width, depths=depths, num_heads=list(WIDTHS[width]), window_size=7,
        drop_path_rate=0.0, encoder_stride=32,
    )  # fmt: skip
    model = SwinForMaskedImageModeling(config)
    image_bchw = torch.randn(batch, 3, size, size).to(where.device)
    num_patches = (size // 4) ** 2

    def loss() -> torch.Tensor:
        hidden_bn = torch.rand(batch, num_patches, device=where.device) < MASK_RATIO
        return model(pixel_values=image_bchw, bool_masked_pos=hidden_bn).loss

    return training_step(model, loss, arithmetic, fused=False, place=where)


def official_step(folder: str, arithmetic: str = "32", batch: int = BATCH, place: dict[str, Any] | None = None) -> Work:
    """The authors' code (github.com/Zian-Xu/Swin-MAE) in its own default size: depths 2-2-2-2 and a mirror decoder."""
    sys.path.insert(0, str(Path(folder)))
    from functools import partial

    import numpy as np

    np.float, np.int = float, int  # the authors' code is older than NumPy 1.20
    import swin_mae

    model = swin_mae.SwinMAE(
        norm_layer=partial(torch.nn.LayerNorm, eps=1e-6), img_size=SIZE, patch_size=4, in_chans=3, embed_dim=96,
        decoder_embed_dim=768, depths=(2, 2, 2, 2), num_heads=(3, 6, 12, 24), window_size=7, qkv_bias=True,
        mlp_ratio=4, drop_path_rate=0.1, drop_rate=0, attn_drop_rate=0, mask_ratio=MASK_RATIO,
    )  # fmt: skip
    where = Place(**(place or {}))
    image_bchw = torch.randn(batch, 3, SIZE, SIZE).to(where.device)
    return training_step(model, lambda: model(image_bchw)[0], arithmetic, fused=False, place=where)


def simmim_step(folder: str, arithmetic: str = "32", batch: int = BATCH, place: dict[str, Any] | None = None) -> Work:
    """The authors' code (github.com/microsoft/SimMIM), depths 2-2-6-2, mask units of 32 pixels."""
    sys.path.insert(0, folder)
    sys.modules |= _timm()
    from models.simmim import SimMIM, SwinTransformerForSimMIM

    encoder = SwinTransformerForSimMIM(
        img_size=SIZE, patch_size=4, in_chans=3, num_classes=0, embed_dim=96, depths=DEEP, num_heads=(3, 6, 12, 24),
        window_size=7, mlp_ratio=4.0, qkv_bias=True, drop_path_rate=0.0,
    )  # fmt: skip
    model = SimMIM(encoder, encoder_stride=32)
    where = Place(**(place or {}))
    image_bchw = torch.randn(batch, 3, SIZE, SIZE).to(where.device)
    units = SIZE // 32
    hidden = round(MASK_RATIO * units**2)

    def loss() -> torch.Tensor:
        order_bu = torch.rand(batch, units**2, device=where.device).argsort(dim=1).argsort(dim=1)
        unit_bhw = (order_bu < hidden).int().unflatten(1, (units, units))
        return model(image_bchw, unit_bhw.repeat_interleave(8, 1).repeat_interleave(8, 2))

    return training_step(model, loss, arithmetic, fused=False, place=where)


def _timm() -> dict[str, ModuleType]:
    """Replaces the three names that SimMIM imports from timm, because timm needs torchvision."""
    layers = ModuleType("timm.models.layers")
    layers.DropPath = torch.nn.Identity  # of rate 0
    layers.to_2tuple = lambda value: value if isinstance(value, tuple) else (value, value)
    layers.trunc_normal_ = torch.nn.init.trunc_normal_
    return {"timm": ModuleType("timm"), "timm.models": ModuleType("timm.models"), "timm.models.layers": layers}
