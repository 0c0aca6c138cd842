"""The softmax between two products of matrix tiles: scores of 16 queries become weights. Writes LLVM code.

Weights are relative to a shift that follows the largest score only where it must: powers of two keep their precision
far from one, so a largest score that grows a little changes nothing, and scores are read once.
"""

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ninfer.kernels.compiled.counted_loop import counted_loop
from ninfer.kernels.compiled.vectors import (
    I64,
    LANES,
    VECTOR_BYTES,
    Vectors,
    floats,
    ints,
    number,
)

HIDDEN_SCORE: Final = -1e30
"""Of keys that a query does not look at. Not infinite: all keys of a block may be hidden from a query."""
_LEAST_SHIFT: Final = -1e20
"""Far above that of hidden keys, so that they weigh nothing where nothing else is."""
ALL_LANES: Final = (1 << LANES) - 1
_MOST: Final = 2.0**40
"""Sum of the weights of one block of keys. Above it, the shift is raised."""
_TOGETHER: Final = 4


@intrinsic
def hide(_context: Any, _scores: Any, _first: Any) -> Any:
    """Let queries before number `_first` not see one key.

    Args:
        _scores: address of float32 `[16]`, of that key.
        _first: int64; 16 and more for all.
    """

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        scores, first = arguments
        vectors = Vectors(builder)
        limit = vectors.spread(builder.trunc(first, ir.IntType(32)))
        is_hidden = builder.icmp_signed("<", ints(range(LANES)), limit)
        shown = builder.select(is_hidden, floats(HIDDEN_SCORE), vectors.load(scores))
        vectors.store(shown, scores)
        return number(0)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def raise_shift(
    _context: Any,
    _scores: Any,
    _facts: Any,
    _sums: Any,
    _pairs: Any,
    _dims: Any,
    _scale: Any,
    _lanes: Any,
) -> Any:
    """Raise the shift of some queries to their largest score, and scale down what was summed.

    Args:
        _scores: address of float32 `[keys, 16]`.
        _facts: address of float32 `[2, 16]`: the shift, the sum of weights so far; updated.
        _sums: address of float32 `[dims, 16]`; updated.
        _pairs: of keys, int64.
        _dims: int64.
        _scale: of the scores, for powers of two; float32, positive.
        _lanes: bits of the queries, int64.
    """

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        scores, facts, sums, pairs, dims, scale, lanes = arguments
        vectors = Vectors(builder)
        bits = builder.trunc(lanes, ir.IntType(LANES))
        chosen = builder.bitcast(bits, ir.VectorType(ir.IntType(1), LANES))

        def larger(at: Any, carried: list[Any]) -> list[Any]:
            address = vectors.row(scores, builder.mul(at, number(2)))
            rows = [vectors.load(address), vectors.load(builder.add(address, number(VECTOR_BYTES)))]
            return [vectors.larger(row, old) for row, old in zip(rows, carried, strict=True)]

        start = [floats(-3e38)] * 2
        largest = vectors.larger(*counted_loop(builder, (number(0), pairs, 1), start, larger))
        before = vectors.load(facts)
        reached = vectors.larger(builder.fmul(largest, vectors.spread(scale)), floats(_LEAST_SHIFT))
        reached = vectors.larger(before, reached)
        after = builder.select(chosen, reached, before)
        shrink = vectors.power(builder.fsub(before, after))
        shrink = builder.select(chosen, shrink, floats(1.0))
        vectors.store(after, facts)
        total_at = builder.add(facts, number(VECTOR_BYTES))
        vectors.store(builder.fmul(vectors.load(total_at), shrink), total_at)

        def scale_sums(at: Any, _carried: list[Any]) -> list[Any]:
            address = vectors.row(sums, at)
            vectors.store(builder.fmul(vectors.load(address), shrink), address)
            return []

        counted_loop(builder, (number(0), dims, 1), [], scale_sums)
        return number(0)

    return types.int64(*[types.int64] * 5, types.float32, types.int64), generate


@intrinsic
def soften(
    _context: Any, _scores: Any, _weights: Any, _facts: Any, _pairs: Any, _scale: Any
) -> Any:
    """Turn scores of 16 queries into weights for `value_tiles`.

    Args:
        _scores: address of float32 `[keys, 16]`.
        _weights: where tiles B go, bf16 `[pairs, 16, 2]`.
        _facts: address of float32 `[2, 16]`: the shift, the sum of weights so far; updated if the result is 0.
        _pairs: of keys, int64, a multiple of 4.
        _scale: of the scores, for powers of two; float32.

    Returns:
        Bits of the queries whose shift must be raised first; then nothing but `_weights` was changed.
    """

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        scores, weights, facts, pairs, scale = arguments
        vectors = Vectors(builder)
        factor = vectors.spread(scale)
        down = builder.fneg(vectors.load(facts))

        def weigh(at: Any, carried: list[Any]) -> list[Any]:
            totals = carried
            for pair in range(_TOGETHER):
                index = builder.add(at, number(pair))
                address = vectors.row(scores, builder.mul(index, number(2)))
                both = []
                for key in range(2):
                    score = vectors.load(builder.add(address, number(key * VECTOR_BYTES)))
                    both.append(vectors.power(vectors.fma(score, factor, down)))
                vectors.store(_bf16_pairs(builder, *both), vectors.row(weights, index))
                totals = [builder.fadd(total, w) for total, w in zip(totals, both, strict=True)]
            return totals

        start = [floats(0.0)] * 2
        bounds = (number(0), pairs, _TOGETHER)
        own = builder.fadd(*counted_loop(builder, bounds, start, weigh))
        is_large = builder.fcmp_ordered(">", own, floats(_MOST))
        large = builder.zext(builder.bitcast(is_large, ir.IntType(LANES)), I64)
        total_at = builder.add(facts, number(VECTOR_BYTES))
        before = vectors.load(total_at)
        fits = builder.icmp_signed("==", large, number(0))
        total = builder.select(fits, builder.fadd(before, own), before)
        vectors.store(total, total_at)
        return large

    return types.int64(*[types.int64] * 4, types.float32), generate


@intrinsic
def fold(
    _context: Any, _sums: Any, _facts: Any, _part_sums: Any, _part_facts: Any, _dims: Any
) -> Any:
    """Add what one part of the keys gave 16 queries to what earlier parts gave; all arguments are int64.

    Args:
        _sums: address of float32 `[dims, 16]`; updated.
        _facts: address of float32 `[2, 16]`: the shift, the sum of weights; updated.
        _part_sums: of the part alone.
        _part_facts: of the part alone.
        _dims: at least 1.
    """

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        sums, facts, part_sums, part_facts, dims = arguments
        vectors = Vectors(builder)
        before, own = vectors.load(facts), vectors.load(part_facts)
        after = vectors.larger(before, own)

        def factor(shift: Any) -> Any:
            # Exactly one where nothing changes: an error that is the same in every part would add up.
            is_same = builder.fcmp_ordered("==", shift, after)
            return builder.select(is_same, floats(1.0), vectors.power(builder.fsub(shift, after)))

        kept, share = factor(before), factor(own)
        # What gives nothing does not even change the sign of a zero.
        has_share = builder.fcmp_ordered(">", share, floats(0.0))

        def add(target: Any, addend: Any) -> None:
            old = vectors.load(target)
            total = vectors.fma(vectors.load(addend), share, builder.fmul(old, kept))
            vectors.store(builder.select(has_share, total, old), target)

        vectors.store(after, facts)
        total_at, part_total_at = (
            builder.add(address, number(VECTOR_BYTES)) for address in (facts, part_facts)
        )
        add(total_at, part_total_at)

        def add_row(at: Any, _carried: list[Any]) -> list[Any]:
            add(vectors.row(sums, at), vectors.row(part_sums, at))
            return []

        counted_loop(builder, (number(0), dims, 1), [], add_row)
        return number(0)

    return types.int64(*[types.int64] * 5), generate


def _bf16_pairs(builder: Any, low: Any, high: Any) -> Any:
    """Round positive numbers to bf16, beside each other."""
    half = ints([0x8000] * LANES)
    first, second = (builder.add(builder.bitcast(value, half.type), half) for value in (low, high))
    return builder.or_(
        builder.lshr(first, ints([16] * LANES)), builder.and_(second, ints([0xFFFF0000] * LANES))
    )
