"""PatchTST of transformers instead of Landfall's, with the same windows, masks, steps, size and precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from core.config.schema import PatchTSTConfig, PatchTSTModel
from core.errors import UsageError
from core.models.factory import BUILDERS
from core.models.patchtst import PatchTST

TRANSFORMERS = "transformers' PatchTST"


class TransformersPatchTST(PatchTST):
    """Patches, masks and loss are Landfall's; embedding, positions, encoder and head are those of transformers, with
    its defaults for everything that `settings` does not set."""

    def __init__(self, settings: PatchTSTModel, *, num_channels: int, window: int):
        from transformers import PatchTSTConfig as TheirConfig
        from transformers import PatchTSTForPretraining

        of_channels = {"channel_attention": "none", "masks": ("patches",), "output": "point"}
        settings = settings.model_copy(update={"drop_masked_tokens": False, **of_channels})
        super().__init__(settings, num_channels=num_channels, window=window)
        theirs = PatchTSTForPretraining(
            TheirConfig(
                num_input_channels=num_channels,
                context_length=window,
                patch_length=settings.patch_length,
                patch_stride=settings.patch_length,
                d_model=settings.d_model,
                num_attention_heads=settings.num_heads,
                num_hidden_layers=settings.num_layers,
                ffn_dim=settings.d_ff,
                attention_dropout=settings.dropout,
                ff_dropout=settings.dropout,
                positional_dropout=settings.dropout,
            )
        )
        del self.embed, self.position_nd, self.dropout, self.layers
        self.encoder, self.head = theirs.model.encoder, theirs.head

    def encode(self, x_bcnp: Tensor, mask_bcn: Tensor) -> Tensor:
        return self.encoder(patch_input=x_bcnp).last_hidden_state

    def encode_newest(self, x_bcnp: Tensor, mask_bcn: Tensor) -> Tensor:
        return self.encode(x_bcnp, mask_bcn)[:, :, -1:]


@contextmanager
def with_transformers_model() -> Iterator[None]:
    """While active, the configuration of the stream `patchtst` describes transformers' model."""

    def build(config: PatchTSTConfig, num_channels: int) -> TransformersPatchTST:
        return TransformersPatchTST(config.model, num_channels=num_channels, window=config.data.window)

    ours = BUILDERS["patchtst"]
    BUILDERS["patchtst"] = build
    try:
        yield
    finally:
        BUILDERS["patchtst"] = ours


def refuse_if_absent() -> None:
    from importlib.util import find_spec

    if find_spec("transformers") is None:
        raise UsageError("--peers needs transformers", hint="pip install 'transformers>=4.50'")
