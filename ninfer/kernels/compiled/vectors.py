"""Arithmetic of 16 numbers at once, for functions that write LLVM code. Needs llvmlite, and AVX512 where code runs."""

from collections.abc import Sequence
from typing import Any, Final

from llvmlite import ir
from numba.core.cgutils import get_or_insert_function

LANES: Final = 16
VECTOR_BYTES: Final = 64

I64 = ir.IntType(64)
_I16, _I32 = ir.IntType(16), ir.IntType(32)
FLOATS = ir.VectorType(ir.FloatType(), LANES)
INTS = ir.VectorType(_I32, LANES)

_POWERS: Final = (0.9999252, 0.6958335, 0.22606717, 0.07802452)
"""Of a polynomial that is 2 ** x to 7.5e-5 of it between 0 and 1; bf16 is rounded to 2e-3."""
_DOWN: Final = 9
"""Rounds to whole numbers below, raises no exceptions."""


class Vectors:
    """Writes instructions."""

    def __init__(self, builder: Any) -> None:
        """Remember where instructions are written."""
        self.builder = builder
        module = builder.module
        self._fma = get_or_insert_function(
            module, ir.FunctionType(FLOATS, [FLOATS] * 3), f"llvm.fma.v{LANES}f32"
        )
        name = "llvm.x86.avx512.mask"
        self._rest = get_or_insert_function(
            module,
            ir.FunctionType(FLOATS, [FLOATS, _I32, FLOATS, _I16, _I32]),
            f"{name}.reduce.ps.512",
        )
        self._times_power = get_or_insert_function(
            module, ir.FunctionType(FLOATS, [FLOATS] * 3 + [_I16, _I32]), f"{name}.scalef.ps.512"
        )

    def spread(self, number: Any) -> Any:
        """Put a float32, or an int of 32 bits, into all places."""
        empty = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
        first = self.builder.insert_element(empty, number, ir.Constant(_I32, 0))
        return self.builder.shuffle_vector(first, empty, ints([0] * LANES))

    def load(self, address: Any, kind: Any = FLOATS) -> Any:
        """Load a vector; its address is that of any number."""
        value = self.builder.load(self.builder.inttoptr(address, kind.as_pointer()))
        value.align = 2
        return value

    def store(self, value: Any, address: Any) -> None:
        """Store a vector of any type."""
        pointer = self.builder.inttoptr(address, value.type.as_pointer())
        self.builder.store(value, pointer).align = 2

    def row(self, address: Any, index: Any) -> Any:
        """Return the address of vector number `index`."""
        return self.builder.add(address, self.builder.mul(index, number(VECTOR_BYTES)))

    def larger(self, a: Any, b: Any) -> Any:
        """Return the larger numbers."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """Compute `a * b + c`, rounded once."""
        return self.builder.call(self._fma, [a, b, c])

    def power(self, x: Any) -> Any:
        """Compute 2 ** x to 1e-4 of it; 0 for very small x, infinity for large x."""
        every, now = ir.Constant(_I16, -1), ir.Constant(_I32, 4)
        empty = floats(0.0)
        rest = self.builder.call(self._rest, [x, ir.Constant(_I32, _DOWN), empty, every, now])
        result = floats(_POWERS[-1])
        for coefficient in reversed(_POWERS[:-1]):
            result = self.fma(result, rest, floats(coefficient))
        return self.builder.call(self._times_power, [result, x, empty, every, now])

    def turned(self, rows: Sequence[Any]) -> list[Any]:
        """Transpose 16 vectors of 16 numbers."""
        halves = ([*_interleaved(0)], [*_interleaved(LANES // 2)])
        current = list(rows)
        for _ in range(LANES.bit_length() - 1):
            current = [
                self.builder.shuffle_vector(current[at // 2], current[at // 2 + 8], ints(order))
                for at in range(LANES)
                for order in (halves[at % 2],)
            ]
        return current


def number(value: int) -> Any:
    """Return a constant of 64 bits."""
    return ir.Constant(I64, value)


def ints(values: Sequence[int]) -> Any:
    """Return a vector of ints of 32 bits."""
    return ir.Constant(INTS, list(values))


def floats(value: float) -> Any:
    """Return a vector of one float32."""
    return ir.Constant(FLOATS, [value] * LANES)


def _interleaved(start: int) -> Sequence[int]:
    """Choose numbers of two vectors in turns, from place `start`."""
    return [which * LANES + start + at for at in range(LANES // 2) for which in range(2)]
