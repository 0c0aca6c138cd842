"""Products of matrix tiles by AMX. Writes LLVM code."""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core.cgutils import get_or_insert_function

from ninfer.kernels.compiled.counted_loop import counted_loop
from ninfer.kernels.compiled.tile_shape import TILE, TILE_BYTES

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


def write_config(builder: Any, name: str, address: Any) -> None:
    """Call `sttilecfg` or `ldtilecfg`."""
    _tile_call(builder, name, [_POINTER], [builder.inttoptr(address, _POINTER)])


def write_scores(builder: Any, arguments: Sequence[Any]) -> None:
    """See `tile_products.score_tiles`."""
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


def write_values(builder: Any, arguments: Sequence[Any]) -> None:
    """See `tile_products.value_tiles`."""
    values, stride, weights, sums, count = arguments
    places = [sums, builder.add(sums, _int(TILE_BYTES))]
    for tile in range(2):
        _load_tile(builder, tile, places[tile], _int(64))

    def step(at: Any) -> None:
        first = builder.add(values, builder.mul(at, stride))
        weight = builder.add(weights, builder.mul(at, _int(TILE_BYTES)))
        _load_tile(builder, 4, weight, _int(64))
        _load_tile(builder, 2, first, _int(64))
        _load_tile(builder, 3, builder.add(first, _int(TILE_BYTES)), _int(64))
        _multiply(builder, 0, 2, 4)
        _multiply(builder, 1, 3, 4)

    _loop(builder, count, step)
    for tile in range(2):
        _store_tile(builder, tile, places[tile], _int(64))


def _loop(builder: Any, count: Any, body: Callable[[Any], None]) -> None:
    """Write `for at in range(count): body(at)`; at least one round."""

    def rounds(at: Any, _values: list[Any]) -> list[Any]:
        body(at)
        return []

    counted_loop(builder, (_int(0), count, 1), [], rounds)
