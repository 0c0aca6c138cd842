"""Products of matrix tiles inside compiled functions, by what the processor has for them."""

from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import intrinsic

from ninfer.kernels.compiled.amx_tiles import write_config
from ninfer.kernels.compiled.amx_tiles import write_scores as write_amx_scores
from ninfer.kernels.compiled.amx_tiles import write_values as write_amx_values
from ninfer.kernels.compiled.matrix_unit import matrix_unit
from ninfer.kernels.compiled.vector_tiles import VectorTiles
from ninfer.kernels.compiled.vectors import number


@intrinsic
def save_tiles(_context: Any, _address: Any) -> Any:
    """Write how the thread's AMX tiles are configured to 64 bytes; does nothing where others multiply."""
    return types.int64(types.int64), _config("sttilecfg")


@intrinsic
def configure_tiles(_context: Any, _address: Any) -> Any:
    """Configure the thread's AMX tiles from 64 bytes, zeros to give them back; does nothing where others multiply."""
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
        if matrix_unit() == "amx":
            write_amx_scores(builder, arguments)
        else:
            _vector_tiles(builder).write_scores(arguments)
        return number(0)

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
        if matrix_unit() == "amx":
            write_amx_values(builder, arguments)
        else:
            _vector_tiles(builder).write_values(arguments)
        return number(0)

    return types.int64(*[types.int64] * 5), generate


def _vector_tiles(builder: Any) -> VectorTiles:
    return VectorTiles(builder, has_dots=matrix_unit() == "avx512_bf16")


def _config(name: str) -> Callable[..., Any]:
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        if matrix_unit() == "amx":
            write_config(builder, name, arguments[0])
        return number(0)

    return generate
