"""A loop of instructions that carries values from round to round. Needs llvmlite."""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

_I64 = ir.IntType(64)


def counted_loop(
    builder: Any,
    bounds: tuple[Any, Any, int],
    values: Sequence[Any],
    body: Callable[[Any, list[Any]], list[Any]],
) -> list[Any]:
    """Write `for at in range(*bounds): values = body(at, values)`; at least one round.

    Args:
        builder: where instructions are written.
        bounds: start and end, integers of 64 bits, and the step.
        values: before the first round.
        body: writes a round and returns the values after it, of the same types.

    Returns:
        The values after the last round.
    """
    start, end, step = bounds
    before = builder.block
    inside, after = builder.append_basic_block("inside"), builder.append_basic_block("after")
    builder.branch(inside)
    builder.position_at_end(inside)
    at = builder.phi(_I64)
    at.add_incoming(start, before)
    carried = [builder.phi(value.type) for value in values]
    for phi, value in zip(carried, values, strict=True):
        phi.add_incoming(value, before)
    results = body(at, carried)
    following = builder.add(at, ir.Constant(_I64, step))
    at.add_incoming(following, builder.block)
    for phi, value in zip(carried, results, strict=True):
        phi.add_incoming(value, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, end), inside, after)
    builder.position_at_end(after)
    return results
