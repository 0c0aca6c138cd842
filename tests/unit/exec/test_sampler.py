import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ninfer.core.sampling import SamplingParams
from ninfer.exec.sampler import LaneSampler, SamplingFailed, _largest

VOCAB = 12
LOGITS = np.array([0.1, 2.0, -1.0, 1.5, 0.0, 3.0, -2.0, 0.7, 1.5, -0.3, 2.2, 0.9], np.float32)


def reference(logits, params: SamplingParams, *, prompt=(), answer=()) -> np.ndarray:
    """The distribution by the definitions, slowly, in float64."""
    scores = logits.astype(np.float64)
    for token in set(prompt) | set(answer):
        penalty = params.repetition_penalty
        scores[token] = scores[token] / penalty if scores[token] > 0 else scores[token] * penalty
    for token, count in Counter(answer).items():
        scores[token] -= params.presence_penalty + params.frequency_penalty * count
    for token, bias in params.logit_bias.items():
        scores[token] += bias
    if params.is_greedy:
        result = np.zeros(len(scores))
        result[scores.argmax()] = 1.0
        return result
    weights = np.exp((scores - scores.max()) / params.temperature)
    order = np.argsort(-scores, kind="stable")
    if params.top_k:
        weights[order[params.top_k :]] = 0.0
    weights /= weights.sum()
    if params.top_p < 1.0:
        total = 0.0
        for position, token in enumerate(order):
            total += weights[token]
            if total >= params.top_p:
                weights[order[position + 1 :]] = 0.0
                break
    weights[weights < params.min_p * weights.max()] = 0.0
    return weights / weights.sum()


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    """Return how many standard deviations the statistic lies above its mean."""
    is_possible = expected > 0
    assert counts[~is_possible].sum() == 0
    mean = expected[is_possible] * counts.sum()
    statistic = ((counts[is_possible] - mean) ** 2 / mean).sum()
    freedom = max(is_possible.sum() - 1, 1)
    return float((statistic - freedom) / math.sqrt(2 * freedom))


SETTINGS = [
    SamplingParams(temperature=1.0, seed=1),
    SamplingParams(temperature=0.5, seed=2),
    SamplingParams(temperature=3.0, seed=3),
    SamplingParams(temperature=1.0, top_k=3, seed=4),
    SamplingParams(temperature=1.0, top_k=1, seed=5),
    SamplingParams(temperature=1.3, top_p=0.8, seed=6),
    SamplingParams(temperature=1.0, top_p=0.01, seed=7),
    SamplingParams(temperature=2.0, min_p=0.3, seed=8),
    SamplingParams(temperature=1.5, top_k=6, top_p=0.9, min_p=0.1, seed=9),
    SamplingParams(temperature=1.0, logit_bias={5: -100.0, 6: 3.0}, seed=10),
    SamplingParams(temperature=1.0, presence_penalty=1.0, frequency_penalty=0.5, seed=11),
    SamplingParams(temperature=1.0, repetition_penalty=1.8, seed=12),
    SamplingParams(temperature=1.0, top_k=50, top_p=1.0, seed=13),
]


@pytest.mark.parametrize("params", SETTINGS)
def test_draws_follow_the_reference_distribution(params) -> None:
    prompt, answer = [1, 6, 6], [5, 5, 10]
    sampler = LaneSampler(params, prompt, vocab_size=VOCAB)
    for token in answer:
        sampler.record(token)
    draws = [sampler.choose(LOGITS) for _ in range(4000)]
    counts = np.bincount(draws, minlength=VOCAB)
    expected = reference(LOGITS, params, prompt=prompt, answer=answer)
    assert chi_square(counts, expected) < 5.0


@settings(max_examples=150, deadline=None)
@given(
    arrays(np.float32, VOCAB, elements=st.floats(-5, 5, width=32)),
    st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    st.integers(0, VOCAB + 2),
    st.sampled_from([0.05, 0.5, 0.9, 1.0]),
    st.sampled_from([0.0, 0.2, 1.0]),
    st.sampled_from([1.0, 1.5]),
    st.sampled_from([0.0, 1.0]),
    st.lists(st.integers(0, VOCAB - 1), max_size=5),
)
def test_only_possible_tokens_are_chosen(
    logits, temperature, top_k, top_p, min_p, repetition, presence, answer
) -> None:
    params = SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition,
        presence_penalty=presence,
        seed=5,
    )
    sampler = LaneSampler(params, [], vocab_size=VOCAB)
    for token in answer:
        sampler.record(token)
    before = logits.copy()
    scores = reference(
        logits,
        SamplingParams(temperature=1.0, repetition_penalty=repetition, presence_penalty=presence),
        answer=answer,
    )
    expected = reference(logits, params, answer=answer)
    for _ in range(5):
        chosen = sampler.choose(logits)
        # equal within rounding to one that is possible
        assert expected[chosen] > 0 or any(
            expected[other] > 0 and abs(math.log(scores[chosen] / scores[other])) < 1e-4
            for other in range(VOCAB)
        )
    assert (logits == before).all()


def test_top_p_looks_far_enough_in_flat_distributions() -> None:
    flat = np.zeros(5000, np.float32)
    flat[7] = 0.1
    sampler = LaneSampler(SamplingParams(temperature=1.0, top_p=0.5, seed=0), [], vocab_size=5000)
    draws = {sampler.choose(flat) for _ in range(1500)}
    assert max(draws) <= 2500
    assert len(draws) > 900
    everything = LaneSampler(
        SamplingParams(temperature=1.0, top_p=0.9999999, seed=0), [], vocab_size=5000
    )
    assert max(everything.choose(flat) for _ in range(800)) > 4900


def test_equal_seeds_give_equal_choices() -> None:
    params = SamplingParams(temperature=2.0, seed=-5)
    runs = [
        [sampler.choose(LOGITS) for _ in range(50)]
        for sampler in (LaneSampler(params, [], vocab_size=VOCAB) for _ in range(2))
    ]
    assert runs[0] == runs[1]
    unseeded = SamplingParams(temperature=2.0)
    runs = [
        [sampler.choose(LOGITS) for _ in range(50)]
        for sampler in (LaneSampler(unseeded, [], vocab_size=VOCAB) for _ in range(2))
    ]
    assert runs[0] != runs[1]


def test_greedy_takes_the_first_of_equal_tokens() -> None:
    sampler = LaneSampler(SamplingParams(), [], vocab_size=3)
    assert sampler.choose(np.array([1.0, 2.0, 2.0], np.float32)) == 1
    assert sampler.is_plain_greedy


def test_tiny_temperatures_do_not_overflow() -> None:
    sampler = LaneSampler(SamplingParams(temperature=1e-40, seed=1), [], vocab_size=VOCAB)
    assert {sampler.choose(LOGITS) for _ in range(20)} == {5}
    extreme = np.array([-3e38, 3e38, 0.0], np.float32)
    sampler = LaneSampler(SamplingParams(temperature=1.0, seed=1), [], vocab_size=3)
    assert sampler.choose(extreme) == 1


def test_excluded_tokens_are_never_drawn() -> None:
    logits = LOGITS.copy()
    logits[5] = -np.inf
    for params in SETTINGS[:9]:
        sampler = LaneSampler(params, [], vocab_size=VOCAB)
        assert 5 not in {sampler.choose(logits) for _ in range(300)}


@pytest.mark.parametrize("params", [SamplingParams(), SETTINGS[8], SETTINGS[11]])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_not_finite_fail(params, value) -> None:
    sampler = LaneSampler(params, [], vocab_size=VOCAB)
    logits = LOGITS.copy()
    logits[3] = value
    with pytest.raises(SamplingFailed, match="not finite"):
        sampler.choose(logits)
    with pytest.raises(SamplingFailed):
        sampler.choose(np.full(VOCAB, -np.inf, np.float32))


def test_ids_outside_the_vocabulary_are_ignored() -> None:
    params = SamplingParams(logit_bias={99: 5.0, -1: 5.0, 2: 50.0}, repetition_penalty=2.0)
    sampler = LaneSampler(params, [500, -3, 1], vocab_size=VOCAB)
    assert sampler.choose(LOGITS) == 2


def test_logprobs_are_of_the_raw_logits() -> None:
    params = SamplingParams(temperature=0.1, logit_bias={0: 50.0}, num_logprobs=4, seed=1)
    sampler = LaneSampler(params, [], vocab_size=VOCAB)
    token = sampler.choose(LOGITS)
    assert token == 0
    entry = sampler.logprob(LOGITS, token)
    expected = LOGITS - math.log(np.exp(LOGITS.astype(np.float64)).sum())
    assert entry.token_id == 0
    assert entry.logprob == pytest.approx(float(expected[0]), abs=1e-5)
    assert [index for index, _ in entry.top] == [5, 10, 1, 3]
    assert [value for _, value in entry.top] == pytest.approx(
        [float(expected[index]) for index in (5, 10, 1, 3)], abs=1e-5
    )
    assert all(isinstance(value, float) for _, value in entry.top)


@pytest.mark.parametrize(("asked", "given_back"), [(0, 0), (3, 3), (VOCAB, VOCAB), (1000, VOCAB)])
def test_more_alternatives_than_tokens_are_clamped(asked: int, given_back: int) -> None:
    sampler = LaneSampler(SamplingParams(num_logprobs=asked), [], vocab_size=VOCAB)
    entry = sampler.logprob(LOGITS, 5)
    assert len(entry.top) == given_back
    assert entry.top == tuple(sorted(entry.top, key=lambda item: -item[1]))


@settings(max_examples=200, deadline=None)
@given(
    arrays(np.float32, st.integers(1, 40), elements=st.integers(-3, 3).map(float)),
    st.integers(0, 45),
)
def test_largest_equals_a_stable_sort(values, count) -> None:
    expected = np.argsort(-values, kind="stable")[:count]
    assert _largest(values, count).tolist() == expected.tolist()
