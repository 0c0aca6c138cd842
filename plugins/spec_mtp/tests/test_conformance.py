"""The decoder `mtp` passes the suite of decoders, over the toy head of the suite."""

from ninfer_spec_mtp.plugin import ninfer_speculative_decoders
from typing_extensions import override

from ninfer.api import DecoderContext, SpeculativeDecoder
from ninfer.testing import SpeculativeDecoderSuite


class TestMtp(SpeculativeDecoderSuite):
    @override
    def open_decoder(self, context: DecoderContext) -> SpeculativeDecoder:
        (provider,) = ninfer_speculative_decoders()
        return provider.open(context, provider.sample_config(self.folder))
