"""The inner loops over a recurrent state: read it, change it. Writes LLVM code, so that sums stay in registers.

Sums go over keys in their order.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

from ninfer.kernels.compiled.counted_loop import counted_loop
from ninfer.kernels.compiled.panels import HALF_PANEL

BESIDE: Final = 4
"""Vectors of one key that are in registers together, where `value_dim` has so many left."""

_I64 = ir.IntType(64)
_FLOAT = ir.FloatType()
_FLOATS = ir.VectorType(_FLOAT, HALF_PANEL)


@intrinsic
def read_state(
    _context: Any,
    _state: Any,
    _keys: Any,
    _queries: Any,
    _read_key: Any,
    _read_query: Any,
    _key_dim: Any,
    _value_dim: Any,
) -> Any:
    """Compute `S^T k` and `S^T q`; all arguments are int64.

    Args:
        _state: address of S, float32 `[key_dim, value_dim]`.
        _keys: address of k, float32 `[key_dim]`.
        _queries: of q, alike.
        _read_key: where `S^T k` goes, float32 `[value_dim]`.
        _read_query: where `S^T q` goes.
        _key_dim: at least 1.
        _value_dim: a multiple of 8.
    """

    def write(tile: "_Tile", beside: int, arguments: Any, column: Any) -> None:
        state, keys, queries, read_key, read_query, key_dim, value_dim = arguments
        zero = ir.Constant(_FLOATS, [0.0] * HALF_PANEL)

        def body(at: Any, sums: list[Any]) -> list[Any]:
            factors = [tile.spread(tile.at(address, at)) for address in (keys, queries)]
            row = tile.at(state, tile.builder.add(tile.builder.mul(at, value_dim), column))
            values = [tile.load(row, part) for part in range(beside)]
            return [
                tile.fma(value, factor, sums[which * beside + part])
                for which, factor in enumerate(factors)
                for part, value in enumerate(values)
            ]

        sums = tile.loop(key_dim, [zero] * (2 * beside), body)
        for which, address in enumerate((read_key, read_query)):
            for part in range(beside):
                tile.store(tile.at(address, column), part, sums[which * beside + part])

    return types.int64(*[types.int64] * 7), _generator(write)


@intrinsic
def update_state(
    _context: Any,
    _state: Any,
    _keys: Any,
    _change: Any,
    _decay: Any,
    _key_dim: Any,
    _value_dim: Any,
) -> Any:
    """Compute `S <- decay S + k change^T`; arguments as of `read_state`, `_decay` the address of a float32."""

    def write(tile: "_Tile", beside: int, arguments: Any, column: Any) -> None:
        state, keys, change, decay, key_dim, value_dim = arguments
        factor = tile.spread(decay)
        changes = [tile.load(tile.at(change, column), part) for part in range(beside)]

        def body(at: Any, _sums: list[Any]) -> list[Any]:
            key = tile.spread(tile.at(keys, at))
            row = tile.at(state, tile.builder.add(tile.builder.mul(at, value_dim), column))
            for part, value in enumerate(changes):
                kept = tile.builder.fmul(tile.load(row, part), factor)
                tile.store(row, part, tile.fma(key, value, kept))
            return []

        tile.loop(key_dim, [], body)

    return types.int64(*[types.int64] * 6), _generator(write)


def _generator(write: Callable[..., None]) -> Callable[..., Any]:
    """Go over the columns of a state: `BESIDE` vectors at once, then single ones."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        tile = _Tile(builder)
        value_dim = arguments[-1]
        wide = ir.Constant(_I64, BESIDE * HALF_PANEL)
        whole = builder.mul(builder.udiv(value_dim, wide), wide)
        start = ir.Constant(_I64, 0)
        for beside, end in ((BESIDE, whole), (1, value_dim)):
            body = partial(write, tile, beside, arguments)
            tile.columns(start, end, beside * HALF_PANEL, body)
            start = whole
        return ir.Constant(_I64, 0)

    return generate


class _Tile:
    """Writes loops and vectors."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self._fma = get_or_insert_function(
            builder.module, ir.FunctionType(_FLOATS, [_FLOATS] * 3), f"llvm.fma.v{HALF_PANEL}f32"
        )

    def columns(self, start: Any, end: Any, step: int, body: Callable[[Any], None]) -> None:
        """Write `for at in range(start, end, step): body(at)`."""
        builder = self.builder
        before = builder.block
        check, inside, after = (builder.append_basic_block(name) for name in ("check", "in", "out"))
        builder.branch(check)
        builder.position_at_end(check)
        at = builder.phi(_I64)
        at.add_incoming(start, before)
        builder.cbranch(builder.icmp_signed("<", at, end), inside, after)
        builder.position_at_end(inside)
        body(at)
        at.add_incoming(builder.add(at, ir.Constant(_I64, step)), builder.block)
        builder.branch(check)
        builder.position_at_end(after)

    def loop(
        self, count: Any, sums: list[Any], body: Callable[[Any, list[Any]], list[Any]]
    ) -> list[Any]:
        """Write `for at in range(count): sums = body(at, sums)`; at least one round."""
        return counted_loop(self.builder, (ir.Constant(_I64, 0), count, 1), sums, body)

    def at(self, address: Any, index: Any) -> Any:
        """Return the address of float number `index`."""
        return self.builder.add(address, self.builder.mul(index, ir.Constant(_I64, 4)))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.builder.call(self._fma, [a, b, c])

    def spread(self, address: Any) -> Any:
        """Load a number into all places of a vector."""
        builder = self.builder
        number = builder.load(builder.inttoptr(address, _FLOAT.as_pointer()))
        empty = ir.Constant(_FLOATS, ir.Undefined)
        first = builder.insert_element(empty, number, ir.Constant(ir.IntType(32), 0))
        places = ir.Constant(ir.VectorType(ir.IntType(32), HALF_PANEL), [0] * HALF_PANEL)
        return builder.shuffle_vector(first, empty, places)

    def load(self, address: Any, part: int) -> Any:
        """Load vector number `part` from an address."""
        value = self.builder.load(self._vector(address, part))
        value.align = 4
        return value

    def store(self, address: Any, part: int, value: Any) -> None:
        self.builder.store(value, self._vector(address, part)).align = 4

    def _vector(self, address: Any, part: int) -> Any:
        at = self.builder.add(address, ir.Constant(_I64, part * HALF_PANEL * 4))
        return self.builder.inttoptr(at, _FLOATS.as_pointer())
