"""Size expressions of torch's symbolic shapes: sympy expressions as sizes, and as numbers.

torch keeps sizes as sympy expressions over symbols: `s77` for a dim of an input, `u0` for a size
that data decide. Integer expressions become sizes; others become float64 or bool scalars.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from anydim.base.dtypes import boolean, float64, int64
from anydim.compiler.frontends.torch.refusal import Refused
from anydim.sizes import Size, as_size, at_most, maximum, minimum, product

if TYPE_CHECKING:
    from anydim.compiler.frontends.graph_builder import Value
    from anydim.compiler.frontends.torch.builder import TorchBuilder

LARGEST_DENOMINATOR = 1 << 20
_MOST_BITS = 32  # of masks and shifts


def _quotient(number: Size, divisor: Size) -> Size:
    """number // divisor, for a divisor that torch proved to be positive."""
    exact = number.divide_exactly(divisor)
    return number // divisor if exact is None else exact


def _power(base: Size, exponent: Size) -> Size:
    count = exponent.constant
    if count is None or count < 0:
        raise Refused(f"the size {base} to the power {exponent}")
    return product((base,) * count)


def _extreme(combine: Callable[[Size, Size], Size]) -> Callable[..., Size]:
    def of(first: Size, *others: Size) -> Size:
        for other in others:
            first = combine(first, other)
        return first

    return of


def _common_bits(number: Size, mask: Size) -> Size:
    """number & mask, of a mask that is known and not negative; numbers may be negative."""
    if mask.constant is None:
        number, mask = mask, number
    bits = mask.constant
    if bits is None or not 0 <= bits < 1 << _MOST_BITS:
        raise Refused(f"the size {number} & {mask}")
    if bits & (bits + 1) == 0:
        return number % (bits + 1)
    places = [1 << place for place in range(_MOST_BITS) if bits >> place & 1]
    return sum((number // place % 2 * place for place in places), as_size(0))


def _shift(size: Size, count: Size) -> int:
    if count.constant is None or not 0 <= count.constant < _MOST_BITS:
        raise Refused(f"the size {size} shifted by {count}")
    return 1 << count.constant


_INTEGERS: dict[str, Callable[..., Size]] = {
    "Add": lambda *terms: sum(terms, as_size(0)),
    "Mul": lambda *factors: product(factors),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": _quotient,
    "CleanDiv": _quotient,
    "Mod": lambda number, divisor: number % divisor,
    "PythonMod": lambda number, divisor: number % divisor,
    "ModularIndexing": lambda number, divisor, extent: _quotient(number, divisor) % extent,
    "Max": _extreme(maximum),
    "Min": _extreme(minimum),
    "Identity": lambda size: size,
    "BitwiseFn_bitwise_and": _common_bits,
    "BitwiseFn_bitwise_or": lambda a, b: a + b - _common_bits(a, b),
    "BitwiseFn_bitwise_xor": lambda a, b: a + b - _common_bits(a, b) * 2,
    "LShift": lambda size, count: size * _shift(size, count),
    "RShift": lambda size, count: size // _shift(size, count),
}
"""sympy class -> the same of sizes."""

_ROUNDED = {"FloorToInt": "floor", "TruncToInt": "trunc", "CeilToInt": "ceil", "RoundToInt": ""}

_BINARY = {
    "Add": "add", "Mul": "mul", "FloatTrueDiv": "div", "IntTrueDiv": "div", "FloatPow": "pow",
    "Pow": "pow", "Max": "maximum", "Min": "minimum", "Mod": "mod", "PythonMod": "mod",
    "FloorDiv": "floor_div", "CleanDiv": "floor_div", "PowByNatural": "pow",
}  # fmt: skip
_EXACT = {
    "Add",
    "Mul",
    "Max",
    "Min",
    "Pow",
    "PowByNatural",
    "Abs",
    "Mod",
    "PythonMod",
    "FloorDiv",
    "CleanDiv",
}  # of integers in integers
_UNARY = {
    "OpaqueUnaryFn_sqrt": "sqrt", "OpaqueUnaryFn_exp": "exp", "OpaqueUnaryFn_log": "log",
    "OpaqueUnaryFn_sin": "sin", "OpaqueUnaryFn_cos": "cos", "OpaqueUnaryFn_tanh": "tanh",
    "FloorToInt": "floor", "CeilToInt": "ceil", "TruncToInt": "trunc", "RoundToInt": "round",
    "ToFloat": "identity", "Abs": "abs",
}  # fmt: skip
RELATIONS = {
    "Equality": "==", "Unequality": "!=", "StrictLessThan": "<", "LessThan": "<=",
    "StrictGreaterThan": ">", "GreaterThan": ">=",
}  # fmt: skip
_COMPARISONS = {
    "==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater",
    ">=": "greater_equal",
}  # fmt: skip


def size_of(expression: Any, symbols: dict[str, Size]) -> Size:
    """An integer expression as a size. Refused if sizes cannot express it."""
    kind = type(expression).__name__
    if expression.is_Integer:
        return as_size(int(expression))
    if expression.is_Symbol:
        if expression.name not in symbols:
            raise Refused(f"the size {expression.name} is used before it is computed")
        return symbols[expression.name]
    if kind in _ROUNDED:
        return _round_ratio(kind, expression.args[0], symbols)
    row = _INTEGERS.get(kind)
    if row is None:
        raise Refused(f"the size expression {expression}")
    return row(*(size_of(each, symbols) for each in expression.args))


def _round_ratio(kind: str, expression: Any, symbols: dict[str, Size]) -> Size:
    """A quotient that is rounded: of two integers, or of one and a number of few bits."""
    above, below = _ratio(expression, symbols)
    if kind == "CeilToInt":
        return -(-above // below)
    if kind == "RoundToInt":
        raise Refused(f"the rounded size {expression}")
    floor = above // below
    if kind == "FloorToInt":
        return floor
    return at_most(floor, -1).where(-(-above // below), floor)


def _ratio(expression: Any, symbols: dict[str, Size]) -> tuple[Size, Size]:
    """(a, b) of an expression that is the exact quotient a / b of sizes."""
    kind = type(expression).__name__
    if kind == "ToFloat":
        return size_of(expression.args[0], symbols), as_size(1)
    if expression.is_Number:
        ratio = Fraction(float(expression))
        if ratio.denominator > LARGEST_DENOMINATOR:
            raise Refused(f"the size expression {expression}")
        return as_size(ratio.numerator), as_size(ratio.denominator)
    if kind in ("IntTrueDiv", "FloatTrueDiv"):
        (a, b), (c, d) = (_ratio(each, symbols) for each in expression.args)
        return a * d, b * c
    if kind == "Mul":
        above, below = as_size(1), as_size(1)
        for each in expression.args:
            a, b = _ratio(each, symbols)
            above, below = above * a, below * b
        return above, below
    return size_of(expression, symbols), as_size(1)


def number_of(g: TorchBuilder, expression: Any) -> Value:
    """A real or boolean expression of sizes as a scalar: float64, int64 or bool."""
    kind = type(expression).__name__
    if expression in (True, False) and not expression.is_Number:
        return g.scalar(bool(expression), boolean)
    if expression.is_Integer:
        return g.scalar(int(expression), int64)
    if expression.is_Number:
        return g.scalar(float(expression), float64)
    if expression.is_Symbol and expression.name in g.scalars:
        return g.scalars[expression.name]
    if kind in RELATIONS:
        return _compare(g, RELATIONS[kind], *(number_of(g, each) for each in expression.args))
    if expression.is_integer or kind.startswith("BitwiseFn"):
        try:
            return g.scalar(size_of(expression, g.symbols), int64)
        except Refused:
            pass
    parts = [number_of(g, each) for each in expression.args]
    is_exact = kind in _EXACT and all(part.dtype == int64 for part in parts)
    if not (is_exact and expression.is_integer):
        parts = [g.as_type(part, float64) for part in parts]
    if kind in _UNARY:
        return getattr(g, _UNARY[kind])(parts[0])
    if kind not in _BINARY:
        raise Refused(f"the expression {expression} of sizes")
    if kind == "FloatPow" or (kind == "Pow" and not expression.is_integer):
        return _float_power(g, *parts)
    total = parts[0]
    for part in parts[1:]:
        total = getattr(g, _BINARY[kind])(total, part)
    return total


def _compare(g: TorchBuilder, relation: str, left: Value, right: Value) -> Value:
    """A relation, of integers in integers."""
    if left.dtype != right.dtype:
        left, right = (g.as_type(each, float64) for each in (left, right))
    return getattr(g, _COMPARISONS[relation])(left, right)


def _float_power(g: TorchBuilder, base: Value, exponent: Value) -> Value:
    """A float64 power, which is whole for whole operands: `int(2.0**3)` is 8, not 7."""
    power = g.pow(base, exponent)
    is_whole = g.logical_and(g.equal(base, g.round(base)), g.equal(exponent, g.round(exponent)))
    is_small = g.logical_and(g.greater_equal(exponent, 0.0), g.less(g.abs(power), 2.0**50))
    return g.where(g.logical_and(is_whole, is_small), g.round(power), power)
