import threading

import numpy as np
import pytest
import torch

from ninfer.exec.device_copy import CudaCopier, HostCopier, build_copier
from ninfer.kernels import page_copy
from ninfer.kernels.kv_pool import KvLayout, KvPool


def filled(dtype: torch.dtype, num_layers: int, num_pages: int = 5) -> KvPool:
    pool = KvPool(KvLayout(num_layers, 2, 8, dtype), num_pages)
    generator = torch.Generator().manual_seed(num_layers)
    pool.kv.view(torch.uint8).random_(0, 256, generator=generator)
    return pool


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_images_equal_those_of_the_kernel(dtype) -> None:
    pool = filled(dtype, 3)
    copier = HostCopier({"main": pool})
    image, expected = (bytearray(pool.layout.page_bytes) for _ in range(2))
    copier.copy_page_out(2, memoryview(image))
    page_copy.copy_out(pool, 2, memoryview(expected))
    assert image == expected


def test_pools_follow_each_other_in_order_of_name() -> None:
    pools = {"main": filled(torch.bfloat16, 3), "draft": filled(torch.float32, 1)}
    copier = build_copier(pools)
    assert isinstance(copier, HostCopier)
    image = bytearray(sum(pool.layout.page_bytes for pool in pools.values()))
    copier.copy_page_out(1, memoryview(image))
    draft_bytes = pools["draft"].layout.page_bytes
    alone = bytearray(draft_bytes)
    page_copy.copy_out(pools["draft"], 1, memoryview(alone))
    assert image[:draft_bytes] == alone


def test_round_trips_are_bit_exact_and_touch_one_page() -> None:
    pools = {"main": filled(torch.bfloat16, 3), "draft": filled(torch.float32, 1)}
    copier = build_copier(pools)
    before = {name: pool.kv.view(torch.uint8).clone() for name, pool in pools.items()}
    image = bytearray(sum(pool.layout.page_bytes for pool in pools.values()))
    copier.copy_page_out(3, memoryview(image))
    for pool in pools.values():
        pool.run(3, 1).fill_(0)
    copier.copy_page_in(3, memoryview(bytes(image)))
    for name, pool in pools.items():
        assert torch.equal(pool.kv.view(torch.uint8), before[name])
    copier.copy_page_in(0, memoryview(image))
    for name, pool in pools.items():
        now = pool.kv.view(torch.uint8)
        assert torch.equal(now[:, :, :64], before[name][:, :, 3 * 64 : 4 * 64])
        assert torch.equal(now[:, :, 64:], before[name][:, :, 64:])


def test_wrong_pages_and_buffers_change_nothing() -> None:
    pool = filled(torch.float32, 2)
    copier = HostCopier({"main": pool})
    good = memoryview(bytearray(pool.layout.page_bytes))
    for page in (-1, 5):
        with pytest.raises(IndexError):
            copier.copy_page_out(page, good)
    with pytest.raises(ValueError, match="bytes"):
        copier.copy_page_in(0, good[:-1])
    with pytest.raises(ValueError, match="read-only"):
        copier.copy_page_out(0, memoryview(bytes(good)))
    with pytest.raises(ValueError, match="no state"):
        copier.copy_state_out(0, good)
    with pytest.raises(ValueError, match="no state"):
        copier.copy_state_in(0, good)


def test_threads_may_copy_at_the_same_time() -> None:
    pool = filled(torch.bfloat16, 3, num_pages=32)
    copier = HostCopier({"main": pool})
    before = pool.kv.view(torch.uint8).clone()

    def work(pages: range) -> None:
        buffer = memoryview(bytearray(pool.layout.page_bytes))
        for _ in range(20):
            for page in pages:
                copier.copy_page_out(page, buffer)
                copier.copy_page_in(page, buffer)

    threads = [threading.Thread(target=work, args=(range(i, 32, 4),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(pool.kv.view(torch.uint8), before)


@pytest.mark.gpu
def test_cuda_round_trips_are_bit_exact() -> None:
    from ninfer.exec import host_memory

    device = torch.device("cuda")
    layouts = {"main": KvLayout(3, 2, 8, torch.bfloat16), "draft": KvLayout(1, 2, 8, torch.float32)}
    pools = {name: KvPool(layout, 5, device) for name, layout in layouts.items()}
    for pool in pools.values():
        pool.kv.view(torch.uint8).random_(0, 256)
    on_host = {name: KvPool(layout, 5) for name, layout in layouts.items()}
    for name, pool in on_host.items():
        pool.kv.copy_(pools[name].kv)
    copier = build_copier(pools)
    assert isinstance(copier, CudaCopier)
    num_bytes = sum(layout.page_bytes for layout in layouts.values())
    buffer = host_memory.HostMemory(device).allocate_host(num_bytes)
    expected = bytearray(num_bytes)
    copier.copy_page_out(4, buffer)
    HostCopier(on_host).copy_page_out(4, memoryview(expected))
    assert np.array_equal(np.frombuffer(buffer, np.uint8), np.frombuffer(expected, np.uint8))
    copier.copy_page_in(1, buffer)
    for pool in pools.values():
        assert torch.equal(pool.run(1, 1).view(torch.uint8), pool.run(4, 1).view(torch.uint8))


def test_many_pages_are_copied_like_one_after_another() -> None:
    pools = {"main": filled(torch.bfloat16, 3), "draft": filled(torch.float32, 1)}
    copier = HostCopier(pools)
    page_bytes = sum(pool.layout.page_bytes for pool in pools.values())
    pages = [3, 4, 0, 1, 2]
    together, alone = (memoryview(bytearray(5 * page_bytes)) for _ in range(2))
    copier.copy_pages_out(pages, together)
    for at, page in enumerate(pages):
        copier.copy_page_out(page, alone[at * page_bytes : (at + 1) * page_bytes])
    assert together == alone
    copier.copy_pages_in([1, 2], together[: 2 * page_bytes])
    copier.copy_pages_out([1, 2], alone[: 2 * page_bytes])
    assert together == alone
