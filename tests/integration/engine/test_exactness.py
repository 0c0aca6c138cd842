"""With a real model: cache under pressure equals cache off, token for token, on every history."""

import pytest

from tests.integration.engine.conftest import FAMILIES, HYBRID_FAMILIES
from tests.integration.engine.real_workload import run_workload


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(30))
def test_cache_under_pressure_equals_cache_off(seed, family, models, tmp_path):
    run_workload(seed, models[family], tmp_path)


@pytest.mark.parametrize("family", HYBRID_FAMILIES)
@pytest.mark.parametrize("seed", [100, 101, 102, 1951])
def test_restored_states_equal_cache_off(seed, family, models, tmp_path):
    run_workload(seed, models[family], tmp_path)


def test_hybrid_workloads_meet_what_they_are_meant_to_test(models, tmp_path):
    stats = [one for seed in range(6) for one in run_workload(seed, models["qwen3_5"], tmp_path)]
    assert sum(one.num_cached_tokens for one in stats) > 0.1 * sum(
        one.num_prompt_tokens for one in stats
    )
    assert any(one.restored_bytes.get("t1") for one in stats)
    assert any(one.restored_bytes.get("t2") for one in stats)
    assert any(one.num_drafted for one in stats)


def test_the_workloads_meet_what_they_are_meant_to_test(models, tmp_path):
    stats = [one for seed in range(6) for one in run_workload(seed, models["llama"], tmp_path)]
    assert sum(one.num_cached_tokens for one in stats) > 0.2 * sum(
        one.num_prompt_tokens for one in stats
    )
    assert sum(bool(one.restored_bytes.get("t1")) for one in stats) >= 3
    assert any(one.restored_bytes.get("t2") for one in stats)
    assert 0 < sum(one.num_accepted for one in stats) < sum(one.num_drafted for one in stats)


@pytest.mark.soak
@pytest.mark.parametrize("family", [*FAMILIES, *HYBRID_FAMILIES])
@pytest.mark.parametrize("block", range(20))
def test_cache_under_pressure_equals_cache_off_for_long(block, family, models, tmp_path):
    for seed in range(1_000 + block * 50, 1_000 + (block + 1) * 50):
        run_workload(seed, models[family], tmp_path)
