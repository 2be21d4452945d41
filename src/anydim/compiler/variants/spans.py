"""Variants for spans of sizes: constants where the span fixes a size, computed sizes elsewhere.

A size that a kernel needs may not be a launch size, as it depends on the schedule: `(m + 3)//4`
where the launch has m and `(m + 7)//8`. So dims are solved from launch sizes (`solved_dims.py`), at
the entry of the kernel, and once before it in `extent`, a function of the address of the sizes.
`extent` returns the parallel range, or less than 0 if the variant does not apply: a dim is outside
of its bounds, a number does not fit 64 bits, or guessed dims do not reproduce the sizes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from anydim.base.cache import key_of
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import Kernel, Let, Scalar, constant
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.kernels.template import Misfit
from anydim.compiler.native.arithmetic import Arithmetic, RangedValue
from anydim.compiler.native.body import Body, parameter
from anydim.compiler.passes.site_fitting import parameters_of, positions_of, with_interface
from anydim.compiler.variants.solved_dims import SolvedDim, dims_of_span, narrow_dim, size_name
from anydim.runtime.program.recipe import Recipe
from anydim.runtime.variant_tables import Span
from anydim.sizes import LARGEST, Box, Dim, Interval, Size, bounds, simplify

_WORDS = parameter("words")
_BETWEEN = 5  # trial points inside a span
_OPEN = 32  # distance of the largest trial size from the smallest, in an open dim


@dataclass(frozen=True)
class SolvedSpan:
    """The sizes of launches in a span, the parallel range last, with the dims solved from them.

    `box` bounds the dims of the recipe.
    """

    sizes: tuple[Size, ...]
    span: Span
    solved: tuple[SolvedDim, ...]
    box: Box

    @staticmethod
    def of(sizes: Sequence[Size], span: Span, box: Box) -> SolvedSpan | None:
        """Solve the sizes of a recipe with the dims of `box`; None if not solvable."""
        solved = dims_of_span(sizes, span)
        if solved is None:
            return None
        sure = all(each.source is not None for each in solved)
        own = {dim.name: dim for dim in box.dims} if sure else {}
        ends = ((each.dim, own.get(each.name, each.dim)) for each in solved)
        bounded = [narrow_dim(dim, other.lo, other.hi) for dim, other in ends]
        others = [dim for dim in box.dims if dim.name not in {each.name for each in solved}]
        if None in bounded:
            return None
        dims = [*filter(None, bounded), *others]
        return SolvedSpan(
            tuple(sizes), span, solved, Box.of(*dims, constraints=box.constraints if sure else ())
        )

    def points(self) -> tuple[dict[str, int], ...]:
        """Trial points: the ends, the middle, and pseudo-random ones with a fixed seed."""
        some = random.Random(0)
        ends = [(max(dim.lo, min(1, _top(dim))), _top(dim), dim.name) for dim in self.box.dims]
        found = [
            {name: low + (high - low) * part // 2 for low, high, name in ends} for part in range(3)
        ]
        found += [
            {name: some.randint(low, high) for low, high, name in ends} for _ in range(_BETWEEN)
        ]
        return tuple(point for n, point in enumerate(found) if point not in found[:n])

    def constant_size(self, size: Size) -> int | None:
        """The constant value of a size in the span; None if it varies."""
        return bounds(simplify(size, self.box), self.box).value


def _top(dim: Dim) -> int:
    """The largest trial size of a dim."""
    return dim.lo + _OPEN if dim.hi is None else dim.hi


def spanned_kernel(launch: Launch, recipe: Recipe, site: SolvedSpan) -> Kernel:
    """The kernel of a launch with the interface of a recipe; computes its own sizes.

    Raises Misfit if they depend on a dim that only the parallel range determines, which kernels are
    not given.
    """
    kernel = launch.kernel
    order = positions_of([argument.tensor for argument in launch.arguments], recipe.operands)
    _, scalars, _ = parameters_of(kernel)
    body, given = _Prologue(), [Scalar(size_name(n)) for n in range(len(kernel_sizes(site)))]
    needed = _SizeCode(body, site, [parameter(scalar.name) for scalar in given])
    values = [needed.value(size) for size in launch.sizes]
    steps = [Let(scalar.name, value) for scalar, value in zip(scalars, values)]
    prefix = f"{kernel.name.rpartition('_')[0]}_span"
    return with_interface(kernel, order, given, (*body.written, *steps), prefix)


def kernel_sizes(site: SolvedSpan) -> tuple[Size, ...]:
    """The sizes passed to a kernel: all but the parallel range."""
    return site.sizes[:-1]


def extent_of(launch: Launch, site: SolvedSpan) -> ir.Library | None:
    """The function that computes the parallel range; None if it always equals the launch's."""
    same = launch.parallel == site.sizes[-1]
    sizes = set(site.sizes)
    direct = all(size in sizes or site.constant_size(size) is not None for size in launch.sizes)
    if same and direct and all(each.plain for each in site.solved):
        return None
    body = Body()
    values = [body.load(_WORDS, number) for number in range(len(site.sizes))]
    needed = _SizeCode(body, site, values, checked=True)
    for size in launch.sizes:
        needed.value(size)
    parallel = needed.value(launch.parallel)
    needed.check_fit()
    body.give(parallel)
    made = body.function("extent", ("words",), public=True)
    name = f"extent_{key_of(repr(made))[:12]}"
    named = ir.Function(name, made.parameters, made.body, made.public, made.result)
    return ir.Library(name, lambda: (named,), key_of(repr(named)))


class _Prologue(Body):
    """Steps before those of a kernel, with names the kernel does not use."""

    def fresh(self, letter: str) -> str:
        return f"launch.{super().fresh(letter)}"


class _SizeCode:
    """Writes code for sizes from launch sizes; with `checked` it returns -1 outside the span."""

    def __init__(
        self, body: Body, site: SolvedSpan, values: Sequence[ir.Value], checked: bool = False
    ) -> None:
        self._body, self._site, self._values = body, site, values
        self._unknown: set[str] = set()
        self._direct = dict(zip(site.sizes, values))
        ranges = (Interval(low, high) for low, high in zip(site.span.low, site.span.high))
        self._symbols = {
            size_name(number): RangedValue(value, range)
            for number, (value, range) in enumerate(zip(values, ranges))
        }
        self._arithmetic = Arithmetic(body, self._symbols)
        for solved in site.solved:
            self._solve(solved, checked)
        if checked and any(solved.source is None for solved in site.solved):
            self._check_sizes()

    def value(self, size: Size) -> ir.Value:
        """The value of a size: a constant, a launch size, or a formula over dims."""
        known = self._site.constant_size(size)
        if known is not None:
            return constant(known)
        found = self._direct.get(size)
        if found is None and not self._unknown.isdisjoint(size.symbols):
            raise Misfit(f"size {size} depends on dims that only the parallel range determines")
        return self._arithmetic.size(size) if found is None else found

    def check_fit(self) -> None:
        """Return -1 on overflow."""
        if self._arithmetic.overflow is not None:
            with self._body.when(self._arithmetic.overflow):
                self._body.give(-1)

    def _solve(self, solved: SolvedDim, checked: bool) -> None:
        """Compute a dim, and check its bounds."""
        dim = self._site.box.dim(solved.name)
        others = {*solved.rest.symbols, *solved.factor.symbols}
        if (solved.source or 0) >= len(self._values) or not self._unknown.isdisjoint(others):
            self._unknown.add(solved.name)
            return
        if solved.source is None:
            value = constant(solved.low)
        else:
            size = Size.symbol(size_name(solved.source))
            value = self._body.let(self._arithmetic.size((size - solved.rest) // solved.factor))
        high = LARGEST if dim.hi is None else dim.hi
        if checked and solved.source is not None:
            with self._body.when((value < dim.lo) | (value > high)):
                self._body.give(-1)
        self._symbols[solved.name] = RangedValue(value, Interval(dim.lo, high))

    def _check_sizes(self) -> None:
        for size, value in zip(self._site.sizes, self._values):
            if size.constant is None:
                with self._body.when(self._arithmetic.size(size).differs(value)):
                    self._body.give(-1)
