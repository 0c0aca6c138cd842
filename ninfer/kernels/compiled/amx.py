"""Matrix tiles of processors that have AMX, and products of them. Writes LLVM code.

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

_I8, _I64 = ir.IntType(8), ir.IntType(64)
_POINTER = _I8.as_pointer()
_VOID = ir.VoidType()


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

    def rounds(at: Any, _values: list[Any]) -> list[Any]:
        body(at)
        return []

    counted_loop(builder, (_int(0), count, 1), [], rounds)
