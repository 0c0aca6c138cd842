"""Batches of haystacks and of chats, each made from its own seed."""

from collections.abc import Callable
from random import Random

from tokenizers import Tokenizer

from tools.tiny_hybrid import chats, tool_calls
from tools.tiny_hybrid.batch import Batch, Stretch, build_batch
from tools.tiny_hybrid.conversation import Conversation, Segment
from tools.tiny_hybrid.drill import draw_drill
from tools.tiny_hybrid.haystacks import draw_haystack
from tools.tiny_hybrid.sample import Sample
from tools.tiny_hybrid.shape import Shape
from tools.tiny_hybrid.stories import Facts, story

_CHATS: tuple[tuple[Callable[[Random], Conversation], int], ...] = (
    (chats.tell_story, 4),
    (chats.read_story, 4),
    (chats.repeat, 4),
    (chats.listing, 3),
    (chats.greet, 1),
    (chats.puzzle, 3),
    (chats.no_question, 1),
    (tool_calls.use_tools, 3),
)


class Feed:
    """Makes training data. Equal seeds make equal batches."""

    def __init__(self, tokenizer: Tokenizer, shape: Shape) -> None:
        self._tokenizer = tokenizer
        self._shape = shape

    def haystacks(
        self,
        rng: Random,
        *,
        num_tokens: int,
        rows: int,
        max_needles: int,
        stretch: Stretch | None = None,
    ) -> Batch:
        """Make rows haystacks of about num_tokens tokens each."""
        samples = [
            self.haystack(rng, num_tokens=num_tokens, max_needles=max_needles) for _ in range(rows)
        ]
        return build_batch(samples, self._shape, rng=rng, stretch=stretch)

    def haystack(self, rng: Random, *, num_tokens: int, max_needles: int) -> Sample:
        """Make one haystack to learn from."""
        haystack = draw_haystack(
            rng, num_tokens=num_tokens, max_needles=max_needles, count_tokens=self._count
        )
        return Sample.encode(self._tokenizer, haystack.chat.segments(), filler=haystack.filler)

    def test_haystack(self, rng: Random, *, num_tokens: int, is_thinking: bool) -> Sample:
        """Make a haystack with one secret to measure with.

        What is to be answered is the thought, in which the needle is copied, or without thinking the answer.
        """
        haystack = draw_haystack(
            rng,
            num_tokens=num_tokens,
            max_needles=1,
            count_tokens=self._count,
            is_thinking=is_thinking,
        )
        segments = haystack.chat.segments()
        if is_thinking:
            index = next(i for i, segment in enumerate(segments) if segment.is_answer)
            thought, mark, answer = segments[index].text.partition("</think>")
            segments[index : index + 1] = [
                Segment(thought, is_answer=True),
                Segment(mark + answer, is_answer=False),
            ]
        return Sample.encode(self._tokenizer, segments)

    def drills(self, rng: Random, *, num_tokens: int, rows: int) -> Batch:
        """Make rows of random tokens that repeat."""
        samples = [
            draw_drill(rng, num_tokens=num_tokens, vocab_size=self._shape.vocab_size)
            for _ in range(rows)
        ]
        return build_batch(samples, self._shape)

    def chats(self, rng: Random, *, num_tokens: int, rows: int) -> Batch:
        """Make rows of chats and stories, one after the other, cut at num_tokens."""
        samples = []
        for _ in range(rows):
            row = Sample([], [], [])
            while len(row.token_ids) < num_tokens:
                part = Sample.encode(self._tokenizer, self._segments(rng))
                row = Sample(
                    row.token_ids + part.token_ids,
                    row.is_answer + part.is_answer,
                    row.is_filler + part.is_filler,
                )
            samples.append(
                Sample(
                    row.token_ids[:num_tokens],
                    row.is_answer[:num_tokens],
                    row.is_filler[:num_tokens],
                )
            )
        return build_batch(samples, self._shape)

    def _segments(self, rng: Random) -> list[Segment]:
        if rng.random() < 0.15:
            text = story(Facts.draw(rng), rng, num_sentences=rng.randint(4, 16))
            return [Segment(text + "<|endoftext|>", is_answer=True)]
        kinds, weights = zip(*_CHATS, strict=True)
        return rng.choices(kinds, weights)[0](rng).segments()

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)
