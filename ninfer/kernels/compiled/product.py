"""`y = x W^T + b`, or `y += x W^T + b`, for a few rows. Reference: `panels.reference_product`."""

from collections.abc import Callable
from functools import cache

from numba import carray, njit

from ninfer.kernels.compiled.address import float32_at, load_int
from ninfer.kernels.compiled.header import NUM_ROWS
from ninfer.kernels.compiled.panels import PANEL, PanelFormat
from ninfer.kernels.compiled.tile import BESIDE, CODE_BYTES, FORMATS, multiply_tile
from ninfer.kernels.weight import GROUP

_ROW_BYTES = 4 * PANEL
_MAX_ROWS = 4


@njit(error_model="numpy")
def _add_bias(op: int, num_rows: int, first: int, end: int) -> None:
    """Put the bias into outputs [first, end), or add it."""
    biases = carray(float32_at(load_int(op, 10)), (end,))
    for row in range(num_rows):
        outputs = carray(float32_at(load_int(op, 7) + row * load_int(op, 8)), (end,))
        for i in range(first, end):
            outputs[i] = biases[i] + (outputs[i] if load_int(op, 9) else 0)


@cache
def product_of(panel_format: PanelFormat) -> Callable[[int, int, int, int], None]:
    """Return the operation for a format; to be compiled.

    Its numbers: 1 address of x, float32; 2 bytes from row to row; 3 address of the codes; 4 address of the scales;
    5 number of inputs; 6 number of panels; 7 address of y, float32, whole panels wide; 8 bytes from row to row;
    9 one to add to y, zero to replace it; 10 address of the bias, zero for none; 11 bytes from thread to thread in x,
    zero for one x; 12 panels that stay together; 13 equal parts, of each of which every thread does its share.
    """
    code = FORMATS.index(panel_format)
    code_bytes = CODE_BYTES[panel_format]
    group_bytes = {"bf16": 0, "int8": 0, "int4": 4 * PANEL}[panel_format]
    panel_bytes = {"bf16": 0, "int8": 4 * PANEL, "int4": 0}[panel_format]
    beside_one, beside_two, beside_three = (BESIDE[panel_format][rows] for rows in (1, 2, 3))

    def product(op: int, header: int, thread: int, num_threads: int) -> None:
        num_rows, num_inputs = load_int(header, NUM_ROWS), load_int(op, 5)
        x, x_stride = load_int(op, 1) + thread * load_int(op, 11), load_int(op, 2)
        code_stride = num_inputs * code_bytes
        scale_stride = num_inputs // GROUP * group_bytes + panel_bytes
        together, num_parts = load_int(op, 12), load_int(op, 13)
        part_panels = load_int(op, 6) // num_parts
        num_units = (part_panels + together - 1) // together
        most = 1
        if num_rows == 1:
            most = beside_one
        elif num_rows == 2:
            most = beside_two
        elif num_rows == 3:
            most = beside_three
        for part in range(num_parts):
            panel = part * part_panels + num_units * thread // num_threads * together
            end = min(part_panels, num_units * (thread + 1) // num_threads * together)
            end += part * part_panels
            adds = load_int(op, 9)
            if load_int(op, 10):
                _add_bias(op, num_rows, panel * PANEL, end * PANEL)
                adds = 1
            while panel < end:
                beside = most if panel + most <= end else 1
                y = load_int(op, 7) + panel * _ROW_BYTES
                for row in range(0, num_rows, _MAX_ROWS):
                    multiply_tile(
                        code,
                        min(_MAX_ROWS, num_rows - row),
                        beside,
                        x + row * x_stride,
                        x_stride,
                        load_int(op, 3) + panel * code_stride,
                        load_int(op, 4) + panel * scale_stride,
                        num_inputs,
                        y + row * load_int(op, 8),
                        load_int(op, 8),
                        adds,
                    )
                panel += beside

    return product
