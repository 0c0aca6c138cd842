"""With a real model: cache under pressure equals cache off, token for token, on every history."""

import pytest

from tests.integration.engine.conftest import FAMILIES
from tests.integration.engine.real_workload import run_workload


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(30))
def test_cache_under_pressure_equals_cache_off(seed, family, models, tmp_path):
    run_workload(seed, models[family], tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("block", range(20))
def test_cache_under_pressure_equals_cache_off_for_long(block, family, models, tmp_path):
    for seed in range(1_000 + block * 50, 1_000 + (block + 1) * 50):
        run_workload(seed, models[family], tmp_path)
