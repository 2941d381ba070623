"""Weights under the names of the reference implementation."""

from __future__ import annotations

import torch

from core.models.patchtst import PatchTST


def renamed(ours: dict[str, torch.Tensor], model: PatchTST) -> dict[str, torch.Tensor]:
    """Our parameters (or their gradients) under transformers' names."""
    theirs = {"model.encoder.positional_encoder.position_enc": ours["position_nd"]}
    inner = "batchnorm." if model.settings.norm == "batch" else ""
    for kind in ("weight", "bias"):
        theirs[f"model.encoder.embedder.input_embedding.{kind}"] = ours[f"embed.{kind}"]
        theirs[f"head.linear.{kind}"] = ours[f"head.{kind}"]
        for i in range(len(model.layers)):
            to, source = f"model.encoder.layers.{i}", f"layers.{i}"
            for name, part in zip("qkv", ours[f"{source}.attention.qkv.{kind}"].chunk(3), strict=True):
                theirs[f"{to}.self_attn.{name}_proj.{kind}"] = part
            theirs[f"{to}.self_attn.out_proj.{kind}"] = ours[f"{source}.attention.out.{kind}"]
            theirs[f"{to}.norm_sublayer1.{inner}{kind}"] = ours[f"{source}.norm_attention.{kind}"]
            theirs[f"{to}.norm_sublayer3.{inner}{kind}"] = ours[f"{source}.norm_feed_forward.{kind}"]
            for index in (0, 3):
                theirs[f"{to}.ff.{index}.{kind}"] = ours[f"{source}.feed_forward.{index}.{kind}"]
    return theirs
