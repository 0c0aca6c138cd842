"""The built-in decoder `ngram` passes the suite of decoders."""

from typing_extensions import override

from ninfer.api import DecoderContext, SpeculativeDecoder
from ninfer.builtin.ngram import NgramConfig, NgramDecoder
from ninfer.testing.decoder import SpeculativeDecoderSuite


class TestNgram(SpeculativeDecoderSuite):
    @override
    def open_decoder(self, context: DecoderContext) -> SpeculativeDecoder:
        return NgramDecoder.open(context, NgramConfig())
