"""Memory by address inside compiled functions: numbers of eight bytes, calls, arrays. Knows nothing about kernels.

Compiled functions get addresses, not arrays: a table of integers describes a whole step and costs nothing to pass.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

_I32 = ir.IntType(32)
_I64 = ir.IntType(64)


@intrinsic
def load_int(_context: Any, _address: Any, _index: Any) -> Any:
    """Read the int64 number `index` of the table at `address`."""

    def generate(_generator: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load(_element(builder, arguments, _I64))

    return types.int64(types.int64, types.int64), generate


@intrinsic
def load_float(_context: Any, _address: Any, _index: Any) -> Any:
    """Read the float64 number `index` of the table at `address`."""

    def generate(_generator: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load(_element(builder, arguments, ir.DoubleType()))

    return types.float64(types.int64, types.int64), generate


@intrinsic
def take_number(_context: Any, _address: Any) -> Any:
    """Count the int64 at an address up, and return what it was; no two threads get the same."""

    def generate(_generator: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], _I64.as_pointer())
        return builder.atomic_rmw("add", place, ir.Constant(_I64, 1), "monotonic")

    return types.int64(types.int64), generate


def _element(builder: Any, arguments: Any, kind: Any) -> Any:
    address, index = arguments
    at = builder.add(address, builder.mul(index, ir.Constant(_I64, 8)))
    return builder.inttoptr(at, kind.as_pointer())


@intrinsic
def address_of(_context: Any, _pointer: Any) -> Any:
    """Return an untyped pointer as a number."""

    def generate(_generator: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(arguments[0], _I64)

    return types.int64(types.voidptr), generate


@intrinsic
def float32_at(_context: Any, _address: Any) -> Any:
    """Return an address as a pointer to float32, for `numba.carray`."""
    return types.CPointer(types.float32)(types.int64), _as_pointer


@intrinsic
def uint16_at(_context: Any, _address: Any) -> Any:
    """Return an address as a pointer to uint16, for `numba.carray`."""
    return types.CPointer(types.uint16)(types.int64), _as_pointer


@intrinsic
def int32_at(_context: Any, _address: Any) -> Any:
    """Return an address as a pointer to int32, for `numba.carray`."""
    return types.CPointer(types.int32)(types.int64), _as_pointer


@intrinsic
def int64_at(_context: Any, _address: Any) -> Any:
    """Return an address as a pointer to int64, for `numba.carray`."""
    return types.CPointer(types.int64)(types.int64), _as_pointer


def _as_pointer(generator: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return builder.inttoptr(arguments[0], generator.get_value_type(signature.return_type))


@intrinsic
def bits_of(_context: Any, _value: Any) -> Any:
    """Return the bits of a float32 as int32."""

    def generate(_generator: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], _I32)

    return types.int32(types.float32), generate


@intrinsic
def float_of_bits(_context: Any, _bits: Any) -> Any:
    """Return the float32 of int32 bits."""

    def generate(_generator: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@intrinsic
def float_of_bf16(_context: Any, _bits: Any) -> Any:
    """Return the float32 of bf16 bits."""

    def generate(_generator: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        wide = builder.shl(builder.zext(arguments[0], _I32), ir.Constant(_I32, 16))
        return builder.bitcast(wide, ir.FloatType())

    return types.float32(types.uint16), generate


@intrinsic
def bf16_of_float(_context: Any, _value: Any) -> Any:
    """Round a float32 to the nearest bf16, ties to even; NaN stays NaN."""

    def generate(_generator: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        bits = builder.bitcast(arguments[0], _I32)
        high = builder.lshr(bits, ir.Constant(_I32, 16))
        is_odd = builder.and_(high, ir.Constant(_I32, 1))
        rounded = builder.add(builder.add(bits, ir.Constant(_I32, 0x7FFF)), is_odd)
        rounded = builder.lshr(rounded, ir.Constant(_I32, 16))
        is_nan = builder.fcmp_unordered("uno", arguments[0], arguments[0])
        chosen = builder.select(is_nan, ir.Constant(_I32, 0x7FC0), rounded)
        return builder.trunc(chosen, ir.IntType(16))

    return types.uint16(types.float32), generate


@intrinsic
def fused_multiply_add(_context: Any, _a: Any, _b: Any, _c: Any) -> Any:
    """Compute `a * b + c` in float32 with one rounding."""

    def generate(_generator: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FloatType()
        function = get_or_insert_function(
            builder.module, ir.FunctionType(kind, [kind] * 3), "llvm.fma.f32"
        )
        return builder.call(function, arguments)

    return types.float32(types.float32, types.float32, types.float32), generate


@intrinsic
def call_op(
    _context: Any, _function: Any, _op: Any, _header: Any, _thread: Any, _threads: Any
) -> Any:
    """Call an operation by address: `function(op, header, thread, num_threads)`."""

    def generate(_generator: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_I64] * 4)
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])
        return ir.Constant(_I64, 0)

    return types.int64(*[types.int64] * 5), generate


@intrinsic
def call_for_int(_context: Any, _function: Any) -> Any:
    """Call a C function without arguments that returns an int."""

    def generate(_generator: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_I32, [])
        result = builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [])
        return builder.sext(result, _I64)

    return types.int64(types.int64), generate


@intrinsic
def call_for_nothing(_context: Any, _function: Any) -> Any:
    """Call a C function without arguments and result."""

    def generate(_generator: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [])
        return ir.Constant(_I64, 0)

    return types.int64(types.int64), generate
