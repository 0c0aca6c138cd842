import numpy as np
import pytest

from ninfer.core.sampling import SamplingParams
from ninfer.exec.sampler import LaneSampler
from ninfer.exec.verify import accept_choices, verify
from tests.unit.exec.test_sampler import chi_square, reference

VOCAB = 8
RNG = np.random.default_rng(4)
TABLE = RNG.normal(size=(VOCAB, VOCAB)).astype(np.float32) * 1.5
"""Logits after each token: a little Markov model."""


def rows_after(token: int, guesses: list[int]) -> np.ndarray:
    return TABLE[[token, *guesses]]


@pytest.mark.parametrize(
    ("choices", "guesses", "tokens"),
    [
        ([4], [], (4,)),
        ([4, 5, 6], [4, 5], (4, 5, 6)),
        ([4, 5, 6], [4, 7], (4, 5)),
        ([4, 5, 6], [3, 5], (4,)),
    ],
)
def test_the_longest_matching_prefix_is_accepted(choices, guesses, tokens) -> None:
    found = accept_choices(choices, guesses)
    assert found.token_ids == tokens
    assert found.num_accepted == len(tokens) - 1
    rows = np.eye(VOCAB, dtype=np.float32)[choices]
    assert verify(LaneSampler(SamplingParams(), [], vocab_size=VOCAB), rows, guesses) == found


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0, seed=1),
        SamplingParams(temperature=0.7, top_p=0.8, top_k=6, seed=2),
        SamplingParams(temperature=1.0, min_p=0.1, presence_penalty=1.0, seed=3),
    ],
)
def test_tokens_after_guesses_have_the_distribution_of_plain_sampling(params) -> None:
    guesses = [int(TABLE[0].argmax()), 3]
    sampler = LaneSampler(params, [], vocab_size=VOCAB)
    firsts, seconds, num_accepted = [], [], 0
    for _ in range(4000):
        if sampler._counts is not None:
            sampler._counts[:] = 0
        found = verify(sampler, rows_after(0, guesses), guesses)
        firsts.append(found.token_ids[0])
        if found.num_accepted >= 1:
            num_accepted += 1
            seconds.append(found.token_ids[1])
    first = reference(TABLE[0], params)
    second = reference(TABLE[guesses[0]], params, answer=[guesses[0]])
    assert chi_square(np.bincount(firsts, minlength=VOCAB), first) < 5.0
    assert chi_square(np.bincount(seconds, minlength=VOCAB), second) < 5.0
    assert num_accepted / 4000 == pytest.approx(first[guesses[0]], abs=0.03)


@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_whole_answers_equal_those_without_guesses(temperature: float) -> None:
    params = SamplingParams(
        temperature=temperature, frequency_penalty=0.4, repetition_penalty=1.2, seed=21
    )
    plain = LaneSampler(params, [1, 2], vocab_size=VOCAB)
    expected = [2]
    for _ in range(60):
        expected += verify(plain, rows_after(expected[-1], []), []).token_ids
    guided = LaneSampler(params, [1, 2], vocab_size=VOCAB)
    tokens = [2]
    dice = np.random.default_rng(0)
    while len(tokens) < 50:
        guesses = [
            token if dice.random() < 0.7 else int(dice.integers(VOCAB))
            for token in expected[len(tokens) : len(tokens) + 4]
        ]
        tokens += verify(guided, rows_after(tokens[-1], guesses), guesses).token_ids
    assert tokens == expected[: len(tokens)]


def test_every_returned_token_has_its_logprob() -> None:
    sampler = LaneSampler(SamplingParams(num_logprobs=2), [], vocab_size=VOCAB)
    guesses = [int(TABLE[0].argmax()), (int(TABLE[TABLE[0].argmax()].argmax()) + 1) % VOCAB]
    found = verify(sampler, rows_after(0, guesses), guesses)
    assert found.num_accepted == 1
    assert [entry.token_id for entry in found.logprobs] == list(found.token_ids)
