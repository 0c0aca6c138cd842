"""Products of matrix tiles by each kind of instructions this processor has, against float64."""

import pytest
import torch

pytest.importorskip("numba")
from numba import njit

from ninfer.kernels.compiled import tile_products
from ninfer.kernels.compiled.matrix_unit import matrix_unit
from ninfer.kernels.compiled.tile_shape import TILE

# From the fastest down: a processor that has one has those after it.
UNITS = ("amx", "avx512_bf16", "avx512")


@pytest.fixture(params=UNITS)
def unit(request, monkeypatch):
    best = matrix_unit()
    if best is None or UNITS.index(request.param) < UNITS.index(best):
        pytest.skip(f"the processor has no {request.param}")
    monkeypatch.setattr(tile_products, "matrix_unit", lambda: request.param)
    return request.param


@pytest.fixture
def configured():
    config = torch.zeros(64, dtype=torch.uint8)
    config[0] = 1
    config[16:32:2] = 64
    config[48:56] = 16
    return config, torch.zeros(64, dtype=torch.uint8)


def random(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def tiles_of(columns):
    """Turn bf16 `[inner, 16]` into tiles B: pairs, columns, both numbers."""
    return columns.reshape(-1, 2, TILE).transpose(1, 2).contiguous()


@pytest.mark.parametrize(("count", "dims", "gap"), [(1, 1, 0), (2, 2, 2), (3, 8, 130)])
def test_scores(unit, count, dims, gap, configured):
    keys = random(1, 32 * count, 32 * dims + gap)
    queries = random(2, 32 * dims, TILE)
    packed, scores = tiles_of(queries), torch.full((32 * count, TILE), torch.nan)
    config, saved = configured

    @njit
    def run(config, saved, keys, stride, queries, scores, count, dims):
        tile_products.save_tiles(saved)
        tile_products.configure_tiles(config)
        tile_products.score_tiles(keys, stride, queries, scores, count, dims)
        tile_products.configure_tiles(saved)

    places = (config.data_ptr(), saved.data_ptr(), keys.data_ptr(), keys.stride(0) * 2)
    run(*places, packed.data_ptr(), scores.data_ptr(), count, dims)
    expected = keys[:, : 32 * dims].double() @ queries.double()
    torch.testing.assert_close(scores.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("count", "gap"), [(1, 0), (2, 64), (4, 4096)])
def test_values_are_added(unit, count, gap, configured):
    room = random(1, count, 32 * 32 + gap)
    weights, before = random(2, 32 * count, TILE), random(3, 32, TILE).float()
    packed, sums = tiles_of(weights), before.clone()
    config, saved = configured

    @njit
    def run(config, saved, values, stride, weights, sums, count):
        tile_products.save_tiles(saved)
        tile_products.configure_tiles(config)
        tile_products.value_tiles(values, stride, weights, sums, count)
        tile_products.configure_tiles(saved)

    places = (config.data_ptr(), saved.data_ptr(), room.data_ptr(), room.stride(0) * 2)
    run(*places, packed.data_ptr(), sums.data_ptr(), count)
    values = room[:, : 32 * 32].reshape(count, 32, 32).transpose(0, 1).reshape(32, -1)
    expected = before.double() + values.double() @ weights.double()
    torch.testing.assert_close(sums.double(), expected, rtol=1e-5, atol=1e-4)
