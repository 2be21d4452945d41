"""Short names for the index arithmetic that hand-written kernels are full of."""

from __future__ import annotations

from anydim.base.dtypes import int8, int32
from anydim.kernels import ir


def constant(value: int) -> ir.Const:
    """An int64."""
    return ir.Const(ir.INDEX, value)


def variable(name: str) -> ir.Var:
    """An int64 parameter, loop variable or Let."""
    return ir.Var(ir.INDEX, name)


def register(name: str) -> ir.Get:
    """The present value of an int64 register."""
    return ir.Get(ir.INDEX, name)


def plus(*terms: ir.Value | int) -> ir.Value:
    """The sum; constants are added up, so that they end as one immediate."""
    fixed = 0
    total: ir.Value | None = None
    for term in terms:
        if isinstance(term, ir.Const):
            term = int(term.value)
        if isinstance(term, int):
            fixed += term
        else:
            total = term if total is None else ir.Op(ir.INDEX, "add", (total, term))
    if total is None:
        return constant(fixed)
    return ir.Op(ir.INDEX, "add", (total, constant(fixed))) if fixed else total


def times(left: ir.Value | int, right: ir.Value | int) -> ir.Value:
    """The product, with constants folded."""
    a = constant(left) if isinstance(left, int) else left
    b = constant(right) if isinstance(right, int) else right
    if isinstance(a, ir.Const):
        a, b = b, a
    if isinstance(b, ir.Const):
        if isinstance(a, ir.Const):
            return constant(int(a.value) * int(b.value))
        if b.value in (0, 1):
            return constant(0) if b.value == 0 else a
    return ir.Op(ir.INDEX, "mul", (a, b))


def minus(left: ir.Value, right: ir.Value) -> ir.Value:
    """left - right."""
    return ir.Op(ir.INDEX, "sub", (left, right))


def quotient(left: ir.Value, right: ir.Value | int) -> ir.Value:
    """left / right for left >= 0 and right > 0."""
    return ir.Op(ir.INDEX, "div", (left, constant(right) if isinstance(right, int) else right))


def quotient_up(left: ir.Value, right: ir.Value | int) -> ir.Value:
    """left / right rounded up, for left >= 0 and right > 0."""
    return quotient(plus(left, minus_one(right)), right)


def minus_one(value: ir.Value | int) -> ir.Value:
    """value - 1."""
    return constant(value - 1) if isinstance(value, int) else plus(value, -1)


def least(left: ir.Value | int, right: ir.Value | int) -> ir.Value:
    """The smaller one."""
    return ir.Op(ir.INDEX, "min", (_value(left), _value(right)))


def greatest(left: ir.Value | int, right: ir.Value | int) -> ir.Value:
    """The larger one."""
    return ir.Op(ir.INDEX, "max", (_value(left), _value(right)))


def round_down(value: ir.Value, power_of_two: int) -> ir.Value:
    """The largest multiple of a power of two that is not above."""
    if power_of_two == 1:
        return value
    return ir.Op(ir.INDEX, "bit_and", (value, constant(-power_of_two)))


def compare(relation: str, left: ir.Value, right: ir.Value | int) -> ir.Value:
    """'equal', 'less', 'less_equal', 'greater_equal', ... of two int64 scalars."""
    return ir.Op(ir.FLAG, relation, (left, _value(right)))


def either(condition: ir.Value, then: ir.Value, otherwise: ir.Value) -> ir.Value:
    """One of two values."""
    return ir.Op(then.type, "select", (condition, then, otherwise))


_WIDE = 16  # lanes from which on a vector of int32 takes more than one register


def first_lanes(count: ir.Value, lanes: int) -> ir.Value:
    """The mask whose lanes 0 .. count-1 are on, for a count below 2^31."""
    if lanes > _WIDE:
        count = least(greatest(count, 0), lanes)
    return ir.Op(ir.Type(ir.FLAG.dtype, lanes), "less", numbered(count, lanes))


def numbered(count: ir.Value, lanes: int) -> tuple[ir.Value, ir.Value]:
    """The number of each lane, and one of about as many, in a type that fits a register."""
    vector = ir.Type(int8 if lanes > _WIDE else int32, lanes)
    return ir.Iota(vector), ir.Splat(vector, ir.Convert(ir.Type(vector.dtype), count))


def loop(
    name: str, start: ir.Value | int, stop: ir.Value | int, step: ir.Value | int, *body: ir.Step
) -> ir.For:
    """for name = start; name < stop; name += step."""
    return ir.For(name, _value(start), _value(stop), _value(step), tuple(body))


def split_index(number: str, *loops: tuple[str, ir.Value]) -> list[ir.Step]:
    """The indices of loops out of the number of an iteration of them all; the first runs fastest.

    Each of `loops` is the name of an index and its extent. The quotients that are left over are
    called rest0, rest1, ...
    """
    steps: list[ir.Step] = []
    for place, (index, extent) in enumerate(loops):
        rest = f"rest{place}"
        steps.append(ir.Let(rest, quotient(variable(number), extent)))
        below = times(variable(rest), extent)
        steps.append(ir.Let(index, minus(variable(number), below)))
        number = rest
    return steps


def _value(value: ir.Value | int) -> ir.Value:
    return constant(value) if isinstance(value, int) else value
