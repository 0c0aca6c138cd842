"""The exponential function in float32, written so that a compiler can compute eight at once. Knows nothing about its users."""

import math
from typing import Final

import numpy as np
from numba import njit

from ninfer.kernels.compiled.address import float_of_bits, fused_multiply_add

_LOWEST: Final = np.float32(-87.0)
_HIGHEST: Final = np.float32(88.0)
_LOG2_E: Final = np.float32(1 / math.log(2))
_LN2_HIGH: Final = np.float32(0.693359375)
_LN2_LOW: Final = np.float32(math.log(2) - 0.693359375)
_ONE: Final = np.float32(1)
_HALF: Final = np.float32(0.5)
_C3, _C4, _C5, _C6, _C7 = (
    np.float32(value)
    for value in (
        1.6666665459e-1,
        4.1665795894e-2,
        8.3334519073e-3,
        1.3981999507e-3,
        1.9875691500e-4,
    )
)


@njit(error_model="numpy")
def exponential(x: np.float32) -> np.float32:
    """Compute e ** x to a few units in the last place (Cephes' polynomial).

    Numbers below -87 give e ** -87, above 88 e ** 88, NaN gives NaN.
    """
    held = x
    if held < _LOWEST:
        held = _LOWEST
    if held > _HIGHEST:
        held = _HIGHEST
    whole = np.floor(fused_multiply_add(held, _LOG2_E, _HALF))
    rest = fused_multiply_add(whole, -_LN2_HIGH, held)
    rest = fused_multiply_add(whole, -_LN2_LOW, rest)
    sums = fused_multiply_add(_C7, rest, _C6)
    sums = fused_multiply_add(sums, rest, _C5)
    sums = fused_multiply_add(sums, rest, _C4)
    sums = fused_multiply_add(sums, rest, _C3)
    sums = fused_multiply_add(sums, rest, _HALF)
    power = fused_multiply_add(sums, rest * rest, rest + _ONE)
    result: np.float32 = power * float_of_bits((np.int32(whole) + np.int32(127)) << np.int32(23))
    return result
