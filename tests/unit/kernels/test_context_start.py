"""Attention that begins at a later position: as if what is before it were not there."""

import pytest
import torch

from ninfer.kernels.kv_pool import KvLayout, KvPool
from ninfer.kernels.paged_attention import CpuAttention
from ninfer.kernels.reference_attention import ReferenceAttention
from ninfer.kernels.segment import Segment

LAYOUT = KvLayout(1, 2, 16, torch.float64)
RUNS = ((3, 1), (0, 2))


def noise(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def attend(kind, start, segments, before=None):
    pool = KvPool(LAYOUT, 4)
    pool.kv.copy_(noise(*pool.kv.shape))
    if before is not None:
        for slot, count in segments[0].slot_ranges(0, start):
            pool.kv[:, :, slot : slot + count] = before
    num_rows = sum(segment.num_rows for segment in segments)
    plan = kind(pool, segments, num_heads=4, scale=0.25)
    return plan.attend(0, noise(num_rows, 4, 16, seed=2), noise(num_rows, 2, 2, 16, seed=3))


@pytest.mark.parametrize("start", [1, 63, 64, 70])
@pytest.mark.parametrize(("position", "num_rows"), [(70, 1), (70, 5), (100, 20), (70, 60)])
def test_nothing_before_the_start_is_looked_at(start, position, num_rows):
    segments = [Segment(0, num_rows, position, RUNS, context_start=start)]
    outputs = [attend(CpuAttention, start, segments, before) for before in (0.0, 1e9)]
    assert torch.equal(*outputs)
    reference = attend(ReferenceAttention, start, segments, 5.0)
    assert (outputs[0] - reference).abs().max() < 1e-12


def test_from_0_all_of_it_is():
    segments = [Segment(0, 3, 70, RUNS)]
    outputs = [attend(CpuAttention, 1, segments, before) for before in (0.0, 1.0)]
    assert not torch.equal(*outputs)
