"""Training is deterministic, goes on where it stopped, and learns."""

from random import Random

import pytest
import torch

from tools.tiny_hybrid import trainer as trainer_module
from tools.tiny_hybrid.batch import Stretch
from tools.tiny_hybrid.curriculum import STAGES, Stage, stage_at
from tools.tiny_hybrid.muon import orthogonal
from tools.tiny_hybrid.retrieval import held_out_loss
from tools.tiny_hybrid.shape import Shape
from tools.tiny_hybrid.tokenizer import train_tokenizer
from tools.tiny_hybrid.trainer import Trainer

STAGE = Stage(
    num_tokens=10**9,
    lengths=(128, 160),
    haystack_tokens=160,
    chat_tokens=512,
    max_needles=1,
    stretch=Stretch(0.5, 0.5),
)


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(400)


@pytest.fixture(autouse=True)
def one_thread():
    """As in training; small tensors are slower with more, and much slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def short_stage(monkeypatch):
    monkeypatch.setattr(trainer_module, "stage_at", lambda _: (STAGE, 1.0))


def small_trainer(tokenizer):
    shape = Shape(vocab_size=400, hidden_size=32, intermediate_size=32)
    return Trainer(shape, tokenizer, seed=3, rank=0, world=1)


def take_steps(trainer, count):
    last = trainer.progress.num_steps + count
    trainer.train(goes_on=lambda: trainer.progress.num_steps < last, every=lambda *_: None)


def test_training_in_two_sittings_equals_training_in_one(tokenizer, tmp_path):
    whole = small_trainer(tokenizer)
    take_steps(whole, 4)
    first = small_trainer(tokenizer)
    take_steps(first, 2)
    first.save(tmp_path / "state.pt")
    second = small_trainer(tokenizer)
    second.load(tmp_path / "state.pt")
    take_steps(second, 2)
    assert second.progress.num_tokens == whole.progress.num_tokens
    for (name, a), b in zip(whole.model.named_parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b), name


def test_training_lowers_the_loss_of_text_it_has_not_seen(tokenizer, monkeypatch):
    monkeypatch.setattr(trainer_module, "WARMUP_STEPS", 1)
    trainer = small_trainer(tokenizer)
    held_out = trainer.feed.chats(Random("held-out"), num_tokens=512, rows=2)
    before = held_out_loss(trainer.model, held_out)
    take_steps(trainer, 20)
    assert held_out_loss(trainer.model, held_out) < before - 0.3


def test_stages_follow_one_another_by_tokens():
    assert stage_at(0) == (STAGES[0], STAGES[0].rate[0])
    stage, rate = stage_at(STAGES[0].num_tokens)
    assert (stage, rate) == (STAGES[1], STAGES[1].rate[0])
    assert stage_at(sum(stage.num_tokens for stage in STAGES)) is None


@pytest.mark.parametrize("shape", [(3, 16, 48), (2, 48, 16)])
def test_the_update_of_muon_is_nearly_orthogonal(shape):
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
    assert values.min() > 0.5
    assert values.max() < 1.3
