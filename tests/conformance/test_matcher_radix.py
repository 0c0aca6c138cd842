"""The built-in matcher `radix` passes the suite of matchers."""

from typing_extensions import override

from ninfer.api import CheckpointMatcher, MatcherContext
from ninfer.builtin.radix import RadixConfig, RadixMatcher
from ninfer.testing.matcher import CheckpointMatcherSuite


class TestRadix(CheckpointMatcherSuite):
    @override
    def open_matcher(self, context: MatcherContext) -> CheckpointMatcher:
        return RadixMatcher.open(context, RadixConfig())
