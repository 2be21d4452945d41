"""The cost of a call of a group: bytes by formula, seconds by the plan's work and measured
rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from time import perf_counter

import numpy

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.base.text import quote_list
from anydim.runtime.program.binding import determined_dims
from anydim.runtime.program.memory import memory
from anydim.runtime.program.program import Program
from anydim.runtime.program.region_plan import needs
from anydim.sizes import Monomial, Sampled, Size, as_size

Columns = Mapping[str, numpy.ndarray]
_OF_A_CALL = 20  # overhead of a call, in launches
_WORTH = 50  # a fit is due after calls that took this many times its own time
_MOST_TRIES = 60  # maximum steps of the fit


@dataclass(frozen=True)
class Done:
    """Calls: bytes of the arena and of all [points], launches [points]; operations and bytes moved
    [kinds of launches, points]."""

    arena: numpy.ndarray
    bytes: numpy.ndarray
    launches: numpy.ndarray
    flops: numpy.ndarray
    moved: numpy.ndarray


@dataclass(frozen=True)
class Work:
    """Formulas over the dims that inputs determine: the bytes and the work of a call.

    `arena` are bytes of values and of scratch of all threads. `kinds` are launches with equal
    formulas: their count, operations and bytes moved, as plans estimate them. `is_bounded` is
    whether these are all the work there is: data determines no size or loop in them, and no engine
    runs a part.
    """

    arena: Size
    inputs: Size
    outputs: Size
    launches: Size
    kinds: tuple[tuple[int, Size, Size], ...]
    is_bounded: bool

    @cached_property
    def bytes(self) -> Size:
        """Arena, inputs and outputs."""
        return self.arena + self.inputs + self.outputs

    @cached_property
    def _terms(self) -> tuple[list[Monomial], numpy.ndarray]:
        """The monomials of all formulas, and their coefficients [formulas, monomials].

        The formulas are arena, bytes and launches, then operations of kinds, then bytes moved.
        """
        flops = [often * size for often, size, _ in self.kinds]
        moved = [often * size for often, _, size in self.kinds]
        every = [self.arena, self.bytes, self.launches + _OF_A_CALL, *flops, *moved]
        monomials = list(dict.fromkeys(term for size in every for term in size.coefficients))
        table = [[float(size.coefficients.get(m, 0)) for m in monomials] for size in every]
        return monomials, numpy.array(table).reshape(len(every), len(monomials))

    def at(self, columns: Columns) -> Done:
        """Return the bytes and the work of calls at many sizes."""
        monomials, table = self._terms
        at = Sampled.over(columns)
        found = table @ numpy.array([at.monomial(each) for each in monomials])  # exact up to 2**53
        numpy.maximum(found, 0.0, out=found)
        kinds = 3 + len(self.kinds)
        return Done(found[0], found[1], found[2], found[3:kinds], found[kinds:])


def work_of(program: Program, known_dims: frozenset[str] = frozenset()) -> Work:
    """Return the formulas of a program; sizes that data determines count with their upper bounds,
    except `known_dims`.

    Raises OptionError if one of them has no upper bound.
    """
    signature, known = program.signature, needs(program)
    dims = known_dims | determined_dims(signature.box, signature.inputs, known_dims)
    ranges = known.box.enclosure.ranges
    bounds = {d.name: ranges[d.name].hi for d in known.box.dims if d.name not in dims}
    taken = memory(program)
    symbols = taken.bytes.symbols | taken.inputs.symbols | taken.outputs.symbols
    free = sorted(name for name in symbols if bounds.get(name, 0) is None)
    if free:
        raise OptionError(
            f"{signature.name}: its memory is unknown: data determines {quote_list(free)}, "
            "without upper bound",
            "give them bounds: dims={'count': ad.Dim('count', 0, 100)}",
        )
    most = {name: as_size(bound or 0) for name, bound in bounds.items()}
    launches, kinds = as_size(0), Counter[tuple[Size, Size]]()
    is_bounded = not program.engines
    for each in (each for each in known.work if not each.kept):
        is_bounded = is_bounded and not each.depends_on(bounds)
        often = as_size(1) if each.times is None else each.times.substitute(most)
        launches = launches + often
        flops, moved = (
            each.at(size).substitute(most) for size in (each.site.flops, each.site.moved)
        )
        kinds[often * flops, often * moved] += 1
    return Work(
        taken.bytes.substitute(most), taken.inputs, taken.outputs.substitute(most), launches,
        tuple((often, *pair) for pair, often in kinds.items()), is_bounded,
    )  # fmt: skip


NO_WORK = Work(*(as_size(0),) * 4, (), True)
"""Of a call without native code."""


class Rates:
    """Seconds per launch, per operation and per byte moved, fitted to timed calls.

    A launch takes the maximum of its compute and memory time: packed weights of a group are read
    once, so small groups are memory-bound. The initial rates are generic; the fit explains the
    timed calls best.
    """

    _FIRST = (2e-6, 1.5e-11, 1e-10)
    _TRUST = 0.2  # weight of the ratios of the initial rates, relative to one timed call
    _KEPT = 64  # the last calls, to which rates are fitted

    def __init__(self) -> None:
        self._calls: list[tuple[Mapping[str, int], float]] = []
        self._new = 0.0  # seconds of calls since the last fit
        self._fit_seconds = 0.005
        self.fits = 0  # how often `now` changed
        self.now = numpy.array(self._FIRST)

    def seconds(self, done: Done) -> numpy.ndarray:
        """Seconds of calls [points] at the present rates."""
        return _seconds(self.now, done)

    def serial(self, done: Done, threads: int) -> numpy.ndarray:
        """Seconds of calls [points] if launches, arithmetic and memory traffic never overlap."""
        launch, flop, byte = self.now
        flops, moved = done.flops.sum(axis=0), done.moved.sum(axis=0)
        return launch * done.launches + flop / threads * flops + byte * moved

    def learn(self, sizes: Mapping[str, int], seconds: float) -> None:
        """Record the measured time of a call."""
        self._calls = [*self._calls, (sizes, max(seconds, 1e-9))][-self._KEPT :]
        self._new += seconds

    @property
    def is_due(self) -> bool:
        """Whether a fit would take a small share of the time of the calls since the last fit."""
        return self._new > _WORTH * self._fit_seconds

    def fit(self, at: Callable[[Columns], Done]) -> None:
        """Fit the rates to the recorded calls: least sum of absolute errors of log times.

        `at` returns the work of calls at given sizes.
        """
        calls, start = list(self._calls), perf_counter()
        if not calls:
            return
        names = calls[0][0]
        done = at({name: numpy.array([each[name] for each, _ in calls]) for name in names})
        took = numpy.log([seconds for _, seconds in calls])
        first = numpy.log(self._FIRST)

        def loss(rates: numpy.ndarray) -> float:
            apart = rates - first
            found = numpy.log(_seconds(numpy.exp(rates), done) + 1e-12)
            ratios = ((apart - apart.mean()) ** 2).sum()
            return float(numpy.abs(found - took).sum() + self._TRUST * ratios)

        self.now = numpy.exp(_minimise(loss, numpy.log(self.now)))
        self._fit_seconds, self._new = perf_counter() - start, 0.0
        self.fits += 1


def _seconds(rates: numpy.ndarray, done: Done) -> numpy.ndarray:
    launch, flop, byte = rates
    longer = numpy.maximum(flop * done.flops, byte * done.moved)
    return launch * done.launches + longer.sum(axis=0)


def _minimise(loss: Callable[[numpy.ndarray], float], start: numpy.ndarray) -> numpy.ndarray:
    """Minimise `loss` by coordinate descent from `start`."""
    ways = [numpy.ones(len(start)), *numpy.eye(len(start))]
    best, error, step = start, loss(start), 1.0
    for _ in range(_MOST_TRIES):
        tried = [best + sign * step * way for way in ways for sign in (1, -1)]
        errors = [loss(each) for each in tried]
        place = int(numpy.argmin(errors))
        if errors[place] < error:
            best, error = tried[place], errors[place]
        elif step < 0.01:
            break
        else:
            step /= 2
    return best
