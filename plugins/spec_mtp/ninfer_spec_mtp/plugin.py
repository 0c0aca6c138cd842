"""Entry point of the plugin. Registers one provider; knows nothing about drafting."""

from ninfer.api import DecoderContext, DecoderProvider, SpeculativeDecoder, hookimpl
from ninfer_spec_mtp.config import MtpConfig

NINFER_API = (1, 0)


@hookimpl
def ninfer_speculative_decoders() -> list[DecoderProvider[MtpConfig]]:
    """Offer the kind `mtp`."""
    return [
        DecoderProvider(
            kind="mtp",
            summary="Drafts with the head that the checkpoint itself carries (mtp.* weights).",
            config=MtpConfig,
            open=_open,
            sample_config=MtpConfig.sample,
        )
    ]


def _open(context: DecoderContext, config: MtpConfig) -> SpeculativeDecoder:
    """Open the decoder. Imports torch only now: `ninfer plugins` looks at every plugin and opens none."""
    from ninfer_spec_mtp.decoder import open_decoder  # noqa: PLC0415

    return open_decoder(context, config)
