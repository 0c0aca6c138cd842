"""Sampled answers of `tiny-hybrid` with its MTP head are distributed as the model says, at every temperature.

What the model says is computed without engine and sampler. The seeds are fixed, so a run is as good as any other. The
same counts must not fit when guesses are accepted wrongly, in each of the usual ways.
"""

from collections import Counter

import pytest

from ninfer.core.sampling import SamplingParams
from ninfer.exec import runner as runner_module
from ninfer.exec.verify import Verification, verify
from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.state_pool import StatePool
from ninfer.models.batch import ForwardBatch, Segment
from ninfer.testing.chi_square import chi_square_limit, chi_square_of
from tests.integration.engine.trained_engine import TrainedModel

NUM_LANES = 50
NUM_ROUNDS = 8
NUM_NEW = 4
TOP_K = 3
NUM_DRAFTS = 3
TEMPERATURES = (0.7, 1.0, 1.6)
PROMPT = """<|im_start|>user
Please write a short story. It should have a fox in it.<|im_end|>
<|im_start|>assistant
<think>
The user wants a story. I take"""


class Sampled(TrainedModel):
    """The model after a prompt of which it is not sure how to go on."""

    def __init__(self):
        super().__init__()
        self.prompt = self.encode(PROMPT)

    def expected(self, temperature):
        """Probability of every answer: of each token among the TOP_K best, softmax of logits by temperature."""
        found = {(): 1.0}
        for _ in range(NUM_NEW):
            rows = self._logits(list(found))
            longer = {}
            for (answer, share), logits in zip(found.items(), rows, strict=True):
                best = logits[: self.vocab_size].topk(TOP_K)
                shares = (best.values.double() / temperature).softmax(0).tolist()
                for token, one in zip(best.indices.tolist(), shares, strict=True):
                    longer[*answer, token] = share * one
            found = longer
        return found

    def _logits(self, answers):
        """What follows the prompt and each answer."""
        kv = KvPool(self.model.kv_spec, len(answers))
        states = StatePool(self.model.state_layout, len(answers))
        token_ids, segments, rows = [], [], []
        for lane, answer in enumerate(answers):
            context = [*self.prompt, *answer]
            segments.append(Segment(len(token_ids), len(context), 0, ((lane, 1),), lane))
            token_ids += context
            rows.append(len(token_ids) - 1)
        hidden = self.model.forward(ForwardBatch.of(token_ids, segments), kv, states)
        return self.model.logits(hidden[rows])

    def sample(self, temperature):
        """Answers of an engine with MTP, by how often they came; and how many guesses were made and accepted."""
        harness = self.open(
            num_lanes=NUM_LANES,
            num_pages=2 * NUM_LANES,
            num_slots=2 * NUM_LANES,
            draft_tokens=NUM_DRAFTS,
        )
        counts, drafted, accepted = Counter(), 0, 0
        for number in range(NUM_ROUNDS):
            answers = [
                harness.submit(
                    self.prompt,
                    NUM_NEW,
                    sampling=SamplingParams(
                        temperature=temperature, top_k=TOP_K, seed=1000 * number + lane
                    ),
                )
                for lane in range(NUM_LANES)
            ]
            harness.run(*answers)
            for answer in answers:
                counts[tuple(answer.tokens)] += 1
                drafted += answer.finished.stats.num_drafted
                accepted += answer.finished.stats.num_accepted
        harness.close()
        return counts, drafted, accepted

    def fits(self, counts, temperature):
        num_answers = sum(counts.values())
        expected = {
            answer: num_answers * share for answer, share in self.expected(temperature).items()
        }
        statistic, num_cells = chi_square_of(counts, expected)
        assert num_cells > 5
        return statistic <= chi_square_limit(num_cells - 1)


@pytest.fixture(scope="module")
def trained():
    return Sampled()


@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_sampled_answers_with_mtp_are_distributed_as_the_model_says(temperature, trained):
    counts, drafted, accepted = trained.sample(temperature)
    assert 0.1 * drafted < accepted < 0.9 * drafted
    assert trained.fits(counts, temperature)


def accepts_what_may_come(sampler, rows, guesses):
    """Takes every guess among the likely tokens."""
    rows = list(rows)
    for index, guess in enumerate(guesses):
        if guess not in rows[index].argsort()[-TOP_K:]:
            return Verification((*guesses[:index], sampler.choose(rows[index])), index)
    return Verification((*guesses, sampler.choose(rows[-1])), len(guesses))


def tries_twice(sampler, rows, guesses):
    """Draws once more where the guess did not come out, and takes that."""
    rows = list(rows)
    tokens = []
    for index, row in enumerate(rows):
        token = sampler.choose(row)
        if index < len(guesses) and token != guesses[index]:
            token = sampler.choose(row)
        tokens.append(token)
        if index < len(guesses) and token != guesses[index]:
            break
    return Verification(tuple(tokens), len(tokens) - 1)


def looks_at_the_row_before(sampler, rows, guesses):
    """Draws the token after the last guess from the row before it."""
    rows = list(rows)
    return verify(sampler, [*rows[:-1], rows[max(0, len(rows) - 2)]], guesses)


@pytest.mark.parametrize("broken", [accepts_what_may_come, tries_twice, looks_at_the_row_before])
def test_wrong_acceptance_shows(broken, trained, monkeypatch):
    monkeypatch.setattr(runner_module, "verify", broken)
    counts, _, _ = trained.sample(1.0)
    assert not trained.fits(counts, 1.0)
