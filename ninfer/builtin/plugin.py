"""Registers what the core ships: the matcher `radix`, the policy `lru`, the decoder `ngram`."""

from typing import Any

from ninfer.api import DecoderProvider, MatcherProvider, PolicyProvider, hookimpl
from ninfer.builtin.lru import LruConfig, LruPolicy
from ninfer.builtin.ngram import NgramConfig, NgramDecoder
from ninfer.builtin.radix import RadixConfig, RadixMatcher

NINFER_API = (1, 0)


@hookimpl
def ninfer_checkpoint_matchers() -> list[MatcherProvider[Any]]:
    """Offer the matcher `radix`."""
    return [
        MatcherProvider(
            kind="radix",
            summary="Deepest resume points of the exact token path.",
            config=RadixConfig,
            open=RadixMatcher.open,
            sample_config=lambda _folder: RadixConfig(),
        )
    ]


@hookimpl
def ninfer_placement_policies() -> list[PolicyProvider[Any]]:
    """Offer the policy `lru`."""
    return [
        PolicyProvider(
            kind="lru",
            summary="Least recently used goes first; the baseline to beat.",
            config=LruConfig,
            open=LruPolicy.open,
            sample_config=lambda _folder: LruConfig(),
        )
    ]


@hookimpl
def ninfer_speculative_decoders() -> list[DecoderProvider[Any]]:
    """Offer the decoder `ngram`."""
    return [
        DecoderProvider(
            kind="ngram",
            summary="Repeats what followed the same tokens earlier; works with every model.",
            config=NgramConfig,
            open=NgramDecoder.open,
            sample_config=lambda _folder: NgramConfig(),
        )
    ]
