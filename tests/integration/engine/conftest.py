"""Tiny random models in float64, where another split of a prompt moves logits by rounding of 1e-15 only."""

import pytest
import torch

from ninfer.models.random_model import random_model, tiny_config
from tests.integration.engine.real_device import VOCAB_SIZE

FAMILIES = ("llama", "qwen3")
HYBRID_FAMILIES = ("qwen3_5", "qwen3_5_moe", "qwen3_next")


@pytest.fixture(scope="session")
def models():
    return {
        family: random_model(tiny_config(family, vocab_size=VOCAB_SIZE), 7, dtype=torch.float64)
        for family in (*FAMILIES, *HYBRID_FAMILIES)
    }


@pytest.fixture(autouse=True)
def _one_thread():
    """Tiny tensors on several threads of a busy machine mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
