"""Opens the MTP decoder, or says why it cannot be. Knows nothing about other decoders but their names."""

from typing import Final

from ninfer.api import DecoderContext, SpeculationError, SpeculativeDecoder
from ninfer_spec_mtp.config import MtpConfig

FAMILIES_WITH_HEAD: Final = ("qwen3_5 (Qwen3.5)", "qwen3_6 (Qwen3.6)", "qwen3_next (Qwen3-Next)")
"""Families whose published checkpoints carry `mtp.*` weights."""

_INSTEAD: Final = (
    'Set spec.decoder = "ngram" (drafts from the text itself, works with every model) or "off".'
)


def open_decoder(context: DecoderContext, config: MtpConfig) -> SpeculativeDecoder:
    """Open the decoder for the loaded model.

    Raises:
        SpeculationError: always in this version; the text says whether the model lacks the head or this
            version lacks the code.
    """
    del config
    family = context.model.family
    if not context.model.has_mtp_head:
        raise SpeculationError(
            f'spec.decoder = "mtp": the loaded model (family "{family}") has no multi-token-prediction head '
            f"(no mtp.* weights). Families with one: {', '.join(FAMILIES_WITH_HEAD)}. {_INSTEAD}"
        )
    raise SpeculationError(
        f'spec.decoder = "mtp": the loaded model (family "{family}") has a multi-token-prediction head, but this '
        f"version of ninfer-spec-mtp does not run it yet. {_INSTEAD}"
    )
