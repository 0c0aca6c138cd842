"""Chooses matrix kernels by measuring them. Knows nothing about CPU names."""

from collections.abc import Callable
from typing import Final

import torch

from ninfer.kernels.linear import LinearPolicy, WeightFormat
from ninfer.kernels.linear_kernels import HalfKernel, KernelName, MatrixKernel, build_kernel
from ninfer.kernels.weight import Weight

FEW_ROWS: Final = (1, 2, 4, 8)
MANY_ROWS: Final = 64
MIN_GAIN: Final = 0.9
"""A second form of the weights must take at most this share of the time of the first."""
NUM_REPEATS: Final = 3
CACHE_BYTES: Final = 64 << 20
"""Memory written before a product of few rows, so that weights come from memory, as they do in a model."""
MAX_BENCH_S: Final = 0.005
"""No second round for a kernel that took this long."""


def calibrate(
    weight_format: WeightFormat,
    num_outputs: int,
    num_inputs: int,
    *,
    dtype: torch.dtype,
    seconds: Callable[[], float],
) -> LinearPolicy:
    """Measure the kernels on one layer shape and choose.

    Args:
        weight_format: "plain" keeps full precision; "int8" and "int4" allow packed weights for few rows.
        num_outputs: of the model's largest layer.
        num_inputs: of the same layer.
        dtype: dtype of the weights.
        seconds: a monotonic clock.

    Returns:
        The policy. float32 and float64 are always plain. Takes up to 200 ms and 64 MiB.
    """
    if dtype != torch.bfloat16:
        return LinearPolicy()
    generator = torch.Generator().manual_seed(0)
    weight = Weight(torch.randn(num_outputs, num_inputs, generator=generator) * 0.05)
    bench = _Bench(weight, dtype=dtype, seconds=seconds)
    candidates: list[KernelName] = ["half"] if has_half_kernel() else ["upcast"]
    # Plain wins ties: it needs no second copy where a device or a later layer wants the dense weight.
    many: KernelName = min(
        candidates, key=lambda name: bench.time(name, MANY_ROWS), default="plain"
    )
    if bench.time("plain", MANY_ROWS) * MIN_GAIN <= bench.time(many, MANY_ROWS):
        many = "plain"
    few: KernelName = "half" if weight_format == "plain" else weight_format
    if few == many or (few == "half" and "half" not in candidates):
        return LinearPolicy(many=many)
    max_few_rows = 0
    for num_rows in FEW_ROWS:
        if bench.time(few, num_rows) > bench.time(many, num_rows) * MIN_GAIN:
            break
        max_few_rows = num_rows
    return LinearPolicy(few=few, max_few_rows=max_few_rows, many=many)


def has_half_kernel() -> bool:
    """Whether this build of torch multiplies packed float16 weights on this CPU."""
    try:
        kernel = HalfKernel(torch.eye(16))
        return bool((kernel(torch.ones(1, 16)) == 1).all())
    except RuntimeError:
        return False


class _Bench:
    """Times kernels on one weight."""

    def __init__(self, weight: Weight, *, dtype: torch.dtype, seconds: Callable[[], float]) -> None:
        self._weight = weight
        self._dtype = dtype
        self._seconds = seconds
        self._kernels: dict[KernelName, MatrixKernel] = {}
        self._scratch = torch.empty(CACHE_BYTES, dtype=torch.uint8)

    def time(self, name: KernelName, num_rows: int) -> float:
        """Return seconds of one product, best of a few; of few rows with the weight not in a cache."""
        if name not in self._kernels:
            self._kernels[name] = build_kernel(name, self._weight, self._dtype)
        kernel = self._kernels[name]
        x = self._weight.dense[:num_rows].contiguous()
        kernel(x[:1])
        times: list[float] = []
        while len(times) < NUM_REPEATS and sum(times) < MAX_BENCH_S:
            if num_rows <= FEW_ROWS[-1]:
                self._scratch.fill_(len(times))
            start = self._seconds()
            kernel(x)
            times.append(self._seconds() - start)
        return min(times)
