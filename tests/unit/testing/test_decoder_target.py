"""The suite's own verification is right, so that what it finds is the decoder's."""

from random import Random

import pytest

from ninfer.testing.chi_square import chi_square_limit, chi_square_of
from ninfer.testing.decoder_target import (
    ToyModel,
    most_likely,
    probabilities,
    verify_greedy,
    verify_sampled,
)


@pytest.mark.parametrize("guesses", [(), (0,), (1, 2, 3), "right", "nearly"])
def test_greedy_verification_gives_a_prefix_of_plain_decoding(guesses):
    model, text = ToyModel(), [3, 5]
    plain = list(text)
    for _ in range(8):
        plain.append(most_likely(model.logits(plain)))
    right = tuple(plain[2:6])
    guesses = {"right": right, "nearly": (*right[:2], (right[2] + 1) % 20)}.get(guesses, guesses)
    accepted = verify_greedy(model, text, guesses)
    assert text + accepted == plain[: 2 + len(accepted)]
    agreeing = 0
    while agreeing < len(guesses) and guesses[agreeing] == plain[2 + agreeing]:
        agreeing += 1
    assert len(accepted) == agreeing + 1


@pytest.mark.parametrize("guess", [0, 7, 12])
def test_sampling_with_a_guess_is_distributed_as_without(guess):
    model, text, random, counts = ToyModel(), [3, 5], Random(3), {}
    for _ in range(5_000):
        first = verify_sampled(model, text, (guess,), random)[0]
        counts[first] = counts.get(first, 0) + 1
    expected = dict(enumerate(5_000 * weight for weight in probabilities(model.logits(text))))
    statistic, num_cells = chi_square_of(counts, expected)
    assert statistic <= chi_square_limit(num_cells - 1)


def test_toy_model_is_the_same_every_time_has_ties_and_never_gives_its_last_id():
    model, other = ToyModel(), ToyModel()
    for text in ([1], [2, 3], [22, 0, 5]):
        scores = model.logits(text)
        assert scores == other.logits(text)
        assert len(set(scores)) < len(scores)
        assert probabilities(scores)[-1] == 0.0
