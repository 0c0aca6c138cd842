"""The model that ships: complete, small, readable by transformers and by ninfer, and able to do what its card says."""

import json
from random import Random

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tokenizers import Tokenizer

from ninfer.models.resolve import resolve_model
from tools.tiny_hybrid.export import load_rounded
from tools.tiny_hybrid.feed import Feed
from tools.tiny_hybrid.generation import Generation
from tools.tiny_hybrid.retrieval import draft_acceptance
from tools.tiny_hybrid.shape import ASSET, Shape

MAX_BYTES = 12 * 2**20


@pytest.fixture(scope="module")
def feed():
    return Feed(Tokenizer.from_file(str(ASSET / "tokenizer.json")), Shape())


@pytest.fixture(scope="module")
def model():
    return load_rounded(Shape(), load_file(ASSET / "model.safetensors"))


def test_the_name_alone_finds_it():
    source = resolve_model("tiny-hybrid")
    assert (source.kind, source.path.resolve(), source.name) == ("hf", ASSET, "tiny-hybrid")


def test_it_is_small_and_in_bfloat16():
    assert sum(file.stat().st_size for file in ASSET.iterdir()) <= MAX_BYTES
    with safe_open(ASSET / "model.safetensors", "pt") as weights:
        assert {weights.get_tensor(name).dtype for name in weights.keys()} == {torch.bfloat16}  # noqa: SIM118
        assert any(name.startswith("mtp.") for name in weights.keys())  # noqa: SIM118


def test_its_configuration_is_that_of_the_tool():
    config = json.loads((ASSET / "config.json").read_text("utf-8"))
    assert config == Shape().config(eos_id=config["eos_token_id"], pad_id=config["pad_token_id"])
    tokenizer = Tokenizer.from_file(str(ASSET / "tokenizer.json"))
    assert tokenizer.token_to_id("<|im_end|>") == config["eos_token_id"]
    assert tokenizer.get_vocab_size() == config["vocab_size"]


def test_english_takes_about_four_characters_a_piece(feed):
    text = (
        "When the device is full, older pages move to the host and later to the disk. A request that continues an old"
        " conversation finds its pages there and starts at once."
    )
    tokenizer = Tokenizer.from_file(str(ASSET / "tokenizer.json"))
    assert 3.5 < len(text) / len(tokenizer.encode(text).ids) < 5


@pytest.mark.filterwarnings("ignore")
def test_transformers_loads_it_and_agrees(feed, model):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(ASSET)
    reference, report = AutoModelForCausalLM.from_pretrained(
        ASSET, dtype=torch.float32, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["mismatched_keys"]
    batch = feed.haystacks(Random(5), num_tokens=128, rows=2, max_needles=1)
    with torch.no_grad():
        theirs = reference(batch.token_ids).logits
        ours = model.logits(model.model(batch.token_ids, batch.span))
    assert (ours - theirs).abs().max() < 1e-3
    messages = [{"role": "user", "content": "Hello!"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n<think>\n"


@pytest.mark.filterwarnings("ignore")
def test_it_finds_secrets():
    found = Generation(ASSET).secrets_found(num_tokens=512, num_haystacks=8, seed=77)
    assert found >= 6


def test_the_model_accepts_most_first_drafts_of_its_head(feed, model):
    held_out = feed.chats(Random("asset"), num_tokens=512, rows=4)
    assert draft_acceptance(model, held_out) >= 0.6
