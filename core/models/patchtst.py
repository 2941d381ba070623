"""PatchTST-SSL: masked patch reconstruction of multivariate time series.

Nie, Nguyen, Sinthong, Kalagnanam: A Time Series is Worth 64 Words: Long-term Forecasting with Transformers, ICLR 2023.

Each channel is split into patches and processed separately by one shared Transformer encoder. Masked patches are set to
zero, and a linear head predicts them from the visible ones.

With `channel_attention`, each layer also attends between channels, at the same patch. A masked channel is then
predicted from the others, so `forecast` has large errors where the relation of the channels changes, as in most process
faults.

With `drop_masked_tokens`, the encoder processes visible patches only, which is faster. A small decoder inserts a
learned token for each masked patch and predicts it, as in He, Chen, Xie, Li, Dollár, Girshick: Masked Autoencoders Are
Scalable Vision Learners, CVPR 2022.

Shape suffixes: b batch, t time, c channel, n patch, v visible patch, p sample within a patch, d width, g group of
channels, q pass.
A missing value is NaN. It is zero in the input and excluded from instance statistics, loss and error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.config.schema import PatchTSTModel
from core.errors import ConfigError, ConfigFault
from core.models.blocks import run_blocks
from core.models.masking import (
    MaskedModel,
    MaskedOutput,
    at_least_float32,
    complementary_masks,
    evaluating,
    likelihood_loss,
    log_variance_of,
    masked_mse,
    one_of,
    random_mask,
    standardised_error,
)
from core.models.normalisation import WindowBatchNorm
from core.models.positions import STD, sinusoids

# Added to the variance of a window with instance normalisation. Inputs are scaled to unit spread over the train split,
# so a window with less than a tenth of that spread is not amplified to unit variance.
INSTANCE_VARIANCE_FLOOR = 1e-2
# Up to this number of patches, two matrix products and a softmax are faster on a CPU than the fused kernel: dev/LOG.md.
PLAIN_LENGTH = 128

NORMS: dict[str, Callable[[PatchTSTModel], nn.Module]] = {
    "batch": lambda settings: WindowBatchNorm(settings.d_model, group=settings.norm_windows),
    "layer": lambda settings: nn.LayerNorm(settings.d_model),
}


class SelfAttention(nn.Module):
    """Multi-head attention between the patches of one channel of one window."""

    def __init__(self, settings: PatchTSTModel):
        super().__init__()
        self.num_heads = settings.num_heads
        self.qkv = nn.Linear(settings.d_model, 3 * settings.d_model)
        self.out = nn.Linear(settings.d_model, settings.d_model)

    def forward(self, z_bcnd: Tensor) -> Tensor:
        qkv = self.qkv(z_bcnd.flatten(0, 1))  # channels are independent: batch and channel are one axis
        qkv = qkv.unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        z = attend(*qkv.unbind(0))
        return self.out(z.transpose(1, 2).flatten(-2)).view_as(z_bcnd)

    def newest(self, z_bcnd: Tensor) -> Tensor:
        """The result of `forward` for the last token only: (B, C, 1, D)."""
        z_and = z_bcnd.flatten(0, 1)
        width = z_and.shape[-1]
        query_weight, others_weight = self.qkv.weight.split([width, 2 * width])
        query_bias, others_bias = self.qkv.bias.split([width, 2 * width])
        query = F.linear(z_and[:, -1:], query_weight, query_bias).unflatten(-1, (1, self.num_heads, -1))
        others = F.linear(z_and, others_weight, others_bias).unflatten(-1, (2, self.num_heads, -1))
        key, value = others.permute(2, 0, 3, 1, 4).unbind(0)
        z = attend(query.permute(2, 0, 3, 1, 4)[0], key, value)
        return self.out(z.transpose(1, 2).flatten(-2)).unflatten(0, z_bcnd.shape[:2])


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Scaled dot-product attention of (…, N, D).

    The kernel depends on device and length, never on a measurement, so that results are reproducible.
    """
    length, width = query.shape[-2:]
    if query.device.type == "cpu" and length <= PLAIN_LENGTH:
        return ((query * width**-0.5) @ key.transpose(-2, -1)).softmax(-1) @ value
    return F.scaled_dot_product_attention(query, key, value)


class ChannelAttention(nn.Module):
    """Multi-head attention between the channels at one patch of one window, as in PatchTST of the library transformers
    (where both attentions of a layer share their weights)."""

    def __init__(self, settings: PatchTSTModel):
        super().__init__()
        self.attention = SelfAttention(settings)

    def forward(self, z_bcnd: Tensor) -> Tensor:
        return self.attention(z_bcnd.transpose(1, 2)).transpose(1, 2)


class GroupAttention(nn.Module):
    """Attention between channels through G learned summaries: the summaries attend to the channels, then the channels
    to the summaries. The cost is linear in the number of channels (Lee et al.: Set Transformer, ICML 2019; Zhang, Yan:
    Crossformer, ICLR 2023)."""

    def __init__(self, settings: PatchTSTModel):
        super().__init__()
        width = settings.d_model
        self.num_heads = settings.num_heads
        self.summary_gd = nn.Parameter(STD * torch.randn(settings.channel_groups, width))
        self.query, self.summary_query = nn.Linear(width, width), nn.Linear(width, width)
        self.channels, self.summaries = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, z_bcnd: Tensor) -> Tensor:
        z_bncd = z_bcnd.transpose(1, 2)
        query = self._heads(self.summary_query(self.summary_gd), 1)[0]
        summary = attend(query.expand(*z_bncd.shape[:2], -1, -1, -1), *self._heads(self.channels(z_bncd), 2))
        summary = self.summaries(summary.transpose(-3, -2).flatten(-2))
        z = attend(self._heads(self.query(z_bncd), 1)[0], *self._heads(summary, 2))
        return self.out(z.transpose(-3, -2).flatten(-2)).transpose(1, 2)

    def _heads(self, z: Tensor, parts: int) -> tuple[Tensor, ...]:
        """(…, L, parts · D) to tensors (…, heads, L, D / heads)."""
        return z.unflatten(-1, (parts, self.num_heads, -1)).transpose(-4, -2).unbind(-3)


CHANNEL_ATTENTIONS: dict[str, Callable[[PatchTSTModel], nn.Module]] = {
    "all": ChannelAttention,
    "groups": GroupAttention,
}


class EncoderLayer(nn.Module):
    """Attention, then feed-forward; each with a residual and a norm before (pre-norm) or after it (post-norm)."""

    def __init__(self, settings: PatchTSTModel):
        super().__init__()
        self.pre_norm = settings.pre_norm
        self.attention = SelfAttention(settings)
        self.feed_forward = nn.Sequential(
            nn.Linear(settings.d_model, settings.d_ff),
            nn.GELU(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.d_ff, settings.d_model),
        )
        self.norm_attention = NORMS[settings.norm](settings)
        self.norm_feed_forward = NORMS[settings.norm](settings)
        self.channel_attention = self.norm_channels = None
        if settings.channel_attention != "none":
            self.channel_attention = CHANNEL_ATTENTIONS[settings.channel_attention](settings)
            self.norm_channels = NORMS[settings.norm](settings)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, z_bcnd: Tensor) -> Tensor:
        return self._after_attention(self._add(self.attention, self.norm_attention, z_bcnd))

    def newest(self, z_bcnd: Tensor) -> Tensor:
        """The result of `forward` for the last token in evaluation mode: (B, C, 1, D)."""
        z_bc1d = z_bcnd[:, :, -1:]
        if self.pre_norm:
            return self._after_attention(z_bc1d + self.attention.newest(self.norm_attention(z_bcnd)))
        return self._after_attention(self.norm_attention(z_bc1d + self.attention.newest(z_bcnd)))

    def _after_attention(self, z_bcnd: Tensor) -> Tensor:
        if self.channel_attention is not None:
            z_bcnd = self._add(self.channel_attention, self.norm_channels, z_bcnd)
        return self._add(self.feed_forward, self.norm_feed_forward, z_bcnd)

    def _add(self, sublayer: nn.Module, norm: nn.Module, z_bcnd: Tensor) -> Tensor:
        if self.pre_norm:
            return z_bcnd + self.dropout(sublayer(norm(z_bcnd)))
        return norm(z_bcnd + self.dropout(sublayer(z_bcnd)))


class Decoder(nn.Module):
    """Maps tokens of visible patches to tokens of all patches, with fewer layers and a smaller width."""

    def __init__(self, settings: PatchTSTModel, num_patches: int):
        super().__init__()
        self.width = settings.decoder_width
        small = settings.model_copy(
            update={"d_model": self.width, "num_heads": settings.decoder_heads, "d_ff": 2 * self.width}
        )
        self.narrow = nn.Linear(settings.d_model, self.width)
        self.hidden_d = nn.Parameter(torch.zeros(self.width))
        self.position_nd = nn.Parameter(sinusoids(num_patches, self.width))
        self.layers = nn.ModuleList(EncoderLayer(small) for _ in range(settings.decoder_layers))

    def forward(self, z_bcvd: Tensor, at_bcv: Tensor, *, recompute: bool) -> Tensor:
        """z_bcvd: tokens of visible patches; at_bcv: their indices among the N patches. Returns (B, C, N, width)."""
        z_bcvd = self.narrow(z_bcvd)
        empty_bcnd = self.hidden_d.to(z_bcvd.dtype).expand(*z_bcvd.shape[:2], len(self.position_nd), -1)
        z_bcnd = empty_bcnd.scatter(2, at_bcv.unsqueeze(-1).expand_as(z_bcvd), z_bcvd)
        return run_blocks(self.layers, z_bcnd + self.position_nd, recompute=recompute)


class PatchTST(MaskedModel):
    """Masked autoencoder over the patches of each channel.

    `window` must be a multiple of the patch length, because a remainder would never be scored; otherwise raises
    ConfigError. Patches do not overlap (the configuration rejects a stride other than the patch length), because an
    overlap would reveal values of masked patches.

    Linear layers keep PyTorch's initial values, as in the code of the paper; set the seed before. Positions are
    learned; see `core.models.positions` for their initial values.

    `inpaint` returns errors in the units of its input, also with `instance_norm`. Errors divided by the spread of each
    window would be as large for a quiet window as for an active one, so no threshold could compare them. With another
    `output` than `point`, errors are standardised by the predicted variance.
    """

    channel_axis = 2

    def __init__(self, settings: PatchTSTModel, *, num_channels: int, window: int):
        _refuse_bad_window(settings, window)
        num_patches = window // settings.patch_length
        super().__init__((num_channels, num_patches), settings.mask_ratio, settings.output)
        self.settings = settings
        self.num_channels = num_channels
        self.window = window
        self.num_patches = num_patches

        self.embed = nn.Linear(settings.patch_length, settings.d_model)
        self.position_nd = nn.Parameter(sinusoids(self.num_patches, settings.d_model))
        self.dropout = nn.Dropout(settings.dropout)
        self.layers = nn.ModuleList(EncoderLayer(settings) for _ in range(settings.num_layers))
        self.decoder = Decoder(settings, self.num_patches) if settings.drop_masked_tokens else None
        width = self.decoder.width if self.decoder else settings.d_model
        self.head = nn.Linear(width, settings.patch_length)
        self.variance_head = nn.Linear(width, settings.patch_length) if settings.output != "point" else None
        self.channel_c1d = self.mask_token_d = None
        if settings.channel_attention != "none":
            self.channel_c1d = nn.Parameter(STD * torch.randn(num_channels, 1, settings.d_model))
            self.mask_token_d = nn.Parameter(torch.zeros(settings.d_model))
        self.register_buffer("forecast_masks_qcn", self._forecast_masks().contiguous(), persistent=False)

    def _forecast_masks(self) -> Tensor:
        """Masks of the passes of `forecast`: bool (Q, C, N); together, they mask the newest patch of each channel."""
        if self.settings.channel_attention == "none" or self.num_channels == 1:
            return (torch.arange(self.num_patches) == self.num_patches - 1).expand(1, self.num_channels, -1)
        channels_qc = complementary_masks(self.num_channels, self.mask_ratio)
        return channels_qc.unsqueeze(-1).expand(-1, -1, self.num_patches)

    def passes(self) -> Iterator[tuple[Tensor, int | None]]:
        """With `channel_attention`, the masks of `forecast`, which cover complete channels: otherwise a lasting fault
        would be predicted from other rows of the same channel."""
        if self.settings.channel_attention == "none" or self.num_channels == 1:
            yield from super().passes()
        else:
            yield from ((mask_cn.unsqueeze(0), None) for mask_cn in self.forecast_masks_qcn)

    def draw_mask(
        self, batch_size: int, *, generator: torch.Generator | None = None, device: torch.device | str | None = None
    ) -> Tensor:
        """A random mask for each window, bool (B, C, N): of one of the kinds in `masks`, drawn at random."""
        drawn = [
            MASKS[kind](self, batch_size, generator=generator, device=device or self.passes_qn.device)
            for kind in self.settings.masks
            if kind != "channels" or self.num_channels > 1
        ] or [_mask_patches(self, batch_size, generator=generator, device=device or self.passes_qn.device)]
        return one_of(drawn, generator)

    def forward(
        self,
        x_btc: Tensor,
        mask_bcn: Tensor | None = None,
        *,
        num_masked: int | None = None,
        generator: torch.Generator | None = None,
    ) -> MaskedOutput:
        """Masks patches, predicts them, and computes the loss.

        x_btc: float (B, window, num_channels); NaN is missing. Converted to the data type of the weights.
        mask_bcn: bool (B, num_channels, num_patches), True is masked; (1, num_channels, num_patches) for one mask of
        all windows. Default: drawn from `generator`.
        num_masked: number of masked patches of `mask_bcn` in each channel; default: that of `mask_ratio`. With
        `drop_masked_tokens`, the encoder gets num_patches - num_masked patches: if the mask has fewer masked patches,
        some visible ones are not used; if it has more, some masked ones are used as zeros.
        Returns the loss (in instance-normalised units with `instance_norm`), the reconstruction (B, T, C) in the
        units of x, the mask, and the number of values in the loss.
        """
        x_bcnp = self.patchify(x_btc)
        if mask_bcn is None:
            mask_bcn = self.draw_mask(len(x_btc), generator=generator)
        masked_bcn1 = mask_bcn.unsqueeze(-1)
        observed_bcnp = ~x_bcnp.isnan()
        x_bcnp = x_bcnp.masked_fill(~observed_bcnp, 0.0)

        if self.settings.instance_norm:
            mean_bc11, scale_bc11 = instance_statistics(x_bcnp, observed_bcnp & ~masked_bcn1)
            x_bcnp = (x_bcnp - mean_bc11) / scale_bc11 * observed_bcnp
        visible_bcnp = x_bcnp.masked_fill(masked_bcn1, 0.0)
        if self.decoder is None:
            z_bcnd = self.encode(visible_bcnp, mask_bcn)
        else:
            num_visible = self.num_patches - (self.num_masked if num_masked is None else num_masked)
            z_bcnd = self._encode_visible(self.decoder, visible_bcnp, mask_bcn, num_visible)
        prediction_bcnp, log_variance_bcnp = self._predict(z_bcnd)
        chosen_bcnp = masked_bcn1 & observed_bcnp
        loss, count = masked_mse(prediction_bcnp, x_bcnp, chosen_bcnp)
        if log_variance_bcnp is not None and torch.is_grad_enabled():
            loss = likelihood_loss(loss, prediction_bcnp, log_variance_bcnp, x_bcnp, chosen_bcnp, output=self.output)
        if self.settings.instance_norm:
            prediction_bcnp = prediction_bcnp * scale_bc11 + mean_bc11
            log_variance_bcnp = None if log_variance_bcnp is None else log_variance_bcnp + 2 * scale_bc11.log()
        variance = None if log_variance_bcnp is None else self.unpatchify(log_variance_bcnp)
        return MaskedOutput(loss, self.unpatchify(prediction_bcnp), mask_bcn, count, variance)

    def _predict(self, z_bcnd: Tensor) -> tuple[Tensor, Tensor | None]:
        """Values (B, C, N, P) and, unless `output` is `point`, the logarithm of their variance, from tokens."""
        log_variance_bcnp = None if self.variance_head is None else log_variance_of(self.variance_head(z_bcnd))
        return at_least_float32(self.head(z_bcnd)), log_variance_bcnp

    @torch.no_grad()
    def forecast(self, x_btc: Tensor) -> tuple[Tensor, Tensor]:
        """Predicts the newest patch of each window, and uses no later row: (reconstruction, error), both (B, P, C).

        One pass masks only this patch. With `channel_attention`, a few passes mask complementary sets of channels
        completely, so that a channel is predicted from the others, not from its own earlier rows, which a lasting fault
        has changed too. The last layer computes the newest tokens only. Units, missing values and evaluation mode are
        those of `inpaint`.
        """
        with evaluating(self):
            x_bcnp = self.patchify(x_btc)
            observed_bcnp = ~x_bcnp.isnan()
            newest_bcp = x_bcnp[:, :, -1]
            x_bcnp = x_bcnp.masked_fill(~observed_bcnp, 0.0)
            predicted_bcp = error_bcp = torch.zeros_like(newest_bcp)
            for mask_cn in self.forecast_masks_qcn:
                of_pass = self._newest(x_bcnp, observed_bcnp, mask_cn)
                error = standardised_error(*of_pass, newest_bcp, output=self.output)
                is_masked_c1 = mask_cn[:, -1:]
                predicted_bcp = torch.where(is_masked_c1, of_pass[0], predicted_bcp)
                error_bcp = torch.where(is_masked_c1, error, error_bcp)
        return predicted_bcp.transpose(1, 2), error_bcp.transpose(1, 2)

    def _newest(self, x_bcnp: Tensor, observed_bcnp: Tensor, mask_cn: Tensor) -> tuple[Tensor, Tensor | None]:
        """The prediction of the newest patch under a mask, and its log variance or None: (B, C, P)."""
        if self.settings.instance_norm:
            mean_bc11, scale_bc11 = instance_statistics(x_bcnp, observed_bcnp & ~mask_cn.unsqueeze(-1))
            x_bcnp = (x_bcnp - mean_bc11) / scale_bc11 * observed_bcnp
        visible_bcnp, mask_bcn = x_bcnp.masked_fill(mask_cn.unsqueeze(-1), 0.0), mask_cn.expand(*x_bcnp.shape[:3])
        if self.decoder is None:
            z_bc1d = self.encode_newest(visible_bcnp, mask_bcn)
        else:
            z_bc1d = self._encode_visible(self.decoder, visible_bcnp, mask_bcn, self.num_patches - 1)[:, :, -1:]
        predicted_bc1p, log_variance_bc1p = self._predict(z_bc1d)
        if self.settings.instance_norm:
            predicted_bc1p = predicted_bc1p * scale_bc11 + mean_bc11
            log_variance_bc1p = None if log_variance_bc1p is None else log_variance_bc1p + 2 * scale_bc11.log()
        return predicted_bc1p[:, :, 0], None if log_variance_bc1p is None else log_variance_bc1p[:, :, 0]

    @property
    def blocks(self) -> list[nn.Module]:
        return [*self.layers, *(self.decoder.layers if self.decoder is not None else ())]

    def masked_values(self, mask_bcn: Tensor) -> Tensor:
        """Masked patches (B, C, N) to masked values (B, T, C)."""
        return mask_bcn.repeat_interleave(self.settings.patch_length, -1).transpose(1, 2)

    def encode_newest(self, x_bcnp: Tensor, mask_bcn: Tensor) -> Tensor:
        """The token of the newest patch, (B, C, 1, D); for evaluation, without dropout."""
        z_bcnd = self._tokens(x_bcnp, mask_bcn)
        for layer in self.layers[:-1]:
            z_bcnd = layer(z_bcnd)
        return self.layers[-1].newest(z_bcnd)

    def encode(self, x_bcnp: Tensor, mask_bcn: Tensor) -> Tensor:
        """Patches (B, C, N, P), zero where masked or missing, to tokens (B, C, N, D)."""
        z_bcnd = self.dropout(self._tokens(x_bcnp, mask_bcn))
        return run_blocks(self.layers, z_bcnd, recompute=self.gradient_checkpointing)

    def _tokens(self, x_bcnp: Tensor, mask_bcn: Tensor) -> Tensor:
        """Embedded patches with positions. With `channel_attention`, masked patches get a learned token, so that they
        differ from patches of zeros, and each channel gets a learned embedding."""
        z_bcnd = self.embed(x_bcnp)
        if self.channel_c1d is not None:
            z_bcnd = torch.where(mask_bcn.unsqueeze(-1), self.mask_token_d.to(z_bcnd.dtype), z_bcnd) + self.channel_c1d
        return z_bcnd + self.position_nd

    def _encode_visible(self, decoder: Decoder, x_bcnp: Tensor, mask_bcn: Tensor, num_visible: int) -> Tensor:
        """Tokens (B, C, N, decoder width) of all patches; the encoder processes the first `num_visible` visible ones.

        `num_visible` is an argument, so that shapes are known without synchronising with the device.
        """
        at_bcv = mask_bcn.byte().argsort(dim=-1, stable=True)[..., :num_visible]
        x_bcvp = x_bcnp.gather(2, at_bcv.unsqueeze(-1).expand(len(x_bcnp), -1, -1, x_bcnp.shape[-1]))
        z_bcvd = self.dropout(self.embed(x_bcvp) + self.position_nd[at_bcv])
        z_bcvd = run_blocks(self.layers, z_bcvd, recompute=self.gradient_checkpointing)
        return decoder(z_bcvd, at_bcv, recompute=self.gradient_checkpointing)

    def patchify(self, x_btc: Tensor) -> Tensor:
        """Windows (B, T, C) to patches (B, C, N, P) in the type of the weights. Raises ValueError for a wrong shape."""
        if x_btc.shape[1:] != (self.window, self.num_channels):
            raise ValueError(f"expected windows (B, {self.window}, {self.num_channels}), got {tuple(x_btc.shape)}")
        return x_btc.to(self.dtype).transpose(1, 2).unflatten(-1, (self.num_patches, -1))

    def unpatchify(self, x_bcnp: Tensor) -> Tensor:
        """Patches (B, C, N, P) to windows (B, T, C)."""
        return x_bcnp.flatten(-2).transpose(1, 2)


def _mask_patches(model: PatchTST, batch_size: int, **where: Any) -> Tensor:
    return random_mask((batch_size, model.num_channels), model.num_patches, model.mask_ratio, **where)


def _mask_channels(model: PatchTST, batch_size: int, **where: Any) -> Tensor:
    mask_bc = random_mask((batch_size,), model.num_channels, model.mask_ratio, **where)
    return mask_bc.unsqueeze(-1).expand(-1, -1, model.num_patches)


def _mask_newest(model: PatchTST, batch_size: int, *, device: torch.device | str, **_: Any) -> Tensor:
    newest_n = torch.arange(model.num_patches, device=device) == model.num_patches - 1
    return newest_n.expand(batch_size, model.num_channels, -1)


MASKS: dict[str, Callable[..., Tensor]] = {
    "patches": _mask_patches, "channels": _mask_channels, "newest": _mask_newest
}  # fmt: skip


def instance_statistics(x_bcnp: Tensor, used_bcnp: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and scale (B, C, 1, 1) of each window and channel over the values that are observed and visible.

    The paper includes masked values, which reveals the level of what the model must predict.
    """
    count_bc11 = used_bcnp.sum((-2, -1), keepdim=True).clamp(min=1)
    mean_bc11 = (x_bcnp * used_bcnp).sum((-2, -1), keepdim=True) / count_bc11
    variance_bc11 = ((x_bcnp - mean_bc11) * used_bcnp).square().sum((-2, -1), keepdim=True) / count_bc11
    return mean_bc11, (variance_bc11 + INSTANCE_VARIANCE_FLOOR).sqrt()


def _refuse_bad_window(settings: PatchTSTModel, window: int) -> None:
    length = settings.patch_length
    if window < 2 * length or window % length:
        fitting = max(window // length, 2) * length
        problem = f"{window} samples are not a multiple (two or more) of the patch length {length}; {fitting} would be"
        raise ConfigError("PatchTST", [ConfigFault("data.window", problem)])
