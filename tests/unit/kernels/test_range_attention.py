"""Attention to a range of KV in matrix tiles, where the processor has them, against exact attention."""

import pytest
import torch

from ninfer.kernels.kv_pool import KvLayout, KvPool
from ninfer.kernels.paged_attention import plan_attention
from ninfer.kernels.segment import Segment

pytest.importorskip("numba")
from ninfer.kernels.compiled.attend_range import BLOCK_KEYS, MIN_QUERIES
from ninfer.kernels.compiled.range_attention import RangeAttention, has_tiles
from ninfer.kernels.compiled.team import Team

pytestmark = pytest.mark.skipif(not has_tiles(), reason="the processor has no matrix tiles")


def random(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize(
    ("num_heads", "num_queries", "head_dim", "num_keys"),
    [
        (1, MIN_QUERIES, 32, BLOCK_KEYS),
        (2, 150, 64, BLOCK_KEYS + 32),
        (3, 129, 96, 3 * BLOCK_KEYS + 224),
    ],
)
def test_heads_and_log_sums_are_as_exact_as_bf16_allows(
    num_heads, num_queries, head_dim, num_keys, num_threads, compiler
):
    queries = (3 * random(1, 1, num_heads, num_queries, head_dim)).bfloat16()
    # Long keys late: the largest score so far grows.
    kv = (
        random(2, 2, num_keys, num_heads, head_dim)
        * torch.linspace(0.1, 2, num_keys)[:, None, None]
    )
    keys, values = kv.bfloat16().transpose(1, 2).unsqueeze(1).unbind(0)
    attention = RangeAttention(compiler, Team.of_torch(num_threads))
    assert attention.takes(num_queries, keys)
    found, log_sums = attention(queries, keys, values, 0.2)
    scores = queries.double() @ keys.double().transpose(-1, -2) * 0.2
    expected = scores.softmax(-1) @ values.double()
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=0.02)
    assert float((found - expected).abs().mean()) < 0.002
    torch.testing.assert_close(log_sums.double(), scores.logsumexp(-1), rtol=1e-5, atol=1e-4)


def test_what_does_not_fit_tiles_is_left_alone(compiler):
    attention = RangeAttention(compiler)
    fits = torch.empty(1, 2, BLOCK_KEYS, 32, dtype=torch.bfloat16).transpose(1, 2).contiguous()
    fits = fits.transpose(1, 2)
    assert attention.takes(MIN_QUERIES, fits)
    assert not attention.takes(MIN_QUERIES - 1, fits)
    assert not attention.takes(MIN_QUERIES, fits.float())
    assert not attention.takes(MIN_QUERIES, fits[:, :, :-1])
    assert not attention.takes(MIN_QUERIES, fits[..., :16])
    assert not attention.takes(MIN_QUERIES, fits.contiguous())


def test_a_chunk_over_scattered_pages_equals_that_of_the_flash_kernel(compiler):
    pool = KvPool(KvLayout(2, 2, 32, torch.bfloat16), 20)
    pool.kv.copy_(random(1, *pool.kv.shape))
    runs = ((8, 6), (0, 7), (15, 2))
    segments = [Segment(0, 130, 12 * 64, runs), Segment(130, 1, 3, ((18, 1),))]
    queries = random(2, 131, 4, 32).bfloat16()
    own = random(3, 131, 2, 2, 32).bfloat16()
    found, expected = (
        plan_attention(pool, segments, num_heads=4, scale=0.3, ranges=ranges).attend(
            1, queries, own
        )
        for ranges in (RangeAttention(compiler), None)
    )
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


def test_tiles_of_other_users_are_as_they_were(compiler):
    x = random(1, 64, 64).bfloat16()
    expected = x @ x
    queries = random(2, 1, 1, MIN_QUERIES, 32).bfloat16()
    kv = random(3, 1, 1, BLOCK_KEYS, 32).bfloat16()
    RangeAttention(compiler)(queries, kv, kv, 1.0)
    assert torch.equal(x @ x, expected)
