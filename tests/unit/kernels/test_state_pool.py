"""A slot is one range of bytes that comes back as it went, whatever is in it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ninfer.kernels.state_pool import StateLayout, StatePool


def layout(dtype=torch.float32, **changes):
    sizes = {
        "num_layers": 3,
        "num_heads": 4,
        "key_dim": 6,
        "value_dim": 5,
        "window_rows": 3,
        "window_width": 10,
        "hidden_size": 7,
    }
    return StateLayout(dtype=dtype, **{**sizes, **changes})


def fill(pool, seed=0):
    pool.images.normal_(generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parts_lie_one_after_another_without_overlap(dtype):
    pool = StatePool(layout(dtype), 4)
    assert pool.image_bytes == pool.layout.image_bytes
    assert pool.image_bytes % 64 == 0
    assert pool.num_bytes == 4 * pool.image_bytes == pool.images.nbytes
    parts = [pool.recurrent(i)[2] for i in range(3)]
    parts += [pool.windows(i)[2] for i in range(3)]
    parts.append(pool.last_hidden[2])
    for number, part in enumerate(parts, start=1):
        part.fill_(number)
    expected = torch.cat([torch.full((p.numel(),), float(i)) for i, p in enumerate(parts, start=1)])
    assert torch.equal(pool.images[2, : len(expected)].float(), expected)
    assert not pool.images[2, len(expected) :].any()
    assert not pool.images[[0, 1, 3]].any()


def test_shapes_are_those_of_the_layout():
    pool = StatePool(layout(), 2)
    assert pool.recurrent(1).shape == (2, 4, 6, 5)
    assert pool.windows(1).shape == (2, 3, 10)
    assert pool.last_hidden.shape == (2, 7)


def test_copies_change_the_target_only_and_nothing_resets_it():
    pool = StatePool(layout(), 4)
    fill(pool)
    before = pool.images.clone()
    pool.copy(1, 3)
    assert torch.equal(pool.images[3], before[1])
    pool.copy(2, 2)
    pool.copy(None, 0)
    assert not pool.images[0].any()
    assert torch.equal(pool.images[1:3], before[1:3])


@settings(max_examples=25, deadline=None)
@given(
    dtype=st.sampled_from([torch.float32, torch.float64]),
    hidden_size=st.integers(1, 40),
    seed=st.integers(0, 1000),
)
def test_bytes_come_back_as_they_went(dtype, hidden_size, seed):
    pool = StatePool(layout(dtype, hidden_size=hidden_size), 3)
    generator = torch.Generator().manual_seed(seed)
    # Random bytes: infinities and numbers that are none are among them.
    content = torch.randint(0, 256, (pool.image_bytes,), dtype=torch.uint8, generator=generator)
    pool.copy_in(1, memoryview(content.numpy()).toreadonly())
    pool.copy(1, 2)
    buffer = bytearray(pool.image_bytes)
    pool.copy_out(2, memoryview(buffer))
    assert bytes(buffer) == content.numpy().tobytes()
    assert not pool.images[0].view(torch.uint8).any()


def test_mistakes_are_refused_and_change_nothing():
    pool = StatePool(layout(), 2)
    fill(pool)
    before = pool.images.clone()
    right, wrong = bytearray(pool.image_bytes), bytearray(pool.image_bytes + 4)
    for slot in (-1, 2):
        with pytest.raises(IndexError, match=f"slot {slot} is not in a pool of 2"):
            pool.copy(slot, 0)
        with pytest.raises(IndexError):
            pool.copy(0, slot)
        with pytest.raises(IndexError):
            pool.copy_in(slot, memoryview(right))
        with pytest.raises(IndexError):
            pool.copy_out(slot, memoryview(right))
    with pytest.raises(ValueError, match=f"{pool.image_bytes} bytes, the buffer has"):
        pool.copy_in(0, memoryview(wrong))
    with pytest.raises(ValueError, match="bytes"):
        pool.copy_out(0, memoryview(wrong))
    with pytest.raises(ValueError, match="read-only"):
        pool.copy_out(0, memoryview(bytes(right)))
    with pytest.raises(ValueError, match="num_slots"):
        StatePool(layout(), 0)
    assert torch.equal(pool.images, before)
