"""Products of matrix tiles by vectors, for processors with AVX512 but without AMX. Writes LLVM code.

A row of A is spread pair by pair over a vector that meets the row of B of that pair: 16 sums of 16 numbers stay in registers.
With AVX512_BF16 that is one instruction, otherwise two products of float32. A sum's arithmetic depends only on the order of
its pairs.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from llvmlite import ir
from numba.core.cgutils import get_or_insert_function

from ninfer.kernels.compiled.counted_loop import counted_loop
from ninfer.kernels.compiled.tile_shape import TILE, TILE_BYTES
from ninfer.kernels.compiled.vectors import (
    FLOATS,
    INTS,
    LANES,
    VECTOR_BYTES,
    Vectors,
    floats,
    ints,
    number,
)

_I32 = ir.IntType(32)
_ROW_BYTES: Final = 64


class _Bf16(ir.Type):  # type: ignore[misc] # llvmlite is untyped
    """The type of a bf16 number, which llvmlite does not know."""

    def _to_string(self) -> str:
        return "bfloat"


_HALVES = ir.VectorType(_Bf16(), 2 * LANES)


class VectorTiles:
    """Writes products.

    Args:
        builder: where instructions are written.
        has_dots: whether the processor multiplies pairs of bf16 by itself.
    """

    def __init__(self, builder: Any, *, has_dots: bool) -> None:
        """Declare what is called."""
        self._builder = builder
        self._vectors = Vectors(builder)
        self._add_dots = self._dots() if has_dots else None

    def write_scores(self, arguments: Sequence[Any]) -> None:
        """See `tile_products.score_tiles`."""
        builder = self._builder
        keys, stride, queries, scores, count, dims = arguments

        def rows(at: Any, _carried: list[Any]) -> list[Any]:
            first = builder.add(keys, builder.mul(at, builder.mul(stride, number(TILE))))
            fours = [
                builder.add(first, builder.mul(stride, number(row))) for row in range(0, TILE, 4)
            ]
            steps = [builder.mul(stride, number(row)) for row in range(4)]

            def step(pair: Any, sums: list[Any]) -> list[Any]:
                offset = builder.mul(pair, number(4))
                starts = [builder.add(four, offset) for four in fours]
                own = [builder.add(start, step) for start in starts for step in steps]
                return self._product(own, self._vectors.row(queries, pair), sums)

            pairs = builder.mul(dims, number(LANES))
            sums = counted_loop(builder, (number(0), pairs, 1), [floats(0.0)] * TILE, step)
            self._store(sums, builder.add(scores, builder.mul(at, number(TILE_BYTES))))
            return []

        counted_loop(builder, (number(0), builder.mul(count, number(2)), 1), [], rows)

    def write_values(self, arguments: Sequence[Any]) -> None:
        """See `tile_products.value_tiles`."""
        builder = self._builder
        values, stride, weights, sums, count = arguments
        for tile in range(2):
            first = builder.add(values, number(tile * TILE_BYTES))
            place = builder.add(sums, number(tile * TILE_BYTES))

            def group(at: Any, carried: list[Any], first: Any = first) -> list[Any]:
                start = builder.add(first, builder.mul(at, stride))
                weight = builder.add(weights, builder.mul(at, number(TILE_BYTES)))

                def step(pair: Any, inner: list[Any]) -> list[Any]:
                    top = builder.add(start, builder.mul(pair, number(4)))
                    own = [builder.add(top, number(row * _ROW_BYTES)) for row in range(TILE)]
                    return self._product(own, self._vectors.row(weight, pair), inner)

                return counted_loop(builder, (number(0), number(LANES), 1), carried, step)

            before = [
                self._vectors.load(builder.add(place, number(row * VECTOR_BYTES)))
                for row in range(TILE)
            ]
            self._store(counted_loop(builder, (number(0), count, 1), before, group), place)

    def _product(self, pairs: Sequence[Any], b: Any, sums: Sequence[Any]) -> list[Any]:
        """Add the products of 16 pairs and a row of B, all given by their addresses.

        Loops of it are not unrolled: with all 16 rows of B, decoded instructions no longer fit (measured, a third slower).
        """
        multiply = self._multiplier(self._vectors.load(b, INTS))
        return [
            multiply(self._spread_pair(pair), total)
            for pair, total in zip(pairs, sums, strict=True)
        ]

    def _spread_pair(self, address: Any) -> Any:
        word = self._builder.load(self._builder.inttoptr(address, _I32.as_pointer()))
        word.align = 2
        return self._vectors.spread(word)

    def _multiplier(self, b: Any) -> Callable[[Any, Any], Any]:
        """Return what adds the products of pairs with those of a row of B to a sum."""
        builder, vectors, add_dots = self._builder, self._vectors, self._add_dots
        if add_dots is not None:
            halves = builder.bitcast(b, _HALVES)
            return lambda a, total: builder.call(
                add_dots, [total, builder.bitcast(a, _HALVES), halves]
            )
        low, high = self._parts(b)

        def multiply(a: Any, total: Any) -> Any:
            a_low, a_high = self._parts(a)
            return vectors.fma(a_high, high, vectors.fma(a_low, low, total))

        return multiply

    def _parts(self, pairs: Any) -> tuple[Any, Any]:
        """Return both numbers of pairs as float32."""
        builder = self._builder
        low = builder.shl(pairs, ints([16] * LANES))
        high = builder.and_(pairs, ints([0xFFFF0000] * LANES))
        return builder.bitcast(low, FLOATS), builder.bitcast(high, FLOATS)

    def _store(self, sums: Sequence[Any], place: Any) -> None:
        for row, total in enumerate(sums):
            self._vectors.store(total, self._builder.add(place, number(row * VECTOR_BYTES)))

    def _dots(self) -> Any:
        return get_or_insert_function(
            self._builder.module,
            ir.FunctionType(FLOATS, [FLOATS, _HALVES, _HALVES]),
            "llvm.x86.avx512bf16.dpbf16ps.512",
        )
