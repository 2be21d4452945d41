"""Size expressions -> host code on int64s, with Python's semantics of // and %.

If the result of an operation provably fits 64 bits, it is a plain instruction; otherwise it sets an
overflow flag. A divisor that may be 0 sets the flag too; no generated instruction traps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import apply, constant, select
from anydim.compiler.native.body import TRUE, Body, overflows
from anydim.sizes import LARGEST, Factor, Interval, Size
from anydim.sizes.interval import hull

_RELATIONS = {
    "==": "equal", "!=": "not_equal", "<=": "less_equal", "<": "less", ">=": "greater_equal",
    ">": "greater",
}  # fmt: skip


@dataclass(frozen=True)
class RangedValue:
    """An int64 and its interval."""

    value: ir.Value
    range: Interval


@dataclass
class Arithmetic:
    """Emits size expressions into `body`; `symbols` holds the value of each known dim.

    `overflow` is the flag of an overflow or division by 0 so far; None: proved absent. `atoms`
    holds the values of emitted quotients, minima and other atoms.
    """

    body: Body
    symbols: Mapping[str, RangedValue]
    overflow: ir.Value | None = None
    atoms: dict[Factor, RangedValue] = field(default_factory=dict)
    _known: dict[tuple[str | ir.Value, ...], RangedValue] = field(default_factory=dict)

    def size(self, size: Size) -> ir.Value:
        """Return the value of a size."""
        symbol = self.symbols.__getitem__
        return size.fold(self._constant, symbol, self._apply, self.atoms).value

    def holds(self, left: ir.Value, relation: str, right: ir.Value) -> ir.Value:
        """Return the flag `left relation right`."""
        return self.body.let(apply(_RELATIONS[relation], left, right))

    def require(self, flag: ir.Value) -> None:
        """Add a condition to `fits`."""
        self._fail_if(~flag)

    @property
    def fits(self) -> ir.Value:
        """The flag that no size so far overflowed."""
        return TRUE if self.overflow is None else self.body.let(~self.overflow)

    def _constant(self, value: int) -> RangedValue:
        if abs(value) > LARGEST:  # unreachable: no call has this size
            self._fail_if(TRUE)
            value = LARGEST
        return RangedValue(constant(value), Interval(value, value))

    def _apply(self, function: str, terms: tuple[RangedValue, ...]) -> RangedValue:
        key: tuple[str | ir.Value, ...] = (function, *(term.value for term in terms))
        if key not in self._known:
            value, range = _RULES[function](self, *terms)
            self._known[key] = RangedValue(self.body.let(value), range)
        return self._known[key]

    def _check_overflow(
        self, operation: str, left: RangedValue, right: RangedValue, range: Interval
    ) -> _Made:
        if not _fits(range):
            self._fail_if(overflows(operation, left.value, right.value))
        return apply(operation, left.value, right.value), range

    def _add(self, left: RangedValue, right: RangedValue) -> _Made:
        return self._check_overflow("add", left, right, left.range + right.range)

    def _multiply(self, left: RangedValue, right: RangedValue) -> _Made:
        return self._check_overflow("mul", left, right, left.range * right.range)

    def _divide(self, left: RangedValue, right: RangedValue) -> _Made:
        function = "div" if _positive(left, right) else self._division_function("floordiv", right)
        return apply(function, left.value, right.value), left.range // right.range

    def _modulo(self, left: RangedValue, right: RangedValue) -> _Made:
        function = "fmod" if _positive(left, right) else self._division_function("mod", right)
        return apply(function, left.value, right.value), left.range % right.range

    def _division_function(self, function: str, divisor: RangedValue) -> str:
        if divisor.range.low <= 0:
            self._fail_if(divisor.value.equals(0))
        return function

    def _minimum(self, left: RangedValue, right: RangedValue) -> _Made:
        return _extreme("min", min, left, right)

    def _maximum(self, left: RangedValue, right: RangedValue) -> _Made:
        return _extreme("max", max, left, right)

    def _choose(self, test: RangedValue, then: RangedValue, otherwise: RangedValue) -> _Made:
        if test.range.low >= 0:
            return then.value, then.range
        chosen = select(test.value >= 0, then.value, otherwise.value)
        return chosen, hull((then.range, otherwise.range))

    def _fail_if(self, flag: ir.Value) -> None:
        self.overflow = self.body.let(flag if self.overflow is None else self.overflow | flag)


_Made = tuple[ir.Value, Interval]
_RULES: dict[str, Callable[..., _Made]] = {
    "add": Arithmetic._add,
    "mul": Arithmetic._multiply,
    "floordiv": Arithmetic._divide,
    "mod": Arithmetic._modulo,
    "min": Arithmetic._minimum,
    "max": Arithmetic._maximum,
    "where": Arithmetic._choose,
}


def _extreme(
    function: str, pick: Callable[[float, float], float], left: RangedValue, right: RangedValue
) -> _Made:
    low, high = pick(left.range.low, right.range.low), pick(left.range.high, right.range.high)
    range = Interval(_integer_bound(low), _integer_bound(high))
    return apply(function, left.value, right.value), range


def _positive(left: RangedValue, right: RangedValue) -> bool:
    """Whether floor division equals C's truncating division."""
    return left.range.low >= 0 and right.range.low > 0


def _fits(range: Interval) -> bool:
    return range.low >= -LARGEST and range.high <= LARGEST


def _integer_bound(value: int | float) -> int | None:
    return value if isinstance(value, int) else None
