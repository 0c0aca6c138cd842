"""Token ids of a conversation and what is known about each. Knows nothing about batches."""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from tools.tiny_hybrid.conversation import Segment


@dataclass(frozen=True, slots=True)
class Sample:
    """One text as tokens; the lists are equally long.

    Attributes:
        token_ids: the tokens.
        is_answer: which tokens are learned.
        is_filler: which tokens are haystack without a needle.
    """

    token_ids: list[int]
    is_answer: list[bool]
    is_filler: list[bool]

    @classmethod
    def encode(
        cls,
        tokenizer: Tokenizer,
        segments: Sequence[Segment],
        *,
        filler: Sequence[tuple[int, int]] = (),
    ) -> "Sample":
        """Tokenize segments as one text.

        Args:
            tokenizer: the model's.
            segments: parts of the text.
            filler: [start, end) ranges of characters of the text.
        """
        encoding = tokenizer.encode(
            "".join(segment.text for segment in segments), add_special_tokens=False
        )
        answers, position = [], 0
        for segment in segments:
            if segment.is_answer:
                answers.append((position, position + len(segment.text)))
            position += len(segment.text)
        starts = [start for start, _ in encoding.offsets]
        return cls(encoding.ids, _inside(starts, answers), _inside(starts, filler))


def _inside(starts: Sequence[int], ranges: Sequence[tuple[int, int]]) -> list[bool]:
    """Tell which ascending positions are in one of the ascending ranges."""
    flags, index = [], 0
    for position in starts:
        while index < len(ranges) and position >= ranges[index][1]:
            index += 1
        flags.append(index < len(ranges) and position >= ranges[index][0])
    return flags
