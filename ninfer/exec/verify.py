"""Checks guesses of a speculative decoder against the model. Knows nothing about how guesses are made.

A guess is one certain token, so accepting it with probability p(guess) and else drawing from the rest, renormalised
(Leviathan et al. 2023, https://arxiv.org/abs/2211.17192, with a point-mass draft), is the same as drawing from p and
looking whether the guess came out. The second way needs one random number per token, the same one as without
speculation, so sampled answers are not only distributed but chosen as without it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ninfer.core.request import TokenLogprob
from ninfer.exec.sampler import LaneSampler, Row


@dataclass(frozen=True, slots=True)
class Verification:
    """What a lane's rows gave.

    Attributes:
        token_ids: accepted guesses, then one token more.
        num_accepted: `len(token_ids) - 1`.
        logprobs: one per token if the lane reports them, else empty.
    """

    token_ids: tuple[int, ...]
    num_accepted: int
    logprobs: tuple[TokenLogprob, ...] = ()


def verify(sampler: LaneSampler, rows: Iterable[Row], guesses: Sequence[int]) -> Verification:
    """Choose tokens row by row for as long as the guesses come out.

    Args:
        sampler: of the lane; learns every token returned, so penalties see the tokens before each position.
        rows: raw logits, one row more than guesses: row i was computed with guesses [0, i) as input.
        guesses: maybe none, which is a plain step.

    Raises:
        SamplingFailed: logits are not finite. The tokens chosen before are lost with the lane.

    Changes: the sampler.
    """
    token_ids: list[int] = []
    logprobs: list[TokenLogprob] = []
    for index, row in enumerate(rows):
        token_id = sampler.choose(row)
        sampler.record(token_id)
        token_ids.append(token_id)
        if sampler.params.num_logprobs is not None:
            logprobs.append(sampler.logprob(row, token_id))
        if index < len(guesses) and token_id != guesses[index]:
            break
    return Verification(tuple(token_ids), len(token_ids) - 1, tuple(logprobs))


def accept_choices(choices: Sequence[int], guesses: Sequence[int]) -> Verification:
    """Accept guesses for as long as they equal what a plain greedy lane chose; see `verify`.

    Args:
        choices: most likely token of each row, one more than guesses.
        guesses: maybe none.
    """
    num_accepted = 0
    while num_accepted < len(guesses) and choices[num_accepted] == guesses[num_accepted]:
        num_accepted += 1
    return Verification(tuple(choices[: num_accepted + 1]), num_accepted)
