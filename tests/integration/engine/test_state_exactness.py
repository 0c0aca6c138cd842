"""Hybrid models with MTP: every state, and all KV of the head, is that of a cold run, whatever happened before."""

import random

import pytest
import torch

from ninfer.api import LaneRows
from ninfer.core.sampling import SamplingParams
from ninfer.kernels.kv_pool import KvPool
from ninfer.models.batch import ForwardBatch, Segment
from ninfer.models.random_model import random_model, random_mtp_head, tiny_config
from tests.fakes.dict_tier import DictTier
from tests.fakes.harness import Harness
from tests.fakes.workload import next_prompt
from tests.integration.engine.helped_decoder import HelpedDecoder
from tests.integration.engine.real_device import VOCAB_SIZE, ColdModel, RealDevice, noisy_states

SEED = 7
NUM_PAGES = 12
FAMILIES = ("qwen3_5", "qwen3_5_moe", "qwen3_next")


@pytest.fixture(scope="module")
def hybrids():
    return {
        family: random_model(
            tiny_config(family, vocab_size=VOCAB_SIZE),
            SEED,
            dtype=torch.float64,
            has_mtp_head=True,
        )
        for family in FAMILIES
    }


class Exact:
    """An engine over a tiny hybrid model, and the cold truth about any context."""

    def __init__(self, model, *, draft_tokens, num_pages=NUM_PAGES, num_slots=8, tiers=(), **more):
        self.model, self.draft_tokens = model, draft_tokens
        self.head = random_mtp_head(model, SEED)
        lanes = more.setdefault("num_lanes", 3)
        self.device = RealDevice(
            model,
            num_pages=num_pages,
            num_lanes=lanes,
            num_slots=num_slots,
            num_scratch=draft_tokens,
            head=self.head,
        )
        self.decoder = HelpedDecoder(self.head, max_tokens=draft_tokens)
        self.device.runner.follow = self.decoder.follow
        self.harness = Harness(
            device=self.device,
            draft_tokens=draft_tokens,
            decoder=self.decoder if draft_tokens else None,
            tiers=tiers,
            **{"chunk": 50, "shared_chunk": 20, **more},
        )
        self.cold = ColdModel(model, num_pages=NUM_PAGES)
        self.cold_head = random_mtp_head(model, SEED)

    def submit(self, prompt, max_tokens, **more):
        sampling = more.get("sampling")
        self.decoder.learn(prompt, self.cold.answer(prompt, max_tokens, sampling=sampling))
        return self.harness.submit(prompt, max_tokens, **more)

    def ask(self, prompt, max_tokens, **more):
        answer = self.submit(prompt, max_tokens, **more)
        self.harness.run(answer)
        self.check(answer)
        return answer

    def check(self, answer):
        assert answer.tokens == self.cold.answer(answer.prompt, answer.max_tokens, answer.stop)

    def check_lanes(self):
        """The running state of every lane, and its draft KV, is that of its tokens."""
        for lane in self.harness.scheduler.lanes.values():
            if lane.num_computed and lane.context.is_started:
                tokens = lane.token_ids[: lane.num_computed]
                self._check_state(lane.context.state_slot, tokens)
                self._check_draft_kv(lane.context.runs, tokens)

    def check_images(self):
        """So is every image on the device."""
        num_checked = 0
        for node in self.harness.store.tree.nodes():
            replica = node.image.valid_on(0) if node.image is not None else None
            if replica is not None:
                self._check_state(replica.location, tokens_of(node))
                num_checked += 1
        return num_checked

    def _check_state(self, slot, tokens):
        wanted = self.cold.state_after(tokens)
        assert (self.device.states.images[slot] - wanted).abs().max() < 1e-9

    def _check_draft_kv(self, runs, tokens):
        """Entries [1, len(tokens))."""
        if len(tokens) < 2:
            return
        pages = ((0, NUM_PAGES),)
        states = noisy_states(self.model, 1)
        states.copy(None, 0)
        batch = ForwardBatch.of(tokens, [Segment(0, len(tokens), 0, pages, 0)])
        hidden = self.model.forward(batch, KvPool(self.model.kv_spec, NUM_PAGES), states)
        pool = KvPool(self.head.kv_spec, NUM_PAGES)
        self.cold_head.bind(pool)
        rows = LaneRows(lane=0, start_tokens=1, token_ids=tokens[1:], runs=pages)
        self.cold_head.extend([rows], hidden[:-1])
        slots = Segment(0, 1, 0, runs).slot_ranges(1, len(tokens))
        found = torch.cat(
            [self.device.pools["draft"].kv[:, :, slot : slot + n] for slot, n in slots], 2
        )
        assert (found - pool.kv[:, :, 1 : len(tokens)]).abs().max() < 1e-9


def tokens_of(node):
    parts = []
    while not node.is_root:
        parts.append(node.tokens)
        node = node.parent
    encoded = b"".join(reversed(parts))
    return [int.from_bytes(encoded[at : at + 4], "big") for at in range(0, len(encoded), 4)]


@pytest.mark.parametrize(
    ("family", "seed"),
    [*(("qwen3_5", seed) for seed in range(4)), ("qwen3_5_moe", 4), ("qwen3_next", 5)],
)
def test_states_and_draft_kv_equal_those_of_a_cold_run(seed, family, hybrids):
    rng = random.Random(seed)
    tiers = [DictTier(100_000), DictTier(300_000)]
    exact = Exact(
        hybrids[family],
        draft_tokens=rng.choice([1, 2, 5]),
        num_slots=rng.choice([5, 8]),
        tiers=tiers,
        vocab=4,
    )
    harness, history, answers = exact.harness, [], []
    for _ in range(6):
        prompt = next_prompt(rng, history, 4)[:300]
        answer = exact.submit(prompt, rng.choice([1, 9, 30]), markers=[len(prompt) // 2 or 1])
        answers.append(answer)
        for _ in range(rng.choice([1, 4, 400])):
            if harness.scheduler.has_work:
                harness.step()
        exact.check_lanes()
        if rng.random() < 0.25:
            harness.scheduler.abort(answer.id)
        if answer.finished:
            history.append([*prompt, *answer.tokens])
    harness.run(*answers)
    for answer in answers:
        if answer.reason != "aborted":
            exact.check(answer)
    assert exact.check_images() > 0
    harness.check_drained()
    harness.close()


@pytest.mark.parametrize("draft_tokens", range(6))
def test_greedy_output_is_the_same_with_0_to_5_drafts(draft_tokens, hybrids):
    exact = Exact(hybrids["qwen3_5"], draft_tokens=draft_tokens)
    answers = [exact.submit([1, 2, 3, number], 40) for number in range(3)]
    exact.harness.run(*answers)
    for answer in answers:
        exact.check(answer)
        accepted = answer.finished.stats.accepted_at
        assert len(accepted) <= draft_tokens
        assert not draft_tokens or sum(accepted) > 0
    exact.harness.close()


def test_sampled_output_is_drawn_as_without_speculation(hybrids):
    """Seed by seed the same tokens, so the distribution is the same too; guesses are accepted and rejected."""
    exact = Exact(hybrids["qwen3_5"], draft_tokens=4)
    drafted = accepted = 0
    seen = set()
    for seed in range(40):
        sampling = SamplingParams(temperature=1.3, top_p=0.95, seed=seed)
        answer = exact.submit([1, 2, 3], 12, sampling=sampling)
        exact.harness.run(answer)
        assert answer.tokens == exact.cold.answer([1, 2, 3], 12, sampling=sampling)
        drafted += answer.finished.stats.num_drafted
        accepted += answer.finished.stats.num_accepted
        seen.add(tuple(answer.tokens))
    assert 0.2 * drafted < accepted < 0.9 * drafted
    assert len(seen) > 30
    exact.harness.close()


@pytest.mark.parametrize("kept", range(1, 7))
def test_a_limit_inside_an_accepted_run_leaves_the_state_of_the_prefix(kept, hybrids):
    """Five guesses, all right; the request ends within them or right behind."""
    exact = Exact(hybrids["qwen3_5"], draft_tokens=5)
    prompt = [5, 6, 7]
    truth = exact.cold.answer(prompt, 20)
    stop = truth[kept]
    if stop in truth[:kept]:
        pytest.skip("the token comes earlier")
    exact.decoder._rng.randint = lambda low, high: high
    exact.decoder._help_odds = 1.0
    exact.decoder.learn(prompt, truth)
    answer = exact.harness.submit(prompt, 20, stop=[stop])
    exact.harness.run(answer)
    assert answer.tokens == truth[: kept + 1]
    assert exact.check_images() >= 1
    again = exact.ask([*prompt, *answer.tokens, 9], 5)
    assert again.cached >= len(prompt) + kept
    exact.harness.check_drained()
    exact.harness.close()


@pytest.mark.parametrize("where", ["device", "host"])
def test_a_context_that_comes_back_drafts_as_one_that_never_left(where, hybrids):
    model = hybrids["qwen3_5"]
    prompt = [random.Random(3).randrange(200) for _ in range(300)]
    never_left = Exact(model, draft_tokens=3)
    whole = never_left.ask(prompt, 30)
    left = Exact(model, draft_tokens=3, tiers=[DictTier(10**6)])
    first = left.ask(prompt, 10)
    if where == "host":
        for number in range(3):
            left.ask([number, *prompt[: 7 * 64]], 2)
        left.harness.settle()
    left.decoder.made.clear()
    so_far = [*prompt, *first.tokens]
    left.decoder.learn(so_far, whole.tokens[10:])
    back = left.ask(so_far, 20)
    assert back.tokens == whole.tokens[10:]
    assert back.cached >= len(so_far) - 1
    if where == "host":
        assert back.finished.stats.restored_bytes["t1"] > 0
    wanted = dict(never_left.decoder.made)
    both = [(tokens, drafted) for tokens, drafted in left.decoder.made if tokens in wanted]
    assert len(both) > 3
    for tokens, drafted in both:
        num_both = min(len(drafted), len(wanted[tokens]))
        assert drafted[:num_both] == wanted[tokens][:num_both]
    for exact in (never_left, left):
        exact.harness.close()


def test_a_restored_state_has_the_bytes_that_were_spilled(hybrids):
    tier = DictTier(10**6)
    exact = Exact(hybrids["qwen3_5"], draft_tokens=2, tiers=[tier], num_slots=2, num_lanes=1)
    first = exact.ask([1, 2, 3] * 40, 4)
    exact.ask([4, 5, 6] * 100, 4)
    exact.harness.settle()
    spilled = [bytes(payload) for _, payload in tier.images.values()]
    answer = exact.submit([*first.prompt, *first.tokens], 4)
    read = exact.harness.store.layout.state_image_bytes
    restored = []
    execute = exact.device.execute

    def watched(plan):
        for lane in exact.harness.scheduler.lanes.values():
            if not lane.context.is_started:
                image = bytearray(read)
                exact.device.copy_state_out(lane.context.state_slot, memoryview(image))
                restored.append(bytes(image))
        return execute(plan)

    exact.harness.loop.parts.runner.execute = watched
    exact.harness.run(answer)
    assert answer.finished.stats.restored_bytes["t1"] > 0
    assert restored[0] in spilled
    exact.harness.close()
