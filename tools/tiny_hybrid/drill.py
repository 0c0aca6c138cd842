"""Copying in its purest form: random tokens, again and again. Attention learns to look back here first."""

from random import Random

from tools.tiny_hybrid.sample import Sample


def draw_drill(rng: Random, *, num_tokens: int, vocab_size: int) -> Sample:
    """Repeat a run of random tokens until num_tokens are written; all but the first run is learned.

    In words, copying pays for few tokens of a text, so it takes millions of tokens until a model finds out. Here it
    pays for nearly every token.
    """
    period = rng.randint(num_tokens // 8, num_tokens // 2)
    alphabet = rng.sample(range(vocab_size), min(vocab_size, max(period, 2 ** rng.randint(5, 12))))
    run = rng.choices(alphabet, k=period)
    token_ids = (run * (num_tokens // period + 1))[:num_tokens]
    is_answer = [index > period for index in range(num_tokens)]
    return Sample(token_ids, is_answer, [False] * num_tokens)
