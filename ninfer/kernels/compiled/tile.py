"""The inner loop of compiled products: a few rows times a few panels, all sums in registers. Writes LLVM code.

Every output of every row is the sum of its products in the order of the inputs, whatever the shape of the tile. So a
row's result does not depend on the rows beside it, nor on how panels are shared out among threads.
"""

from collections.abc import Sequence
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core.cgutils import get_or_insert_function
from numba.extending import intrinsic

from ninfer.kernels.compiled.counted_loop import counted_loop
from ninfer.kernels.compiled.panels import HALF_PANEL, PANEL, PanelFormat
from ninfer.kernels.weight import GROUP

FORMATS: Final[tuple[PanelFormat, ...]] = ("bf16", "int8", "int4")
"""A format's number inside compiled code is its index."""
CODE_BYTES: Final = {"bf16": 2 * PANEL, "int8": PANEL, "int4": HALF_PANEL}
"""Bytes of one input's weights in a panel."""

_I64 = ir.IntType(64)
_FLOATS = ir.VectorType(ir.FloatType(), HALF_PANEL)
_INTS = ir.VectorType(ir.IntType(32), HALF_PANEL)
_SHORTS = ir.VectorType(ir.IntType(16), HALF_PANEL)
_BYTES = ir.VectorType(ir.IntType(8), HALF_PANEL)
_HALF_EXPONENT: Final = 2.0**112
"""float16 bits moved to the place of float32's are this much too small."""


BESIDE: Final = {
    "bf16": {1: 4, 2: 3, 3: 2, 4: 1},
    "int8": {1: 4, 2: 3, 3: 2, 4: 1},
    "int4": {1: 2, 2: 2, 3: 2, 4: 1},
}
"""By rows, panels at once: enough sums to keep the multipliers busy, not more than fit the registers."""


@intrinsic(prefer_literal=True)
def multiply_tile(
    _context: Any,
    code: Any,
    _rows: Any,
    _panels: Any,
    _x: Any,
    _x_stride: Any,
    _codes: Any,
    _scales: Any,
    _num_inputs: Any,
    _y: Any,
    _y_stride: Any,
    _adds: Any,
) -> Any:
    """Compute `panels` panels of `rows` rows; all arguments are int64, strides in bytes.

    Args:
        code: index into `FORMATS`; a literal.
        _rows: 1 to 4.
        _panels: panels beside each other: 1, or what `BESIDE` says for so many rows.
        _x: address of the first row, float32.
        _x_stride: from row to row.
        _codes: address of the first panel's codes.
        _scales: address of the first panel's scales.
        _num_inputs: at least 1; for int4 a multiple of 32.
        _y: address of the first output of the first row, float32.
        _y_stride: from row to row.
        _adds: 1 to add to what is there, 0 to replace it.
    """
    if not isinstance(code, types.IntegerLiteral):
        return None
    panel_format = FORMATS[code.literal_value]

    def generate(_generator: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        _, rows, panels, *rest = arguments
        shape = builder.add(builder.mul(rows, _int(8)), panels)
        done = builder.append_basic_block("done")
        switch = builder.switch(shape, done)
        shapes = BESIDE[panel_format].items()
        for number, beside in sorted({*shapes, *((number, 1) for number, _ in shapes)}):
            block = builder.append_basic_block("tile")
            switch.add_case(_int(8 * number + beside), block)
            builder.position_at_end(block)
            _Tile(builder, panel_format, number, beside, rest).write()
            builder.branch(done)
        builder.position_at_end(done)
        return _int(0)

    return types.int64(code, *[types.int64] * 10), generate


class _Tile:
    """Writes one tile."""

    def __init__(
        self,
        builder: Any,
        panel_format: PanelFormat,
        rows: int,
        panels: int,
        arguments: Sequence[Any],
    ) -> None:
        self._builder = builder
        self._format = panel_format
        self._rows = rows
        self._panels = panels
        (
            self._x,
            self._x_stride,
            self._codes,
            self._scales,
            self._num_inputs,
            self._y,
            self._y_stride,
            self._adds,
        ) = arguments
        self._fma = get_or_insert_function(
            builder.module,
            ir.FunctionType(_FLOATS, [_FLOATS] * 3),
            f"llvm.fma.v{HALF_PANEL}f32",
        )
        self._code_stride = builder.mul(self._num_inputs, _int(CODE_BYTES[panel_format]))
        scale_bytes = {"bf16": 0, "int8": 4 * PANEL, "int4": 4 * PANEL // GROUP}[panel_format]
        self._scale_stride = builder.mul(self._num_inputs, _int(scale_bytes))
        if panel_format == "int8":
            self._scale_stride = _int(scale_bytes)

    def write(self) -> None:
        sums: list[Any] = [ir.Constant(_FLOATS, [0.0] * HALF_PANEL)] * (
            2 * self._rows * self._panels
        )
        if self._format == "int4":
            sums = counted_loop(
                self._builder, (_int(0), self._num_inputs, GROUP), sums, self._group
            )
        else:
            sums = counted_loop(self._builder, (_int(0), self._num_inputs, 1), sums, self._input)
        self._store(sums)

    def _input(self, at: Any, sums: Sequence[Any]) -> list[Any]:
        """One input: its weights as they are."""
        return self._accumulate(
            at, sums, [self._weights(panel, at) for panel in range(self._panels)]
        )

    def _group(self, at: Any, sums: Sequence[Any]) -> list[Any]:
        """32 inputs that share scales and minima."""
        builder = self._builder
        offset = builder.mul(builder.udiv(at, _int(GROUP)), _int(4 * PANEL))
        grids = [
            [
                self._half(
                    builder.add(self._panel(self._scales, self._scale_stride, panel), offset), part
                )
                for part in range(4)
            ]
            for panel in range(self._panels)
        ]

        def one(inner: Any, inner_sums: Sequence[Any]) -> list[Any]:
            weights = []
            for panel, (low, high, low_minimum, high_minimum) in enumerate(grids):
                first, second = self._weights(panel, inner)
                weights.append((
                    builder.call(self._fma, [first, low, low_minimum]),
                    builder.call(self._fma, [second, high, high_minimum]),
                ))
            return self._accumulate(inner, inner_sums, weights)

        return counted_loop(builder, (at, builder.add(at, _int(GROUP)), 1), sums, one)

    def _accumulate(
        self, at: Any, sums: Sequence[Any], weights: Sequence[tuple[Any, Any]]
    ) -> list[Any]:
        builder = self._builder
        inputs = []
        for row in range(self._rows):
            address = builder.add(self._row(self._x, self._x_stride, row), builder.mul(at, _int(4)))
            number = builder.load(builder.inttoptr(address, ir.FloatType().as_pointer()))
            inputs.append(_spread(builder, number))
        return [
            builder.call(
                self._fma, [inputs[row], halves[half], sums[self._index(panel, row, half)]]
            )
            for panel, halves in enumerate(weights)
            for row in range(self._rows)
            for half in range(2)
        ]

    def _index(self, panel: int, row: int, half: int) -> int:
        return (panel * self._rows + row) * 2 + half

    def _weights(self, panel: int, at: Any) -> tuple[Any, Any]:
        """Load the 16 weights of an input in a panel; of int4 and int8 the codes."""
        builder = self._builder
        address = builder.add(
            self._panel(self._codes, self._code_stride, panel),
            builder.mul(at, _int(CODE_BYTES[self._format])),
        )
        if self._format == "bf16":
            wide = [builder.zext(self._load(address, _SHORTS, half), _INTS) for half in range(2)]
            low, high = (builder.bitcast(builder.shl(part, _ints(16)), _FLOATS) for part in wide)
            return low, high
        if self._format == "int8":
            signed = [builder.sext(self._load(address, _BYTES, half), _INTS) for half in range(2)]
            return builder.sitofp(signed[0], _FLOATS), builder.sitofp(signed[1], _FLOATS)
        both = builder.zext(self._load(address, _BYTES, 0), _INTS)
        low, high = builder.and_(both, _ints(15)), builder.lshr(both, _ints(4))
        return builder.sitofp(low, _FLOATS), builder.sitofp(high, _FLOATS)

    def _half(self, address: Any, part: int) -> Any:
        """Load eight float16 as float32, exactly, on any processor."""
        builder = self._builder
        bits = builder.zext(self._load(address, _SHORTS, part), _INTS)
        magnitude = builder.shl(builder.and_(bits, _ints(0x7FFF)), _ints(13))
        sign = builder.shl(builder.and_(bits, _ints(0x8000)), _ints(16))
        number = builder.bitcast(builder.or_(magnitude, sign), _FLOATS)
        return builder.fmul(number, ir.Constant(_FLOATS, [_HALF_EXPONENT] * HALF_PANEL))

    def _load(self, address: Any, kind: Any, part: int) -> Any:
        """Load vector number `part` from an address."""
        builder = self._builder
        at = builder.add(address, _int(part * HALF_PANEL * _BYTES_OF[kind]))
        value = builder.load(builder.inttoptr(at, kind.as_pointer()))
        value.align = 1
        return value

    def _store(self, sums: Sequence[Any]) -> None:
        builder = self._builder
        adds = builder.icmp_signed("!=", self._adds, _int(0))
        nothing = ir.Constant(_FLOATS, [0.0] * HALF_PANEL)
        for panel in range(self._panels):
            scales = self._panel(self._scales, self._scale_stride, panel)
            for row in range(self._rows):
                outputs = builder.add(
                    self._row(self._y, self._y_stride, row), _int(4 * PANEL * panel)
                )
                for half in range(2):
                    value = sums[self._index(panel, row, half)]
                    if self._format == "int8":
                        value = builder.fmul(value, self._load(scales, _FLOATS, half))
                    there = builder.select(adds, self._load(outputs, _FLOATS, half), nothing)
                    address = builder.add(outputs, _int(4 * HALF_PANEL * half))
                    pointer = builder.inttoptr(address, _FLOATS.as_pointer())
                    builder.store(builder.fadd(value, there), pointer).align = 4

    def _row(self, base: Any, stride: Any, row: int) -> Any:
        return self._builder.add(base, self._builder.mul(stride, _int(row)))

    def _panel(self, base: Any, stride: Any, panel: int) -> Any:
        return self._builder.add(base, self._builder.mul(stride, _int(panel)))


_BYTES_OF: Final = {_FLOATS: 4, _SHORTS: 2, _BYTES: 1}


def _int(value: int) -> Any:
    return ir.Constant(_I64, value)


def _ints(value: int) -> Any:
    return ir.Constant(_INTS, [value] * HALF_PANEL)


def _spread(builder: Any, number: Any) -> Any:
    """Copy a number into all places of a vector."""
    empty = ir.Constant(_FLOATS, ir.Undefined)
    first = builder.insert_element(empty, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, empty, _ints(0))
