"""Entry point of the plugin. Registers one provider; knows nothing about drafting."""

from ninfer.api import DecoderProvider, hookimpl
from ninfer_spec_mtp.config import MtpConfig
from ninfer_spec_mtp.decoder import open_decoder

NINFER_API = (1, 0)


@hookimpl
def ninfer_speculative_decoders() -> list[DecoderProvider[MtpConfig]]:
    """Offer the kind `mtp`."""
    return [
        DecoderProvider(
            kind="mtp",
            summary="Drafts with the head that the checkpoint itself carries (mtp.* weights).",
            config=MtpConfig,
            open=open_decoder,
            sample_config=MtpConfig.sample,
        )
    ]
