"""Short names for the index arithmetic that hand-written kernels are full of."""

from __future__ import annotations

from collections.abc import Callable

from anydim.base.dtypes import int8, int32
from anydim.kernels import ir
from anydim.kernels.ir import Like, constant, greatest, least, operate, select, valued, variable

Name = Callable[[ir.Value], ir.Value]  # has a value computed once, where the code is written
_WIDE = 16  # lanes from which on a vector of int32 takes more than one register


def summed(*terms: Like) -> ir.Value:
    """The sum of indices; constants are added up, so that they end as one immediate."""
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
    """left / right rounded up, for left >= 0 and right > 0."""
    return (left + (right - 1)) / right


def round_down(value: ir.Value, power_of_two: int) -> ir.Value:
    """The largest multiple of a power of two that is not above."""
    return value if power_of_two == 1 else value & -power_of_two


def first_lanes(count: ir.Value, lanes: int) -> ir.Value:
    """The mask whose lanes 0 .. count-1 are on, for a count below 2^31."""
    if lanes > _WIDE:
        count = least(greatest(count, 0), lanes)
    return operate("less", *numbered(count, lanes))


def numbered(count: ir.Value, lanes: int) -> tuple[ir.Value, ir.Value]:
    """The number of each lane, and one of about as many, in a type that fits a register."""
    vector = ir.Type(int8 if lanes > _WIDE else int32, lanes)
    return ir.Iota(vector), ir.Splat(vector, ir.Convert(ir.Type(vector.dtype), count))


def loop(name: str, start: Like, stop: Like, step: Like, *body: ir.Step) -> ir.For:
    """for name = start; name < stop; name += step."""
    return ir.For(name, valued(start), valued(stop), valued(step), body)


def split_index(number: str, *loops: tuple[str, ir.Value]) -> list[ir.Step]:
    """The indices of loops out of the number of an iteration of them all; the first runs fastest.

    Each of `loops` is the name of an index and its extent. The quotients that are left over are
    called rest0, rest1, ...
    """
    steps: list[ir.Step] = []
    for place, (name, extent) in enumerate(loops):
        rest = f"rest{place}"
        steps.append(ir.Let(rest, quotient(variable(number), extent)))
        steps.append(ir.Let(name, variable(number) - variable(rest) * extent))
        number = rest
    return steps


def apart(left: str, right: str) -> ir.Value:
    """Whether two buffers begin at different bytes: operands may lie in the same ones."""
    return ir.Address(left, constant(0)).differs(ir.Address(right, constant(0)))


def near(at: ir.Value, mask: ir.Value) -> ir.Value:
    """An offset for a load by a mask that may be off in every lane: the tensor's first then.

    Lanes that are off touch no memory, but far outside of the tensor they take as long as hundreds
    of loads where the page is not mapped.
    """
    return select(mask.any, at, 0)
