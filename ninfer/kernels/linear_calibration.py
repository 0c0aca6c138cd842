"""Chooses matrix kernels by measuring them. Knows nothing about CPU names."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from ninfer.kernels.linear import LinearPolicy, WeightFormat
from ninfer.kernels.linear_kernels import HalfKernel, KernelName, MatrixKernel, build_kernel
from ninfer.kernels.weight import Weight

if TYPE_CHECKING:
    from ninfer.kernels.compiled.compiler import Compiler
    from ninfer.kernels.compiled.panels import PanelFormat

FEW_ROWS: Final = (1, 2, 4, 8)
COMPILED_ROWS: Final = (1, 2, 4, 8)
"""Rows of one lane; more than a lane drafts unless told to. Without matrix tiles each attends for itself: 15 rows after 4,096 tokens
took 174 ms compiled, 55 in torch."""
NUM_TURNS: Final = 15
"""Products of each of two kinds that are compared, best against best: a busy machine must not decide."""
MAX_TURNS_S: Final = 0.2
"""No further turn after so long: a difference of milliseconds shows at once."""
MAX_LOSS: Final = 1.5
"""A compiled product may take so many times as long as torch's. What it belongs to saves more: of a step of four lanes in torch,
products were 29 of 49 ms, and the rest nearly vanishes."""
MANY_ROWS: Final = 64
MIN_GAIN: Final = 0.9
"""A second form of the weights must take at most this share of the time of the first."""
CACHE_BYTES: Final = 64 << 20
"""Memory written before a product of few rows, so that weights come from memory, as they do in a model."""


def calibrate(
    weight_format: WeightFormat,
    num_outputs: int,
    num_inputs: int,
    *,
    dtype: torch.dtype,
    seconds: Callable[[], float],
    compiler: "Compiler | None" = None,
) -> LinearPolicy:
    """Measure the kernels on one layer shape and choose.

    Args:
        weight_format: "plain" keeps full precision; "int8" and "int4" allow packed weights for few rows.
        num_outputs: of the model's largest layer.
        num_inputs: of the same layer.
        dtype: dtype of the weights.
        seconds: a monotonic clock.
        compiler: where compiled steps can be used for the model.

    Returns:
        The policy. float32 and float64 are always plain. Takes up to a second and 64 MiB, and seconds more when the
        compiler works for the first time.

    Raises:
        Exception: numba cannot compile; of any type.
    """
    if dtype != torch.bfloat16:
        return LinearPolicy()
    generator = torch.Generator().manual_seed(0)
    weight = Weight(torch.randn(num_outputs, num_inputs, generator=generator) * 0.05)
    bench = _Bench(weight, dtype=dtype, seconds=seconds)
    policy = _torch_policy(bench, weight_format)
    return policy if compiler is None else _compiled_policy(bench, weight_format, policy, compiler)


def _torch_policy(bench: "_Bench", weight_format: WeightFormat) -> LinearPolicy:
    has_half = has_half_kernel()
    packed: KernelName = "half" if has_half else "upcast"
    # Plain wins ties: it needs no second copy where a device or a later layer wants the dense weight.
    is_gain = bench.is_within(packed, "plain", MANY_ROWS, MIN_GAIN)
    many: KernelName = packed if is_gain else "plain"
    few: KernelName = "half" if weight_format == "plain" else weight_format
    if few == many or (few == "half" and not has_half):
        return LinearPolicy(many=many)
    max_few_rows = 0
    for num_rows in FEW_ROWS:
        if not bench.is_within(few, many, num_rows, MIN_GAIN):
            break
        max_few_rows = num_rows
    return LinearPolicy(few=few, max_few_rows=max_few_rows, many=many)


def _compiled_policy(
    bench: "_Bench", weight_format: WeightFormat, policy: LinearPolicy, compiler: "Compiler"
) -> LinearPolicy:
    """Let compiled steps take the rows for which the compiled product keeps up with what the policy has for them."""
    from ninfer.kernels.compiled.panel_kernel import PanelKernel  # noqa: PLC0415 - needs an extra

    form: PanelFormat = "bf16" if weight_format == "plain" else weight_format
    kernel = PanelKernel(bench.weight, form, compiler, max_rows=COMPILED_ROWS[-1])
    max_rows = 0
    for num_rows in COMPILED_ROWS:
        others = policy.few if num_rows <= policy.max_few_rows else policy.many
        if others is not None and not bench.is_within(kernel, others, num_rows, MAX_LOSS):
            break
        max_rows = num_rows
    if not max_rows:
        return policy
    # Steps of few rows are compiled, so nothing would use the packed weights of torch.
    return LinearPolicy(many=policy.many, compiled=form, max_compiled_rows=max_rows)


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
        self.weight = weight
        self._dtype = dtype
        self._seconds = seconds
        self._kernels: dict[KernelName, MatrixKernel] = {}
        self._scratch = torch.empty(CACHE_BYTES, dtype=torch.uint8)

    def is_within(
        self, first: KernelName | MatrixKernel, other: KernelName, num_rows: int, share: float
    ) -> bool:
        """Whether the first takes at most this share of the time of the other; of few rows with the weight not in a cache."""
        kernels = [self._kernel(first) if isinstance(first, str) else first, self._kernel(other)]
        x = self.weight.dense[:num_rows].contiguous()
        for kernel in kernels:
            kernel(x)  # the first product of a shape plans it, which takes longer than the product
        best = [math.inf, math.inf]
        started_s = self._seconds()
        for _ in range(NUM_TURNS):
            best = [
                min(known, self._once(kernel, x))
                for known, kernel in zip(best, kernels, strict=True)
            ]
            if self._seconds() - started_s > MAX_TURNS_S:
                break
        return best[0] <= best[1] * share

    def _kernel(self, name: KernelName) -> MatrixKernel:
        if name not in self._kernels:
            self._kernels[name] = build_kernel(name, self.weight, self._dtype)
        return self._kernels[name]

    def _once(self, kernel: MatrixKernel, x: Tensor) -> float:
        if len(x) <= COMPILED_ROWS[-1]:
            self._scratch.fill_(1)
        start = self._seconds()
        kernel(x)
        return self._seconds() - start
