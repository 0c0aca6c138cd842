"""What is trained when: short haystacks first. Knows nothing about models."""

from dataclasses import dataclass
from typing import Final

from tools.tiny_hybrid.batch import Stretch


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A part of the training.

    Attributes:
        num_tokens: how many are read in this stage, haystacks and chats.
        lengths: shortest and longest haystack in tokens.
        haystack_tokens: tokens of haystacks per step and process.
        chat_tokens: tokens of chats per step and process.
        drill_tokens: tokens of copying per step and process, see `drill`.
        max_needles: bound on secrets per haystack.
        stretch: how haystacks are made to look longer.
        rate: learning rate against the highest, at the start and at the end of the stage.
    """

    num_tokens: int
    lengths: tuple[int, int]
    haystack_tokens: int = 4096
    chat_tokens: int = 1024
    drill_tokens: int = 0
    max_needles: int = 4
    stretch: Stretch
    rate: tuple[float, float] = (1.0, 1.0)


STAGES: Final = (
    Stage(
        num_tokens=700_000,
        lengths=(96, 192),
        haystack_tokens=512,
        chat_tokens=512,
        drill_tokens=768,
        stretch=Stretch(),
    ),
    Stage(
        num_tokens=600_000,
        lengths=(96, 384),
        haystack_tokens=1024,
        chat_tokens=512,
        stretch=Stretch(0.3, 0.2),
    ),
    Stage(
        num_tokens=800_000,
        lengths=(128, 1024),
        haystack_tokens=1536,
        chat_tokens=512,
        drill_tokens=512,
        stretch=Stretch(0.5, 0.4),
    ),
    Stage(
        num_tokens=300_000,
        lengths=(160, 2048),
        haystack_tokens=2048,
        chat_tokens=1024,
        stretch=Stretch(0.6, 0.5),
    ),
    Stage(
        num_tokens=1_200_000,
        lengths=(96, 1024),
        haystack_tokens=1536,
        chat_tokens=1024,
        drill_tokens=512,
        stretch=Stretch(0.6, 0.5),
    ),
    Stage(
        num_tokens=200_000,
        lengths=(128, 4096),
        haystack_tokens=4096,
        chat_tokens=1536,
        drill_tokens=512,
        stretch=Stretch(0.6, 0.5),
        rate=(0.9, 0.8),
    ),
    Stage(
        num_tokens=2_100_000,
        lengths=(96, 1024),
        haystack_tokens=2048,
        chat_tokens=1024,
        drill_tokens=512,
        stretch=Stretch(0.6, 0.5),
        rate=(0.8, 0.5),
    ),
    Stage(
        num_tokens=2_400_000,
        lengths=(128, 4096),
        haystack_tokens=3072,
        chat_tokens=1024,
        drill_tokens=512,
        stretch=Stretch(0.6, 0.5),
        rate=(0.55, 0.02),
    ),
)
"""How `tiny-hybrid` was trained."""


def stage_at(num_tokens: int) -> tuple[Stage, float] | None:
    """Find the stage after num_tokens tokens and its learning rate; None when all are done."""
    for stage in STAGES:
        if num_tokens < stage.num_tokens:
            first, last = stage.rate
            return stage, first + (last - first) * num_tokens / stage.num_tokens
        num_tokens -= stage.num_tokens
    return None
