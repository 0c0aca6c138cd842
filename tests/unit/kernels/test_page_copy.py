"""Pages travel bit for bit."""

import pytest
import torch

from ninfer.core.step import PAGE_SIZE_TOKENS
from ninfer.kernels.kv_pool import KvLayout, KvPool
from ninfer.kernels.page_copy import copy_in, copy_out, copy_page, copy_run_in, copy_run_out

LAYOUTS = [
    KvLayout(30, 3, 64, torch.bfloat16),
    KvLayout(2, 2, 16, torch.float32),
    KvLayout(3, 1, 8, torch.float64),
]


@pytest.fixture(params=LAYOUTS, ids=lambda layout: str(layout.dtype))
def pool(request):
    """A pool of random bits, NaN patterns included."""
    pool = KvPool(request.param, 6)
    pool.kv.view(torch.uint8).random_(0, 256, generator=torch.Generator().manual_seed(0))
    return pool


def bits(tensor):
    return tensor.contiguous().view(torch.uint8)


def test_layout_counts_the_bytes_of_the_pool(pool):
    assert pool.kv.nbytes == pool.num_bytes == 6 * pool.layout.page_bytes
    assert pool.num_slots == 6 * PAGE_SIZE_TOKENS


def test_views_share_memory_with_the_pool(pool):
    keys, values = pool.keys(1, 2, 3), pool.values(1, 2, 3)
    assert keys.shape == (3 * 64, pool.layout.num_kv_heads, pool.layout.head_dim)
    assert keys.data_ptr() == pool.kv[1, 0, 128].data_ptr()
    assert values.data_ptr() == pool.kv[1, 1, 128].data_ptr()


@pytest.mark.parametrize("run", [(-1, 1), (0, 0), (5, 2), (6, 1)])
def test_a_run_outside_the_pool_is_refused(pool, run):
    with pytest.raises(IndexError, match="not in a pool of 6"):
        pool.run(*run)


def test_a_page_image_is_the_pages_bytes_in_layout_order(pool):
    buffer = bytearray(pool.layout.page_bytes)
    copy_out(pool, 4, memoryview(buffer))
    image = torch.frombuffer(buffer, dtype=torch.uint8)
    assert torch.equal(image, bits(pool.kv[:, :, 4 * 64 : 5 * 64]).flatten())


@pytest.mark.parametrize("is_readonly", [False, True])
def test_a_page_returns_bit_for_bit_to_another_place(pool, is_readonly):
    before = pool.kv.clone()
    buffer = bytearray(pool.layout.page_bytes)
    copy_out(pool, 1, memoryview(buffer))
    copy_in(pool, 3, memoryview(bytes(buffer) if is_readonly else buffer))
    assert torch.equal(bits(pool.run(3, 1)), bits(before[:, :, 64:128]))
    for page in (0, 1, 2, 4, 5):
        assert torch.equal(bits(pool.run(page, 1)), bits(before[:, :, 64 * page : 64 * page + 64]))


def test_runs_of_pages_travel_like_single_pages(pool):
    before = pool.kv.clone()
    buffers = [bytearray(pool.layout.page_bytes) for _ in range(3)]
    copy_run_out(pool, 0, [memoryview(b) for b in buffers])
    copy_run_in(pool, 3, [memoryview(b) for b in buffers])
    assert torch.equal(bits(pool.run(3, 3)), bits(before[:, :, : 3 * 64]))
    copy_run_out(pool, 0, [])


@pytest.mark.parametrize("num_tokens", [1, 63, 64])
def test_copy_on_write_takes_the_first_tokens_only(pool, num_tokens):
    before = pool.kv.clone()
    copy_page(pool, 2, 5, num_tokens=num_tokens)
    assert torch.equal(
        bits(pool.kv[:, :, 320 : 320 + num_tokens]), bits(before[:, :, 128 : 128 + num_tokens])
    )
    assert torch.equal(
        bits(pool.kv[:, :, 320 + num_tokens :]), bits(before[:, :, 320 + num_tokens :])
    )
    assert torch.equal(bits(pool.kv[:, :, :320]), bits(before[:, :, :320]))


def test_wrong_buffers_and_counts_are_refused_before_anything_changes(pool):
    before = pool.kv.clone()
    good, short = bytearray(pool.layout.page_bytes), bytearray(pool.layout.page_bytes - 1)
    with pytest.raises(ValueError, match="page image has"):
        copy_run_in(pool, 0, [memoryview(good), memoryview(short)])
    with pytest.raises(ValueError, match="read-only"):
        copy_out(pool, 0, memoryview(bytes(good)))
    with pytest.raises(ValueError, match="num_tokens"):
        copy_page(pool, 0, 1, num_tokens=65)
    assert torch.equal(bits(pool.kv), bits(before))
