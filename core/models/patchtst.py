"""PatchTST-SSL: masked patch reconstruction of multivariate time series.

Nie, Nguyen, Sinthong, Kalagnanam: A Time Series is Worth 64 Words: Long-term Forecasting with Transformers, ICLR 2023.

Each channel is cut into patches and passes through one shared Transformer encoder on its own; some patches are set to
zero, and a linear head predicts them from the rest.

Shape suffixes: b batch, t time, c channel, n patch, p sample within a patch, d width, h head, k width of a head,
q pass of `inpaint`.
A missing value is NaN: zero in the input, absent from instance statistics, loss and error.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.config.schema import PatchTSTModel
from core.errors import ConfigError, ConfigFault
from core.models.masking import MaskedOutput, complementary_masks, evaluating, masked_mse, random_mask

# Added to the variance of a window under instance normalisation. Inputs come scaled to unit spread over the training
# data, so a window that moves less than a tenth of that is not blown up to unit variance.
INSTANCE_VARIANCE_FLOOR = 1e-2
# Spread of the initial positions: about half that of an embedded patch.
POSITION_STD = 0.5


class TokenBatchNorm(nn.BatchNorm1d):
    """Batch normalisation of every feature over all tokens of the batch: (…, D) → (…, D)."""

    def forward(self, z: Tensor) -> Tensor:
        return super().forward(z.flatten(0, -2)).view_as(z)


NORMS: dict[str, type[nn.Module]] = {"batch": TokenBatchNorm, "layer": nn.LayerNorm}


class SelfAttention(nn.Module):
    """Multi-head attention among the patches of one channel of one window."""

    def __init__(self, settings: PatchTSTModel):
        super().__init__()
        self.num_heads = settings.num_heads
        self.qkv = nn.Linear(settings.d_model, 3 * settings.d_model)
        self.out = nn.Linear(settings.d_model, settings.d_model)

    def forward(self, z_bnd: Tensor) -> Tensor:
        qkv_3bhnk = self.qkv(z_bnd).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        z_bhnk = F.scaled_dot_product_attention(*qkv_3bhnk.unbind(0))
        return self.out(z_bhnk.transpose(1, 2).flatten(-2))


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
        self.norm_attention = NORMS[settings.norm](settings.d_model)
        self.norm_feed_forward = NORMS[settings.norm](settings.d_model)
        self.dropout = nn.Dropout(settings.dropout)

    def forward(self, z_bnd: Tensor) -> Tensor:
        if self.pre_norm:
            z_bnd = z_bnd + self.dropout(self.attention(self.norm_attention(z_bnd)))
            return z_bnd + self.dropout(self.feed_forward(self.norm_feed_forward(z_bnd)))
        z_bnd = self.norm_attention(z_bnd + self.dropout(self.attention(z_bnd)))
        return self.norm_feed_forward(z_bnd + self.dropout(self.feed_forward(z_bnd)))


class PatchTST(nn.Module):
    """Masked autoencoder over the patches of each channel.

    `window` must be whole patches, for a left-over stretch would never be scored; raises ConfigError otherwise.
    Patches do not overlap (the settings refuse a stride other than the patch length): an overlap would show a hidden
    patch to its neighbour.

    Linear layers keep PyTorch's initial values, as in the paper's code; seed before constructing. Positions are learned
    but start as sines and cosines: from the paper's near-zero start the model spends its first thousand steps finding
    out which patches are neighbours.
    """

    def __init__(self, settings: PatchTSTModel, *, num_channels: int, window: int):
        super().__init__()
        _refuse_bad_window(settings, window)
        self.settings = settings
        self.num_channels = num_channels
        self.window = window
        self.num_patches = window // settings.patch_length

        self.embed = nn.Linear(settings.patch_length, settings.d_model)
        self.position_nd = nn.Parameter(sinusoids(self.num_patches, settings.d_model) * POSITION_STD)
        self.dropout = nn.Dropout(settings.dropout)
        self.layers = nn.ModuleList(EncoderLayer(settings) for _ in range(settings.num_layers))
        self.head = nn.Linear(settings.d_model, settings.patch_length)
        passes_qn = complementary_masks(self.num_patches, settings.mask_ratio)
        self.register_buffer("passes_qn", passes_qn, persistent=False)

    def forward(
        self, x_btc: Tensor, *, mask_bcn: Tensor | None = None, generator: torch.Generator | None = None
    ) -> MaskedOutput:
        """Hide patches, predict them, and compare.

        x_btc: float (B, window, num_channels); NaN is missing.
        mask_bcn: bool (B, num_channels, num_patches), True hides; drawn from `generator` where not given.
        Returns the loss (in instance-normalised units under `instance_norm`), the reconstruction (B, T, C) in the
        units of x, and the mask.
        """
        x_bcnp = self.patchify(x_btc)
        if mask_bcn is None:
            mask_bcn = random_mask(
                x_bcnp.shape[:2], self.num_patches, self.settings.mask_ratio, generator=generator, device=x_btc.device
            )
        hidden_bcn1 = mask_bcn.unsqueeze(-1)
        observed_bcnp = ~x_bcnp.isnan()
        x_bcnp = x_bcnp.masked_fill(~observed_bcnp, 0.0)

        if self.settings.instance_norm:
            mean_bc11, scale_bc11 = instance_statistics(x_bcnp, observed_bcnp & ~hidden_bcn1)
            x_bcnp = (x_bcnp - mean_bc11) / scale_bc11 * observed_bcnp
        prediction_bcnp = self.head(self.encode(x_bcnp.masked_fill(hidden_bcn1, 0.0))).float()
        loss = masked_mse(prediction_bcnp, x_bcnp, hidden_bcn1 & observed_bcnp)
        if self.settings.instance_norm:
            prediction_bcnp = prediction_bcnp * scale_bc11 + mean_bc11
        return MaskedOutput(loss, self.unpatchify(prediction_bcnp), mask_bcn)

    @torch.no_grad()
    def inpaint(self, x_btc: Tensor) -> tuple[Tensor, Tensor]:
        """Predict every patch while it is hidden: (reconstruction_btc, error_btc), both float32 (B, T, C).

        A few passes hide complementary sets of patches. error is the squared difference in the units of x, NaN where x
        is missing. Under `instance_norm` too: dividing by the spread of each window would make the error of a quiet
        window as large as that of a lively one, and thresholds could not compare them.
        Always in evaluation mode, so each window's result is its own, whatever shares the batch.
        """
        reconstruction_btc = torch.zeros_like(x_btc, dtype=torch.float32)
        with evaluating(self):
            for mask_n in self.passes_qn:
                mask_bcn = mask_n.expand(len(x_btc), self.num_channels, -1)
                hidden_t1 = mask_n.repeat_interleave(self.settings.patch_length).unsqueeze(-1)
                prediction_btc = self(x_btc, mask_bcn=mask_bcn).reconstruction
                reconstruction_btc = torch.where(hidden_t1, prediction_btc, reconstruction_btc)
        return reconstruction_btc, (reconstruction_btc - x_btc).square()

    def encode(self, x_bcnp: Tensor) -> Tensor:
        """Patches (B, C, N, P), zero where hidden or missing, to tokens (B, C, N, D)."""
        z_bcnd = self.dropout(self.embed(x_bcnp) + self.position_nd)
        z_bnd = z_bcnd.flatten(0, 1)  # channels are independent: batch and channel are one axis
        for layer in self.layers:
            z_bnd = layer(z_bnd)
        return z_bnd.view_as(z_bcnd)

    def patchify(self, x_btc: Tensor) -> Tensor:
        """Windows (B, T, C) to float32 patches (B, C, N, P); raises ValueError for another window or channel count."""
        if x_btc.shape[1:] != (self.window, self.num_channels):
            raise ValueError(f"expected windows (B, {self.window}, {self.num_channels}), got {tuple(x_btc.shape)}")
        return x_btc.float().transpose(1, 2).unflatten(-1, (self.num_patches, -1))

    def unpatchify(self, x_bcnp: Tensor) -> Tensor:
        """Patches (B, C, N, P) to windows (B, T, C)."""
        return x_bcnp.flatten(-2).transpose(1, 2)


def sinusoids(num_positions: int, width: int) -> Tensor:
    """Sines and cosines of geometrically spaced wavelengths (N, D), centred, unit spread (Vaswani et al., 2017)."""
    wavelengths_d = 10_000.0 ** (torch.arange(width) // 2 * 2 / width)
    phase_nd = torch.arange(num_positions).unsqueeze(1) / wavelengths_d
    waves_nd = torch.where(torch.arange(width) % 2 == 0, phase_nd.sin(), phase_nd.cos())
    return (waves_nd - waves_nd.mean()) / waves_nd.std()


def instance_statistics(x_bcnp: Tensor, seen_bcnp: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and scale (B, C, 1, 1) of each window and channel over its seen values: observed and not hidden.

    The paper takes hidden values too, which tells the model the level of what it is to predict.
    """
    count_bc11 = seen_bcnp.sum((-2, -1), keepdim=True).clamp(min=1)
    mean_bc11 = (x_bcnp * seen_bcnp).sum((-2, -1), keepdim=True) / count_bc11
    variance_bc11 = ((x_bcnp - mean_bc11) * seen_bcnp).square().sum((-2, -1), keepdim=True) / count_bc11
    return mean_bc11, (variance_bc11 + INSTANCE_VARIANCE_FLOOR).sqrt()


def _refuse_bad_window(settings: PatchTSTModel, window: int) -> None:
    length = settings.patch_length
    if window < 2 * length or window % length:
        fitting = max(window // length, 2) * length
        problem = f"{window} samples are no whole number (two or more) of patches of {length}; {fitting} would be"
        raise ConfigError("PatchTST", [ConfigFault("data.window", problem)])
