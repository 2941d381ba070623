"""PatchTST-SSL: masked patch reconstruction of multivariate time series.

Nie, Nguyen, Sinthong, Kalagnanam: A Time Series is Worth 64 Words: Long-term Forecasting with Transformers, ICLR 2023.

Each channel is split into patches and processed separately by one shared Transformer encoder. Masked patches are set to
zero, and a linear head predicts them from the visible ones.

With `drop_masked_tokens`, the encoder processes visible patches only, which is faster. A small decoder inserts a
learned token for each masked patch and predicts it, as in He, Chen, Xie, Li, Dollár, Girshick: Masked Autoencoders Are
Scalable Vision Learners, CVPR 2022.

Shape suffixes: b batch, t time, c channel, n patch, v visible patch, p sample within a patch, d width.
A missing value is NaN. It is zero in the input and excluded from instance statistics, loss and error.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.config.schema import PatchTSTModel
from core.errors import ConfigError, ConfigFault
from core.models.blocks import run_blocks
from core.models.masking import MaskedModel, MaskedOutput, at_least_float32, evaluating, masked_mse
from core.models.normalisation import WindowBatchNorm
from core.models.positions import sinusoids

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
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, z_bcnd: Tensor) -> Tensor:
        if self.pre_norm:
            z_bcnd = z_bcnd + self.dropout(self.attention(self.norm_attention(z_bcnd)))
            return z_bcnd + self.dropout(self.feed_forward(self.norm_feed_forward(z_bcnd)))
        z_bcnd = self.norm_attention(z_bcnd + self.dropout(self.attention(z_bcnd)))
        return self.norm_feed_forward(z_bcnd + self.dropout(self.feed_forward(z_bcnd)))

    def newest(self, z_bcnd: Tensor) -> Tensor:
        """The result of `forward` for the last token in evaluation mode: (B, C, 1, D)."""
        z_bc1d = z_bcnd[:, :, -1:]
        if self.pre_norm:
            z_bc1d = z_bc1d + self.attention.newest(self.norm_attention(z_bcnd))
            return z_bc1d + self.feed_forward(self.norm_feed_forward(z_bc1d))
        z_bc1d = self.norm_attention(z_bc1d + self.attention.newest(z_bcnd))
        return self.norm_feed_forward(z_bc1d + self.feed_forward(z_bc1d))


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
    window would be as large for a quiet window as for an active one, so no threshold could compare them.
    """

    channel_axis = 2

    def __init__(self, settings: PatchTSTModel, *, num_channels: int, window: int):
        _refuse_bad_window(settings, window)
        num_patches = window // settings.patch_length
        super().__init__((num_channels, num_patches), settings.mask_ratio)
        self.settings = settings
        self.num_channels = num_channels
        self.window = window
        self.num_patches = num_patches

        self.embed = nn.Linear(settings.patch_length, settings.d_model)
        self.position_nd = nn.Parameter(sinusoids(self.num_patches, settings.d_model))
        self.dropout = nn.Dropout(settings.dropout)
        self.layers = nn.ModuleList(EncoderLayer(settings) for _ in range(settings.num_layers))
        self.decoder = Decoder(settings, self.num_patches) if settings.drop_masked_tokens else None
        self.head = nn.Linear(self.decoder.width if self.decoder else settings.d_model, settings.patch_length)

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
            z_bcnd = self.encode(visible_bcnp)
        else:
            num_visible = self.num_patches - (self.num_masked if num_masked is None else num_masked)
            z_bcnd = self._encode_visible(self.decoder, visible_bcnp, mask_bcn, num_visible)
        prediction_bcnp = at_least_float32(self.head(z_bcnd))
        loss, count = masked_mse(prediction_bcnp, x_bcnp, masked_bcn1 & observed_bcnp)
        if self.settings.instance_norm:
            prediction_bcnp = prediction_bcnp * scale_bc11 + mean_bc11
        return MaskedOutput(loss, self.unpatchify(prediction_bcnp), mask_bcn, count)

    @torch.no_grad()
    def forecast(self, x_btc: Tensor) -> tuple[Tensor, Tensor]:
        """Predicts the newest patch of each window from the previous ones: (reconstruction, error), both (B, P, C).

        One pass that masks only this patch, instead of the passes of `inpaint`; its last layer computes only this
        token. Units, missing values and evaluation mode are those of `inpaint`.
        """
        with evaluating(self):
            x_bcnp = self.patchify(x_btc)
            observed_bcnp = ~x_bcnp.isnan()
            newest_bcp = x_bcnp[:, :, -1]
            mask_n = torch.arange(self.num_patches, device=x_bcnp.device) == self.num_patches - 1
            x_bcnp = x_bcnp.masked_fill(~observed_bcnp, 0.0)
            if self.settings.instance_norm:
                mean_bc11, scale_bc11 = instance_statistics(x_bcnp, observed_bcnp & ~mask_n.unsqueeze(-1))
                x_bcnp = (x_bcnp - mean_bc11) / scale_bc11 * observed_bcnp
            visible_bcnp = x_bcnp.masked_fill(mask_n.unsqueeze(-1), 0.0)
            if self.decoder is None:
                z_bc1d = self.encode_newest(visible_bcnp)
            else:
                mask_bcn = mask_n.expand(*x_bcnp.shape[:3])
                z_bc1d = self._encode_visible(self.decoder, visible_bcnp, mask_bcn, self.num_patches - 1)[:, :, -1:]
            predicted_bc1p = at_least_float32(self.head(z_bc1d))
            if self.settings.instance_norm:
                predicted_bc1p = predicted_bc1p * scale_bc11 + mean_bc11
        predicted_bcp = predicted_bc1p[:, :, 0]
        return tuple(each.transpose(1, 2) for each in (predicted_bcp, (predicted_bcp - newest_bcp).square()))

    @property
    def blocks(self) -> list[nn.Module]:
        return [*self.layers, *(self.decoder.layers if self.decoder is not None else ())]

    def masked_values(self, mask_bcn: Tensor) -> Tensor:
        """Masked patches (B, C, N) to masked values (B, T, C)."""
        return mask_bcn.repeat_interleave(self.settings.patch_length, -1).transpose(1, 2)

    def encode_newest(self, x_bcnp: Tensor) -> Tensor:
        """The token of the newest patch, (B, C, 1, D); for evaluation, without dropout."""
        z_bcnd = self.embed(x_bcnp) + self.position_nd
        for layer in self.layers[:-1]:
            z_bcnd = layer(z_bcnd)
        return self.layers[-1].newest(z_bcnd)

    def encode(self, x_bcnp: Tensor) -> Tensor:
        """Patches (B, C, N, P), zero where masked or missing, to tokens (B, C, N, D)."""
        z_bcnd = self.dropout(self.embed(x_bcnp) + self.position_nd)
        return run_blocks(self.layers, z_bcnd, recompute=self.gradient_checkpointing)

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
