"""Shapes that came -> dims, and the checks on them, as instructions.

First the dims are computed and checked one by one; what holds between them is computed only where
every dim lies inside its bounds, so that it provably fits 64 bits where the bounds say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from anydim.native.arithmetic import LARGEST, Arithmetic, Lines, Term
from anydim.program.binding import Source, first_checks, second_checks, solve
from anydim.runtime.checks import Check
from anydim.runtime.signature import Signature
from anydim.sizes import Interval


@dataclass
class Entry:
    """Emits into `lines`; `axis(input, axis)` is the word of the block with that size.

    `given` are operands of dims that have values already, `needed` the dims that the shapes have
    to tell (GraphError when they do not). `dims` holds an operand for each dim that is known.
    """

    signature: Signature
    lines: Lines
    axis: Callable[[int, int], int]
    given: Mapping[str, Term] = field(default_factory=dict)
    needed: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.sources: tuple[Source, ...] = solve(
            self.signature, self.needed, frozenset(self.given)
        )
        self.first = first_checks(self.signature, self.sources)
        self.second = second_checks(self.signature, self.sources)
        self.dims: dict[str, Term] = dict(self.given)
        self._whole: dict[str, str] = {}  # i1: whether an axis tells a whole number
        self._arithmetic = Arithmetic(self.lines, self.dims)

    def solve(self) -> None:
        """Compute the dims that the shapes tell."""
        for source in self.sources:
            value = self.lines.load_word("%block", self.axis(source.input, source.axis))
            if source.rest != 0:
                value = self.lines.let(f"sub i64 {value}, {self._arithmetic.size(source.rest)}")
            if not source.direct:
                factor = self._arithmetic.size(source.factor)
                value, self._whole[source.dim] = _quotient(value, factor, self.lines)
            self.dims[source.dim] = Term(value, Interval())

    def inside(self) -> list[str]:
        """An i1 operand for each of `first`: each dim is a whole number inside its bounds."""
        return [self._inside(check) for check in self.first]

    def between(self, arithmetic: Arithmetic) -> list[str]:
        """An i1 operand for each of `second` but the last, which is that all sizes fit."""
        return [self._between(check, arithmetic) for check in self.second if check.kind != "large"]

    def within(self, others: Mapping[str, Term] | None = None) -> Arithmetic:
        """Arithmetic on dims that are inside their bounds; goes on with the overflow so far."""
        dims = {**(others or {}), **self.dims}
        names = {dim.name: dim.range for dim in self.signature.box.dims if dim.name in dims}
        known = {name: Term(dims[name].name, range) for name, range in names.items()}
        return Arithmetic(self.lines, known, self._arithmetic.overflow)

    def _inside(self, check: Check) -> str:
        dim, value = self.signature.box.dim(check.dim), self.dims[check.dim].name
        if check.kind == "multiple":
            return self._whole[check.dim]
        if check.kind == "low":
            return self.lines.let(f"icmp sge i64 {value}, {min(dim.lo, LARGEST)}")
        assert dim.hi is not None
        return self.lines.let(f"icmp sle i64 {value}, {min(dim.hi, LARGEST)}")

    def _between(self, check: Check, arithmetic: Arithmetic) -> str:
        if check.kind == "guard":
            guard = check.guard
            assert guard is not None
            left, right = arithmetic.size(guard.left), arithmetic.size(guard.right)
            return arithmetic.holds(left, guard.relation, right)
        assert check.size is not None
        value = arithmetic.size(check.size)
        if check.kind == "constraint":
            return arithmetic.holds(value, ">=", "0")
        came = self.lines.load_word("%block", self.axis(check.input, check.axis))
        return arithmetic.holds(came, "==", value)


def verdict(lines: Lines, holding: Sequence[str], first: int) -> str:
    """0 when all flags hold, else the code of the first that does not; codes count from `first`."""
    code = "0"
    for number in reversed(range(len(holding))):
        code = lines.let(f"select i1 {holding[number]}, i64 {code}, i64 {first + number}")
    return code


def negation(lines: Lines, flag: str) -> str:
    """An i1 operand that is the opposite of one."""
    return "true" if flag == "false" else lines.let(f"xor i1 {flag}, true")


def _quotient(value: str, factor: str, lines: Lines) -> tuple[str, str]:
    """value / factor, and an i1 operand that says whether there is just one whole solution."""
    let = lines.let
    usable = let(f"icmp sgt i64 {factor}, 0")
    divisor = let(f"select i1 {usable}, i64 {factor}, i64 1")
    quotient = let(f"sdiv i64 {value}, {divisor}")
    rest = let(f"srem i64 {value}, {divisor}")
    exact = let(f"icmp eq i64 {rest}, 0")
    return quotient, let(f"and i1 {exact}, {usable}")
