"""Rows and columns change places between memory and matrix tiles. Writes LLVM code."""

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ninfer.kernels.compiled.vectors import INTS, LANES, VECTOR_BYTES, Vectors, ints, number

_KEYS: Final = 32


def _words(
    vectors: Vectors, first: Any, stride: Any, last: Any, *, step: int, start: int
) -> list[Any]:
    """Load 16 rows of 16 words: numbers `start`, `start + step`, ...; rows after `last` are that one again."""
    builder = vectors.builder
    rows = []
    for row in range(start, start + step * LANES, step):
        index = number(row)
        index = builder.select(builder.icmp_signed("<", index, last), index, last)
        rows.append(vectors.load(builder.add(first, builder.mul(index, stride)), INTS))
    return rows


@intrinsic
def turn_queries(_context: Any, _rows: Any, _stride: Any, _last: Any, _target: Any) -> Any:
    """Write 32 elements of 16 queries as a tile B; all arguments are int64.

    Args:
        _rows: address of bf16 rows.
        _stride: bytes from row to row.
        _last: number of the last row that is there; others become copies of it.
        _target: address of bf16 `[16, 16, 2]`: pairs of elements, queries.
    """

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        rows, stride, last, target = arguments
        vectors = Vectors(builder)
        words = _words(vectors, rows, stride, last, step=1, start=0)
        for at, word in enumerate(vectors.turned(words)):
            vectors.store(word, builder.add(target, number(at * VECTOR_BYTES)))
        return number(0)

    return types.int64(*[types.int64] * 4), generate


@intrinsic
def turn_values(_context: Any, _rows: Any, _stride: Any, _target: Any) -> Any:
    """Write 32 elements of the values of 32 keys as two tiles A; all arguments are int64.

    Args:
        _rows: address of bf16 rows.
        _stride: bytes from key to key.
        _target: address of bf16 `[32, 32]`: elements, keys.
    """

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        rows, stride, target = arguments
        vectors = Vectors(builder)
        last = number(_KEYS)
        even, odd = (_words(vectors, rows, stride, last, step=2, start=start) for start in range(2))
        sixteen, high = ints([16] * LANES), ints([0xFFFF0000] * LANES)
        low = ints([0xFFFF] * LANES)
        first = [
            builder.or_(builder.and_(a, low), builder.shl(b, sixteen))
            for a, b in zip(even, odd, strict=True)
        ]
        second = [
            builder.or_(builder.lshr(a, sixteen), builder.and_(b, high))
            for a, b in zip(even, odd, strict=True)
        ]
        for part, pairs in enumerate((first, second)):
            for at, row in enumerate(vectors.turned(pairs)):
                vectors.store(row, builder.add(target, number((2 * at + part) * VECTOR_BYTES)))
        return number(0)

    return types.int64(*[types.int64] * 3), generate


@intrinsic
def turn_sums(_context: Any, _sums: Any, _totals: Any, _target: Any, _stride: Any) -> Any:
    """Divide 16 elements of 16 queries by totals, and write them as bf16 rows; the other arguments are int64.

    Args:
        _sums: address of float32 `[16, 16]`: elements, queries.
        _totals: address of float32 `[16]`.
        _target: address of the first row.
        _stride: bytes from row to row.
    """

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        sums, totals, target, stride = arguments
        vectors = Vectors(builder)
        total = vectors.load(totals)
        rows = [
            builder.fdiv(vectors.load(builder.add(sums, number(at * VECTOR_BYTES))), total)
            for at in range(LANES)
        ]
        turned = vectors.turned([builder.bitcast(row, INTS) for row in rows])
        for at, row in enumerate(turned):
            vectors.store(_bf16(builder, row), builder.add(target, builder.mul(stride, number(at))))
        return number(0)

    return types.int64(*[types.int64] * 4), generate


def _bf16(builder: Any, bits: Any) -> Any:
    """Round float32 bits to bf16 `[16]`, ties to even; NaN stays NaN."""
    sixteen = ints([16] * LANES)
    is_odd = builder.and_(builder.lshr(bits, sixteen), ints([1] * LANES))
    rounded = builder.add(builder.add(bits, ints([0x7FFF] * LANES)), is_odd)
    magnitude = builder.and_(bits, ints([0x7FFFFFFF] * LANES))
    is_nan = builder.icmp_unsigned(">", magnitude, ints([0x7F800000] * LANES))
    chosen = builder.select(is_nan, ints([0x7FC00000] * LANES), rounded)
    return builder.trunc(builder.lshr(chosen, sixteen), ir.VectorType(ir.IntType(16), LANES))
