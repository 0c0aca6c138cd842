"""The trained model that ships, in float64 and float32: the logits and the greedy answers of `transformers`."""

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.state_pool import StatePool
from ninfer.models.batch import ForwardBatch, Segment
from ninfer.models.loader import load_model
from ninfer.models.resolve import resolve_model
from tests.e2e.hybrid_reference import make_exact

NUM_NEW = 64
NUM_PAGES = 20
QUESTIONS = (
    "Please tell me a short story about a fox.",
    "Hello there!",
    "Remember this: [secret code 48213]. " + "river lamp seven quiet. " * 120 + "What is the code?",
)


@pytest.fixture(scope="module")
def folder():
    return resolve_model("tiny-hybrid").path


@pytest.fixture(scope="module")
def prompts(folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    turns = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    prompts = [tokenizer.encode(turns.format(text)).ids for text in QUESTIONS]
    assert len(prompts[-1]) > 500
    return prompts


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def load_both(folder, dtype):
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    return reference, load_model(resolve_model("tiny-hybrid"), dtype=dtype)


@pytest.fixture
def exact_pair(folder, monkeypatch):
    """Both in float64, the reference in all its parts."""
    pair = load_both(folder, torch.float64)
    make_exact(monkeypatch)
    return pair


class Lane:
    """One context of our model."""

    def __init__(self, model):
        self.model = model
        self.kv = KvPool(model.kv_spec, NUM_PAGES)
        self.states = StatePool(model.state_layout, 1)
        self.num_tokens = 0

    def logits(self, token_ids):
        segment = Segment(0, len(token_ids), self.num_tokens, ((0, NUM_PAGES),), 0)
        batch = ForwardBatch.of(token_ids, [segment])
        self.num_tokens += len(token_ids)
        return self.model.logits(self.model.forward(batch, self.kv, self.states))


@torch.inference_mode()
def reference_logits(reference, token_ids):
    return reference(torch.tensor([token_ids]), use_cache=False).logits[0]


@torch.inference_mode()
def reference_answer(reference, prompt):
    ids = torch.tensor([prompt])
    answer = reference.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NUM_NEW,
        min_new_tokens=NUM_NEW,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
    )
    return answer[0, len(prompt) :].tolist()


def our_answer(model, prompt):
    """Our greedy answer, and the logits of its last token's row and all before."""
    lane = Lane(model)
    rows = [lane.logits(prompt)]
    answer = [int(rows[-1][-1].argmax())]
    while len(answer) < NUM_NEW:
        rows.append(lane.logits(answer[-1:]))
        answer.append(int(rows[-1][-1].argmax()))
    return answer, torch.cat(rows)


def check_answers(reference, model, prompts, tolerance):
    """What the reference finds most likely after each token of our answer is the next one: it answers the same."""
    for prompt in prompts:
        answer, rows = our_answer(model, prompt)
        expected = reference_logits(reference, [*prompt, *answer[:-1]])
        torch.testing.assert_close(rows, expected, rtol=0, atol=tolerance)
        assert expected[len(prompt) - 1 :].argmax(-1).tolist() == answer


def test_float64_logits_and_greedy_answers_are_those_of_the_reference(exact_pair, prompts):
    check_answers(*exact_pair, prompts, 1e-9)


def test_a_float64_answer_is_what_the_reference_generates(exact_pair, prompts):
    reference, model = exact_pair
    assert our_answer(model, prompts[0])[0] == reference_answer(reference, prompts[0])


def test_float32_logits_and_greedy_answers_are_those_of_the_reference(folder, prompts):
    check_answers(*load_both(folder, torch.float32), prompts, 1e-4)
