"""Data flow analysis: int64 values that are data, loaded or computed from loads.

Sizes, loop variables and values computed from them address memory, so they are far from the limits
of int64 and plain C arithmetic is correct for them. Data may be anything: where it wraps in loop
IR, signed arithmetic in C would be undefined.
"""

from __future__ import annotations

from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir.steps import every_step

_LARGE = 2**31


def data_names(function: ir.Function) -> frozenset[str]:
    """Return the names and registers of a function whose int64 values are data."""
    named = [
        step
        for step in every_step(function.body)
        if isinstance(step, (ir.Let, ir.Declare, ir.Assign, ir.WarpExchange))
        and step.value.type.lanes == 1
    ]
    found: set[str] = set()
    while True:
        more = {s.name for s in named if s.name not in found and is_data(s.value, found)}
        if not more:
            return frozenset(found)
        found |= more


def is_data(node: ir.Value, names: set[str] | frozenset[str]) -> bool:
    """Whether a value is data, given the names that are."""
    if isinstance(node, ir.Const):
        return abs(node.value) >= _LARGE
    if isinstance(node, (ir.Var, ir.Get)):
        return node.name in names
    if isinstance(node, ir.Op):
        return any(is_data(argument, names) for argument in node.arguments)
    if isinstance(node, ir.Convert):
        return node.argument.type != ir.FLAG
    return not isinstance(node, ir.Item)
