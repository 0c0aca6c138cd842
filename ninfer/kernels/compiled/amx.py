"""Matrix tiles of processors that have AMX, and the softmax between two products of them. Writes LLVM code.

A tile is 16 rows of 64 bytes. A product adds `A B` to 16 x 16 float32: A is 16 x 32 bf16, B has 16 rows of 16 pairs, the
numbers 2 i and 2 i + 1 of its columns.
"""

from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

from ninfer.kernels.compiled.counted_loop import counted_loop

TILE: Final = 16
TILE_BYTES: Final = 1024

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_POINTER = _I8.as_pointer()
_VOID = ir.VoidType()
_FLOATS = ir.VectorType(ir.FloatType(), TILE)
_INTS = ir.VectorType(_I32, TILE)


def _tile_call(builder: Any, name: str, kinds: list[Any], arguments: list[Any]) -> None:
    function = get_or_insert_function(
        builder.module, ir.FunctionType(_VOID, kinds), f"llvm.x86.{name}"
    )
    builder.call(function, arguments)


def _number(tile: int) -> Any:
    return ir.Constant(_I8, tile)


def _int(value: int) -> Any:
    return ir.Constant(_I64, value)


def _load_tile(builder: Any, tile: int, address: Any, stride: Any) -> None:
    pointer = builder.inttoptr(address, _POINTER)
    _tile_call(builder, "tileloadd64", [_I8, _POINTER, _I64], [_number(tile), pointer, stride])


def _store_tile(builder: Any, tile: int, address: Any, stride: Any) -> None:
    pointer = builder.inttoptr(address, _POINTER)
    _tile_call(builder, "tilestored64", [_I8, _POINTER, _I64], [_number(tile), pointer, stride])


def _multiply(builder: Any, tile: int, a: int, b: int) -> None:
    _tile_call(builder, "tdpbf16ps", [_I8] * 3, [_number(tile), _number(a), _number(b)])


def _config(name: str) -> Callable[..., Any]:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        _tile_call(builder, name, [_POINTER], [builder.inttoptr(arguments[0], _POINTER)])
        return _int(0)

    return generate


@intrinsic
def store_tile_config(_context: Any, _address: Any) -> Any:
    """Write the thread's tile configuration to 64 bytes."""
    return types.int64(types.int64), _config("sttilecfg")


@intrinsic
def load_tile_config(_context: Any, _address: Any) -> Any:
    """Configure the thread's tiles from 64 bytes; zeros give them back."""
    return types.int64(types.int64), _config("ldtilecfg")


@intrinsic
def score_tiles(
    _context: Any,
    _keys: Any,
    _key_stride: Any,
    _queries: Any,
    _scores: Any,
    _count: Any,
    _dims: Any,
) -> Any:
    """Compute scores of 16 queries for `count` times 32 keys; all arguments are int64.

    Args:
        _keys: address of bf16 rows.
        _key_stride: bytes from key to key.
        _queries: address of tiles B, one after another: for each 32 dimensions.
        _scores: address of float32 `[keys, 16]`.
        _count: at least 1.
        _dims: 32 dimensions, how often; at least 1.
    """

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        keys, stride, queries, scores, count, dims = arguments
        half = builder.mul(stride, _int(TILE))

        def rows(at: Any) -> None:
            first = builder.add(keys, builder.mul(builder.mul(at, _int(2)), half))
            for tile in range(2):
                _tile_call(builder, "tilezero", [_I8], [_number(tile)])

            def step(dim: Any) -> None:
                offset = builder.mul(dim, _int(64))
                query = builder.add(queries, builder.mul(dim, _int(TILE_BYTES)))
                _load_tile(builder, 4, query, _int(64))
                _load_tile(builder, 2, builder.add(first, offset), stride)
                _load_tile(builder, 3, builder.add(builder.add(first, half), offset), stride)
                _multiply(builder, 0, 2, 4)
                _multiply(builder, 1, 3, 4)

            _loop(builder, dims, step)
            target = builder.add(scores, builder.mul(at, _int(2 * TILE_BYTES)))
            for tile in range(2):
                _store_tile(builder, tile, builder.add(target, _int(tile * TILE_BYTES)), _int(64))

        _loop(builder, count, rows)
        return _int(0)

    return types.int64(*[types.int64] * 6), generate


@intrinsic
def value_tiles(
    _context: Any, _values: Any, _value_stride: Any, _weights: Any, _sums: Any, _count: Any
) -> Any:
    """Add weighted values of 32 dimensions to the sums of 16 queries; all arguments are int64.

    Args:
        _values: address of bf16 `[32, 32]`: dimensions, keys.
        _value_stride: bytes to the same of the next 32 keys.
        _weights: address of tiles B, one for each 32 keys.
        _sums: address of float32 `[32, 16]`.
        _count: 32 keys, how often; at least 1.
    """

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        values, stride, weights, sums, count = arguments
        places = [sums, builder.add(sums, _int(TILE_BYTES))]
        for tile in range(2):
            _load_tile(builder, tile, places[tile], _int(64))

        def step(at: Any) -> None:
            first = builder.add(values, builder.mul(at, stride))
            _load_tile(
                builder, 4, builder.add(weights, builder.mul(at, _int(TILE_BYTES))), _int(64)
            )
            _load_tile(builder, 2, first, _int(64))
            _load_tile(builder, 3, builder.add(first, _int(TILE_BYTES)), _int(64))
            _multiply(builder, 0, 2, 4)
            _multiply(builder, 1, 3, 4)

        _loop(builder, count, step)
        for tile in range(2):
            _store_tile(builder, tile, places[tile], _int(64))
        return _int(0)

    return types.int64(*[types.int64] * 5), generate


def _loop(builder: Any, count: Any, body: Callable[[Any], None]) -> None:
    """Write `for at in range(count): body(at)`; at least one round."""
    before = builder.block
    inside, after = builder.append_basic_block("inside"), builder.append_basic_block("after")
    builder.branch(inside)
    builder.position_at_end(inside)
    at = builder.phi(_I64)
    at.add_incoming(_int(0), before)
    body(at)
    following = builder.add(at, _int(1))
    at.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), inside, after)
    builder.position_at_end(after)


@intrinsic
def soften(
    _context: Any,
    _scores: Any,
    _weights: Any,
    _facts: Any,
    _sums: Any,
    _pairs: Any,
    _dims: Any,
    _scale: Any,
) -> Any:
    """Turn scores of 16 queries into weights for `value_tiles`, relative to the largest score so far.

    Args:
        _scores: address of float32 `[keys, 16]`.
        _weights: where tiles B go, bf16 `[pairs, 16, 2]`.
        _facts: address of float32 `[2, 16]`: the largest score so far, the sum of weights so far; updated.
        _sums: address of float32 `[dims, 16]`, scaled down where the largest score grew.
        _pairs: of keys, int64.
        _dims: int64.
        _scale: of the scores, for powers of two; float32.
    """

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        scores, weights, facts, sums, pairs, dims, factor = arguments
        vectors = _Vectors(builder, factor)
        before = vectors.load(facts)

        def larger(at: Any, carried: list[Any]) -> list[Any]:
            address = vectors.row(scores, builder.mul(at, _int(2)))
            rows = [vectors.load(address), vectors.load(builder.add(address, _int(64)))]
            return [vectors.larger(row, old) for row, old in zip(rows, carried, strict=True)]

        largest = vectors.larger(*vectors.loop(pairs, [before, before], larger))
        vectors.store(largest, facts)
        shift = builder.fmul(largest, vectors.scale)
        shrink = vectors.power(before, shift)

        def scale_sums(at: Any, _carried: list[Any]) -> list[Any]:
            address = vectors.row(sums, at)
            vectors.store(builder.fmul(vectors.load(address), shrink), address)
            return []

        vectors.loop(dims, [], scale_sums)

        def weigh(at: Any, carried: list[Any]) -> list[Any]:
            address = vectors.row(scores, builder.mul(at, _int(2)))
            first = vectors.power(vectors.load(address), shift)
            second = vectors.power(vectors.load(builder.add(address, _int(64))), shift)
            vectors.store(vectors.pair(first, second), vectors.row(weights, at))
            totals = zip(carried, (first, second), strict=True)
            return [builder.fadd(total, value) for total, value in totals]

        total_at = builder.add(facts, _int(64))
        start = builder.fmul(vectors.load(total_at), shrink)
        totals = vectors.loop(pairs, [start, ir.Constant(_FLOATS, [0.0] * TILE)], weigh)
        vectors.store(builder.fadd(*totals), total_at)
        return _int(0)

    return types.int64(*[types.int64] * 6, types.float32), generate


class _Vectors:
    """Writes arithmetic of 16 float32."""

    def __init__(self, builder: Any, scale: Any) -> None:
        self._builder = builder
        module = builder.module
        self._fma = get_or_insert_function(
            module, ir.FunctionType(_FLOATS, [_FLOATS] * 3), f"llvm.fma.v{TILE}f32"
        )
        self._round = get_or_insert_function(
            module, ir.FunctionType(_FLOATS, [_FLOATS]), f"llvm.rint.v{TILE}f32"
        )
        empty = ir.Constant(_FLOATS, ir.Undefined)
        first = builder.insert_element(empty, scale, ir.Constant(_I32, 0))
        self.scale = builder.shuffle_vector(first, empty, _ints(0))

    def row(self, address: Any, index: Any) -> Any:
        return self._builder.add(address, self._builder.mul(index, _int(64)))

    def load(self, address: Any) -> Any:
        value = self._builder.load(self._builder.inttoptr(address, _FLOATS.as_pointer()))
        value.align = 4
        return value

    def store(self, value: Any, address: Any) -> None:
        pointer = self._builder.inttoptr(address, value.type.as_pointer())
        self._builder.store(value, pointer).align = 4

    def larger(self, a: Any, b: Any) -> Any:
        return self._builder.select(self._builder.fcmp_ordered(">", a, b), a, b)

    def power(self, scores: Any, shift: Any) -> Any:
        """Compute `2 ** (scores * scale - shift)`, at most 1."""
        builder = self._builder
        x = builder.call(self._fma, [scores, self.scale, builder.fneg(shift)])
        least = _floats(-126.0)
        x = builder.select(builder.fcmp_ordered("<", x, least), least, x)
        whole = builder.call(self._round, [x])
        rest = builder.fsub(x, whole)
        result = _floats(_POWERS[-1])
        for power in reversed(_POWERS[:-1]):
            result = builder.call(self._fma, [result, rest, _floats(power)])
        exponent = builder.add(builder.fptosi(whole, _INTS), _ints(127))
        return builder.fmul(result, builder.bitcast(builder.shl(exponent, _ints(23)), _FLOATS))

    def pair(self, low: Any, high: Any) -> Any:
        """Round to bf16 beside each other."""
        builder = self._builder
        rounded = [
            builder.add(builder.bitcast(value, _INTS), _ints(0x8000)) for value in (low, high)
        ]
        first = builder.lshr(rounded[0], _ints(16))
        return builder.or_(first, builder.and_(rounded[1], _ints(0xFFFF0000)))

    def loop(
        self, count: Any, start: list[Any], body: Callable[[Any, list[Any]], list[Any]]
    ) -> list[Any]:
        """Write `for at in range(count): values = body(at, values)`; at least one round."""
        return counted_loop(self._builder, (_int(0), count, 1), start, body)


_POWERS: Final = (1.0, 0.69314718, 0.24022651, 0.05550411, 0.00961813)
"""Of the series of 2 ** x: to 4e-5 between -1/2 and 1/2, and weights are rounded to bf16."""


def _ints(value: int) -> Any:
    return ir.Constant(_INTS, [value] * TILE)


def _floats(value: float) -> Any:
    return ir.Constant(_FLOATS, [value] * TILE)
