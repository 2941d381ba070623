"""Sizes and variants of the two models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from core.config.fields import Contradiction, Count, CountOrAuto, Fraction, Positive, Ratio, Section

# One image plane for each axis of a vibration sensor; planes of axes that a sensor does not have are missing (NaN).
NUM_PLANES = 3
# Rows that the separate level of an image adds to the input of the model: it counts as much as one row of pixels.
LEVEL_ROWS = 1
ModelSize = Literal["custom", "auto", "full", "reduced"]
Output = Literal["point", "gaussian", "student_t"]
MaskKind = Literal["patches", "channels", "newest"]
ImageMaskKind = Literal["units", "bands", "spans", "axes"]
_SIZE = (
    "`custom` uses the sizes below, `full` and `reduced` those of configs/hardware/sizes/, `auto` one of these, by "
    "hardware tier. A size that is set after this key is kept."
)
_OUTPUT = (
    "`point` predicts values, as published; `gaussian` also their variance, from the same input, and errors are then "
    "divided by it, so that an error counts less where the model knows that it cannot predict; `student_t` is the same "
    "with Student's t distribution, four degrees of freedom: rare large errors change training and scores less."
)


class PatchTSTModel(Section):
    size: ModelSize = Field("custom", description=_SIZE)
    patch_length: CountOrAuto = Field(
        16, description="Samples in a patch; patches do not overlap. `auto` is 1/16 of a window, from 8 to 16 samples."
    )
    mask_ratio: Ratio = Field(0.4, description="Share of masked patches, equal in every sample.")
    masks: tuple[MaskKind, ...] = Field(
        ("patches",),
        min_length=1,
        description="Kinds of masks in training, each for about as many windows: `patches` masks random patches of "
        "each channel, as published, `channels` all patches of random channels, `newest` the newest patch of all.",
    )
    output: Output = Field("point", description=_OUTPUT)
    channel_attention: Literal["none", "all", "groups", "auto"] = Field(
        "none",
        description="Attention between channels, in each layer between tokens of the same time: `none`, as published; "
        "`all`; or `groups`, through `channel_groups` learned summaries, whose cost grows linearly with the number of "
        "channels; `auto` uses groups for more than 64 channels. Scores then use predictions of a channel from the "
        "other channels, while all its patches are masked.",
    )
    channel_groups: Count = Field(16, description="Learned summaries of the channels for `channel_attention: groups`.")
    d_model: Count = Field(128, description="Width of the encoder.")
    num_heads: Count = Field(4, description="Attention heads.")
    num_layers: Count = Field(3, description="Encoder layers.")
    d_ff: Count = Field(256, description="Width of the feed-forward layers.")
    drop_masked_tokens: bool = Field(
        False,
        description="Encode visible patches only, which is faster; a small decoder then predicts the masked ones. "
        "Otherwise all patches pass through the encoder, the masked ones as zeros, as in the paper.",
    )
    decoder_width: Count = Field(64, description="Width of the decoder that `drop_masked_tokens` adds.")
    decoder_layers: Count = Field(1, description="Layers of this decoder.")
    decoder_heads: Count = Field(4, description="Attention heads of this decoder.")
    dropout: Fraction = Field(0.0, description="Dropout of embeddings, attention outputs and feed-forward layers.")
    norm: Literal["batch", "layer"] = Field("batch", description="Normalisation in the encoder; the paper uses batch.")
    norm_windows: Count = Field(8, description="Windows per group of batch normalisation, whatever the batch size.")
    pre_norm: bool = Field(False, description="Normalise before each sub-layer instead of after it.")
    instance_norm: bool = Field(
        False,
        description="Standardise each window and channel by its observed, visible values; level shifts become "
        "invisible.",
    )

    def contradictions(self) -> Iterator[Contradiction]:
        if self.d_model % self.num_heads:
            yield Contradiction(
                f"d_model = {self.d_model} is not divisible by num_heads = {self.num_heads}", ("d_model", "num_heads")
            )
        if self.drop_masked_tokens and self.decoder_width % self.decoder_heads:
            yield Contradiction(
                f"decoder_width = {self.decoder_width} is not divisible by decoder_heads = {self.decoder_heads}",
                ("decoder_width", "decoder_heads"),
            )
        if self.drop_masked_tokens and self.channel_attention != "none":
            yield Contradiction(
                "channel_attention needs the tokens of all patches, which drop_masked_tokens removes",
                ("channel_attention", "drop_masked_tokens"),
            )
        if self.drop_masked_tokens and self.masks != ("patches",):
            yield Contradiction(
                "drop_masked_tokens needs the same number of masked patches in each channel: masks = [patches]",
                ("masks", "drop_masked_tokens"),
            )
        if self.instance_norm and self.channel_attention != "none":
            yield Contradiction(
                "instance_norm has no visible value to standardise a masked channel by, as channel_attention needs",
                ("instance_norm", "channel_attention"),
            )
        if "channels" in self.masks and self.channel_attention == "none":
            yield Contradiction(
                "a masked channel is predicted from other channels, which channel_attention = none prevents",
                ("masks", "channel_attention"),
            )


class SwinMAEModel(Section):
    size: ModelSize = Field("custom", description=_SIZE)
    patch_size: Count = Field(4, description="Pixels per side of a patch.")
    mask_unit: Count = Field(4, description="Patches per side of a mask unit: patches are masked by unit.")
    mask_ratio: Ratio = Field(0.75, description="Share of masked units, equal in every sample.")
    masks: tuple[ImageMaskKind, ...] = Field(
        ("units",),
        min_length=1,
        description="Kinds of masks in training, each for about as many windows: `units` masks random units, as "
        "published, `bands` random frequency bands over the complete window, `spans` random time spans over all "
        "frequencies, `axes` one axis of the sensor. With `axes`, scores use predictions of an axis from the other "
        "axes, otherwise with `bands` those of a band from the other bands. A sensor with one axis ignores `axes`.",
    )
    output: Output = Field("point", description=_OUTPUT)
    embed_dim: Count = Field(48, description="Width of the first encoder stage; it doubles at each later stage.")
    depths: tuple[Count, ...] = Field((2, 2, 2), description="Swin blocks per encoder stage.")
    num_heads: tuple[Count, ...] = Field((3, 6, 12), description="Attention heads per encoder stage.")
    decoder: Literal["mirror", "light"] = Field(
        "mirror",
        description="`mirror`: stages up to the finest feature map, as in the paper; `light`: one stage on the "
        "deepest map and a linear layer to the pixels, which is faster.",
    )
    decoder_depths: tuple[Count, ...] = Field(
        (2, 2),
        description="Swin blocks per decoder stage, deepest first: one stage fewer than the encoder; with `decoder: "
        "light` one stage.",
    )
    drop_masked_tokens: bool = Field(
        False,
        description="Encode visible patches only, which is faster; a learned token replaces the masked ones before "
        "the decoder, and a mask unit must consist of complete patches of the deepest stage. Otherwise the token "
        "replaces them before the encoder, as in the paper.",
    )
    window_size: Count = Field(4, description="Patches per side of an attention window.")
    mlp_ratio: Positive = Field(4.0, description="Width of the feed-forward layers divided by the width of the stage.")
    dropout: Fraction = Field(0.0, description="Dropout of attention outputs and feed-forward layers.")
    drop_path: Fraction = Field(
        0.0, description="Rate of stochastic depth of the last encoder block; increases linearly."
    )

    def contradictions(self) -> Iterator[Contradiction]:
        num_stages = len(self.depths)
        if len(self.num_heads) != num_stages:
            yield Contradiction(
                f"num_heads has {len(self.num_heads)} stages, depths has {num_stages}", ("num_heads", "depths")
            )
        decoder_stages = 1 if self.decoder == "light" else num_stages - 1
        if len(self.decoder_depths) != decoder_stages:
            yield Contradiction(
                f"stages in decoder_depths: {len(self.decoder_depths)} given, {decoder_stages} needed",
                ("decoder_depths", "depths", "decoder"),
            )
        for stage, heads in enumerate(self.num_heads):
            if (width := self.embed_dim * 2**stage) % heads:
                yield Contradiction(
                    f"stage {stage} is {width} wide: {heads} heads do not divide it", ("num_heads", "embed_dim")
                )
        if self.drop_masked_tokens and "axes" in self.masks:
            yield Contradiction(
                "drop_masked_tokens needs the same number of masked patches in each image; a masked axis masks none",
                ("masks", "drop_masked_tokens"),
            )
        if self.drop_masked_tokens:
            yield from self._masked_patches_cannot_be_dropped()

    def _masked_patches_cannot_be_dropped(self) -> Iterator[Contradiction]:
        if len(self.depths) < 2 and self.decoder == "mirror":
            yield Contradiction(
                "drop_masked_tokens needs two stages or more, or decoder = light: the mirror of a single stage has no "
                "block",
                ("drop_masked_tokens", "depths", "decoder"),
            )
        joined = 2 ** (len(self.depths) - 1)
        if self.mask_unit % joined:
            yield Contradiction(
                f"mask_unit = {self.mask_unit} is not divisible by the {joined} patches per side that "
                f"{len(self.depths)} stages merge into one, as drop_masked_tokens needs",
                ("mask_unit", "depths"),
            )
