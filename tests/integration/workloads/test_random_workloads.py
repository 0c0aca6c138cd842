"""Random workloads: cache under pressure equals cache off, token for token, and the store's equations always hold."""

import pytest

from tests.fakes.workload import run_workload


@pytest.mark.parametrize("seed", range(200))
def test_cache_under_pressure_equals_cache_off(seed):
    run_workload(seed)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(20))
def test_cache_under_pressure_equals_cache_off_for_long(block):
    for seed in range(1_000 + block * 100, 1_000 + (block + 1) * 100):
        run_workload(seed)
