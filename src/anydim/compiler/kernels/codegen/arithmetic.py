"""Short names for index arithmetic in hand-written kernels."""

from __future__ import annotations

from collections.abc import Callable

from anydim.base.dtypes import int8, int32
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import (
    Like,
    as_value,
    constant,
    greatest,
    least,
    operate,
    select,
    variable,
)

Name = Callable[
    [ir.Value], ir.Value
]  # binds a value to a name: computed once, at the point of emission
_WIDE = 16  # a vector of int32 with more lanes takes several registers


def index_sum(*terms: Like) -> ir.Value:
    """The sum of indices; constants are folded into one immediate."""
    fixed, found = constant(0), constant(0)
    for term in terms:
        if isinstance(term, ir.Value) and not isinstance(term, ir.Const):
            found = found + term
        else:
            fixed = fixed + term
    return found + fixed


def quotient(left: ir.Value, right: Like) -> ir.Value:
    """left / right for left >= 0 and right > 0."""
    return left / right


def quotient_up(left: ir.Value, right: Like) -> ir.Value:
    """left / right, rounded up, for left >= 0 and right > 0."""
    return (left + (right - 1)) / right


def round_down(value: ir.Value, power_of_two: int) -> ir.Value:
    """The largest multiple of a power of two not above `value`."""
    return value if power_of_two == 1 else value & -power_of_two


def first_lanes(count: ir.Value, lanes: int) -> ir.Value:
    """A mask with lanes 0 .. count-1 set, for a count below 2^31."""
    if lanes > _WIDE:
        count = least(greatest(count, 0), lanes)
    return operate("less", *lane_indices(count, lanes))


def lane_indices(count: ir.Value, lanes: int) -> tuple[ir.Value, ir.Value]:
    """Lane indices, and `count` in every lane, in a type whose vector fits a register."""
    vector = ir.Type(int8 if lanes > _WIDE else int32, lanes)
    return ir.Iota(vector), ir.Splat(vector, ir.Convert(ir.Type(vector.dtype), count))


def loop(
    name: str | ir.Var, start: Like, stop: Like, step: Like, *body: ir.Step
) -> ir.For:  # fmt: skip
    """for name = start; name < stop; name += step."""
    name = name if isinstance(name, str) else name.name
    return ir.For(name, as_value(start), as_value(stop), as_value(step), body)


def split_index(number: str, *loops: tuple[str, ir.Value]) -> list[ir.Step]:
    """Delinearize the index of a collapsed loop; the first loop varies fastest.

    Each of `loops` is the name of an index and its extent. The remaining quotients are named rest0,
    rest1, ...
    """
    steps: list[ir.Step] = []
    for level, (name, extent) in enumerate(loops):
        rest = f"rest{level}"
        steps.append(ir.Let(rest, quotient(variable(number), extent)))
        steps.append(ir.Let(name, variable(number) - variable(rest) * extent))
        number = rest
    return steps


def buffers_differ(left: str, right: str) -> ir.Value:
    """Whether two buffers start at different addresses: operands may share memory."""
    return ir.Address(left, constant(0)).differs(ir.Address(right, constant(0)))


def near(at: ir.Value, mask: ir.Value) -> ir.Value:
    """A safe offset for a masked load: `at`, or 0 where the mask is off in every lane.

    Masked-off lanes access no memory, but an address far outside the tensor costs as much as
    hundreds of loads if its page is not mapped.
    """
    return select(mask.any, at, 0)
