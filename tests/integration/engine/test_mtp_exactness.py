"""With a hybrid model and MTP: cache under pressure equals cache off, token for token, on every history."""

import pytest
import torch

from ninfer.models.random_model import random_model, tiny_config
from tests.integration.engine.mtp_workload import SEED, run_mtp_workload
from tests.integration.engine.real_device import VOCAB_SIZE

FAMILIES = ("qwen3_5", "qwen3_5_moe", "qwen3_next")


@pytest.fixture(scope="module")
def with_heads():
    return {
        family: random_model(
            tiny_config(family, vocab_size=VOCAB_SIZE),
            SEED,
            dtype=torch.float64,
            has_mtp_head=True,
        )
        for family in FAMILIES
    }


@pytest.mark.parametrize(
    ("family", "seed"),
    [*(("qwen3_5", seed) for seed in range(10)), ("qwen3_5_moe", 50), ("qwen3_next", 60)],
)
def test_cache_under_pressure_equals_cache_off(family, seed, with_heads, tmp_path):
    run_mtp_workload(seed, with_heads[family], tmp_path)


def test_the_workloads_meet_what_they_are_meant_to_test(with_heads, tmp_path):
    stats = [
        one
        for seed in range(100, 103)
        for one in run_mtp_workload(seed, with_heads["qwen3_5"], tmp_path)
    ]
    num_cached = sum(one.num_cached_tokens for one in stats)
    assert num_cached > 0.1 * sum(one.num_prompt_tokens for one in stats)
    assert any(sum(one.restored_bytes.values()) for one in stats)
    assert 0 < sum(one.num_accepted for one in stats) < sum(one.num_drafted for one in stats)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(20))
def test_cache_under_pressure_equals_cache_off_for_long(block, with_heads, tmp_path):
    for seed in range(1_000 + block * 50, 1_000 + (block + 1) * 50):
        family = FAMILIES[seed % 8] if seed % 8 < len(FAMILIES) else FAMILIES[0]
        run_mtp_workload(seed, with_heads[family], tmp_path)
