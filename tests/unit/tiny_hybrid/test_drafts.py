"""Drafts in training are those of the running model: each after true tokens and the head's own results."""

from random import Random

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from ninfer.api import LaneRows
from ninfer.kernels.kv_pool import KvPool
from ninfer.models.loader import load_model, load_mtp_head
from ninfer.models.resolve import resolve_model
from tools.tiny_hybrid.drafts import NUM_PLACES, DraftUnroll, draft_losses
from tools.tiny_hybrid.export import load_rounded
from tools.tiny_hybrid.feed import Feed
from tools.tiny_hybrid.shape import ASSET, Shape

NUM_TOKENS = 24


@pytest.fixture(scope="module")
def feed():
    return Feed(Tokenizer.from_file(str(ASSET / "tokenizer.json")), Shape())


@pytest.fixture(scope="module")
def model():
    return load_rounded(Shape(), load_file(ASSET / "model.safetensors"))


@torch.no_grad()
def test_drafts_are_those_of_the_running_head(feed, model):
    batch = feed.chats(Random(1), num_tokens=64, rows=1)
    unroll = DraftUnroll(model, batch)
    places = unroll.places()
    source = resolve_model("tiny-hybrid")
    head = load_mtp_head(source, load_model(source, dtype=torch.float32))
    head.bind(KvPool(head.kv_spec, 2))
    token_ids = batch.token_ids[0].tolist()
    for row in range(NUM_TOKENS - NUM_PLACES - 1):
        after = token_ids[row + 1 : row + 1 + NUM_PLACES]
        hidden = unroll.hidden[0, row : row + 1]
        for place, token in enumerate(after):
            rows = LaneRows(lane=0, start_tokens=row + 1 + place, token_ids=[token], runs=((0, 2),))
            hidden = head.extend([rows], hidden)
            torch.testing.assert_close(hidden[0], places[place][0, row], rtol=0, atol=2e-4)


@torch.no_grad()
def test_the_model_accepts_most_later_drafts_too(feed, model):
    _, right = draft_losses(model, feed.chats(Random("asset"), num_tokens=256, rows=4))
    assert len(right) == NUM_PLACES
    assert min(right) >= 0.7


def test_learning_touches_nothing_but_the_head(feed):
    model = load_rounded(Shape(), load_file(ASSET / "model.safetensors"))
    model.mtp.requires_grad_()
    losses, _ = draft_losses(model, feed.chats(Random(2), num_tokens=64, rows=2), max_targets=8)
    sum(losses).backward()
    with_gradient = {name for name, p in model.named_parameters() if p.grad is not None}
    assert with_gradient == {f"mtp.{name}" for name, _ in model.mtp.named_parameters()}
