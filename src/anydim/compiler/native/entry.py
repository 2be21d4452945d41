"""Shapes of inputs -> dims, and the checks on them, as host code.

First the dims are computed and checked one by one. Relations between dims are evaluated only if
every dim is inside its bounds, so that they provably fit 64 bits if the bounds imply it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import constant, select
from anydim.compiler.native.arithmetic import LARGEST, Arithmetic, RangedValue
from anydim.compiler.native.body import TRUE, ZERO, Body
from anydim.runtime.checks import Check
from anydim.runtime.program.binding import Source, first_checks, second_checks, solve
from anydim.runtime.signature import Signature
from anydim.sizes import Interval


@dataclass(frozen=True)
class EntryChecks:
    """The dims that follow from given shapes, and the checks of and between dims."""

    sources: tuple[Source, ...]
    first: tuple[Check, ...]
    second: tuple[Check, ...]

    @staticmethod
    def of(
        signature: Signature, needed: frozenset[str] = frozenset(),
        given: frozenset[str] = frozenset(),
    ) -> EntryChecks:  # fmt: skip
        """`given` dims have a value; raises GraphError if nothing determines a `needed` one."""
        sources = solve(signature, needed, given)
        return EntryChecks(
            sources, first_checks(signature, sources), second_checks(signature, sources)
        )


@dataclass
class Entry:
    """Emits into `body`; `axis(input, axis)` is the slot with that size.

    `given` are values of dims that have one already. `dims` holds the values of known dims.
    """

    signature: Signature
    checks: EntryChecks
    body: Body
    block: ir.Value
    axis: Callable[[int, int], int]
    given: Mapping[str, RangedValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dims: dict[str, RangedValue] = dict(self.given)
        self._whole: dict[str, ir.Value] = {}  # whether an axis determines an integer
        self._arithmetic = Arithmetic(self.body, self.dims)

    def solve(self) -> None:
        """Compute the dims that the shapes determine."""
        for source in self.checks.sources:
            value = self._size_of(source.input, source.axis)
            if source.rest != 0:
                value = self.body.let(value - self._arithmetic.size(source.rest))
            if not source.direct:
                factor = self._arithmetic.size(source.factor)
                value, self._whole[source.dim] = _quotient(value, factor, self.body)
            self.dims[source.dim] = RangedValue(value, Interval())

    def _size_of(self, input: int, axis: int) -> ir.Value:
        return self.body.load(self.block, self.axis(input, axis))

    def inside(self) -> list[ir.Value]:
        """Return a flag for each of `first`: the dim is an integer inside its bounds."""
        return [self._inside(check) for check in self.checks.first]

    def between(self, arithmetic: Arithmetic) -> list[ir.Value]:
        """Return a flag for each of `second` but the last, which is that all sizes fit."""
        second = (check for check in self.checks.second if check.kind != "large")
        return [self._between(check, arithmetic) for check in second]

    def within(self, others: Mapping[str, RangedValue] | None = None) -> Arithmetic:
        """Return arithmetic on dims inside their bounds; continues the overflow flag."""
        dims = {**(others or {}), **self.dims}
        names = {dim.name: dim.range for dim in self.signature.box.dims if dim.name in dims}
        known = {name: RangedValue(dims[name].value, range) for name, range in names.items()}
        return Arithmetic(self.body, known, self._arithmetic.overflow)

    def _inside(self, check: Check) -> ir.Value:
        dim, value = self.signature.box.dim(check.dim), self.dims[check.dim].value
        if check.kind == "multiple":
            return self._whole[check.dim]
        if check.kind == "low":
            return self.body.let(value >= min(dim.lo, LARGEST))
        assert dim.hi is not None
        return self.body.let(value <= min(dim.hi, LARGEST))

    def _between(self, check: Check, arithmetic: Arithmetic) -> ir.Value:
        if check.kind == "guard":
            guard = check.guard
            assert guard is not None
            left, right = arithmetic.size(guard.left), arithmetic.size(guard.right)
            return arithmetic.holds(left, guard.relation, right)
        assert check.size is not None
        value = arithmetic.size(check.size)
        if check.kind == "constraint":
            return arithmetic.holds(value, ">=", ZERO)
        return arithmetic.holds(self._size_of(check.input, check.axis), "==", value)


def verdict(body: Body, holding: Sequence[ir.Value], first: int) -> ir.Value:
    """Return 0 if all flags hold, otherwise the code of the first that fails, from `first` on."""
    code = ZERO
    for number in reversed(range(len(holding))):
        if holding[number] is not TRUE:
            code = body.let(select(holding[number], code, constant(first + number)))
    return code


def _quotient(value: ir.Value, factor: ir.Value, body: Body) -> tuple[ir.Value, ir.Value]:
    """Return value / factor, and the flag that it has exactly one integer solution."""
    usable = body.let(factor > 0)
    divisor = body.let(select(usable, factor, 1))
    quotient = body.let(value / divisor)
    exact = (value - quotient * divisor).equals(0)
    return quotient, body.let(exact & usable)
