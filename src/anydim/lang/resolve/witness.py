"""Witnesses for errors: small sizes, and index values, at which a program fails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice, product
from random import Random
from typing import Any

import numpy

from anydim.base.errors import AnydimError
from anydim.base.records import dataclass
from anydim.lang.meaning.evaluate import allocate_zeros, check_guards, runner
from anydim.lang.meaning.steps import StepRunner
from anydim.lang.resolve.written_parts import bare
from anydim.lang.tree import Axis, Expr, Group, OrderedStep, Read, Statement, Write
from anydim.lang.tree.affine import affine, reads
from anydim.sizes import Box, Size

MAX_TRIES = 40
MAX_COMBINED = 5  # up to this many dims, all combinations of small sizes are tried
MAX_COMBINATIONS = 1024
MAX_CORNERS = 256
MAX_ELEMENTS = 4096  # per tensor of a trial run
MAX_ITERATIONS = 3000  # over all runs
MAX_RUNS = 60
Sizes = dict[str, int]


def format_values(values: Mapping[str, int]) -> str:
    """Format values, such as `N = 3, t = 0`."""
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def small_sizes(box: Box) -> Iterator[Sizes]:
    """Yield sizes inside a box, small ones first."""
    values = (1, 2, 3, 0) if len(box.dims) <= MAX_COMBINED else (1, 2)
    for chosen in sorted(islice(product(values, repeat=len(box.dims)), MAX_COMBINATIONS), key=sum):
        sizes = {dim.name: dim.lo + n for dim, n in zip(box.dims, chosen)}
        if box.contains(sizes):
            yield sizes
    rng = Random(len(box.dims))
    try:
        for _ in range(MAX_TRIES):
            yield box.sample(rng)
    except AnydimError:
        return


# ---- reads out of bounds -----------------------------------------------------------------------


def escape(
    index: Expr, size: Size, extents: Mapping[str, Size], box: Box
) -> tuple[Sizes, int] | None:
    """Sizes and index values at which an index is out of 0:size, and its value there; None if not
    found."""
    form = affine(index)
    if form is None:
        return None
    for sizes in small_sizes(box):
        try:
            lengths = {name: extents[name].evaluate(sizes) for name in extents}
            limit = size.evaluate(sizes)
            if any(length <= 0 for length in lengths.values()):
                continue
            ends = [sorted({0, lengths[name] - 1}) for name in form.indices]
            for values in islice(product(*ends), MAX_CORNERS):
                at = dict(zip(form.indices, values))
                found = form.constant.evaluate(sizes)
                found += sum(c.evaluate(sizes) * at[name] for name, c in form.terms)
                if not 0 <= found < limit:
                    used = index_symbols(form.constant, *(c for _, c in form.terms), size)
                    return {**{n: sizes[n] for n in sizes if n in used}, **at}, found
        except (AnydimError, KeyError):
            continue
    return None


def index_symbols(*sizes: Size) -> set[str]:
    """The names that sizes depend on."""
    return {name for size in sizes for name in size.symbols}


# ---- reads before writes -----------------------------------------------------------------------


@dataclass(frozen=True)
class Early:
    """A read of an element before it is written; without a read: an element never written."""

    tensor: str
    at: tuple[int, ...]
    sizes: Sizes
    indices: Sizes
    later: bool  # whether it is written later
    step: OrderedStep | None = None
    read: Read | None = None

    @property
    def text(self) -> str:
        """Text such as `at T = 1, t = 0, h(1, 0) is read before it is written`."""
        element = f"{self.tensor}({', '.join(map(str, self.at))})" if self.at else self.tensor
        where = format_values({**self.sizes, **self.indices})
        if self.read is None:
            what = "is never written"
        else:
            what = f"is read {'before it' if self.later else 'and never'} is written"
            what = what.replace("and never is", "but never")
        return f"with {where}, {element} {what}" if where else f"{element} {what}"


class _Found(Exception):
    def __init__(self, early: Early) -> None:
        self.early = early


def early_read(group: Group, box: Box) -> Early | None:
    """Run the steps at small sizes to find a read of an unwritten element; None: not found."""
    iterations = [0]
    for sizes in islice(small_sizes(box), MAX_RUNS):
        try:
            check_guards(group.guards, sizes)
            tensors = (*group.inputs, *group.outputs, *group.temporaries)
            shapes = [[s.evaluate(sizes) for s in t.type.shape] for t in tensors]
            if any(numpy.prod([max(n, 0) for n in shape]) > MAX_ELEMENTS for shape in shapes):
                continue
            _watch(group, sizes, iterations)
        except _Found as found:
            return found.early
        except _TooLong:
            break
        except AnydimError:
            continue
    return None


def _watch(group: Group, sizes: Sizes, iterations: list[int]) -> None:
    types = {t.name: t.type for t in (*group.inputs, *group.outputs, *group.temporaries)}
    values = allocate_zeros(types, sizes)
    masks = {name: numpy.zeros(value.shape, bool) for name, value in values.items()}
    for tensor in group.inputs:
        masks[tensor.name][...] = True
    with numpy.errstate(all="ignore"):
        watcher = _Watcher(types, values, runner(types, values), masks, iterations)
        watcher.run(group.steps, sizes)
    if watcher.early is not None:
        raise _Found(watcher.settled())
    for tensor in group.outputs:
        missing = numpy.argwhere(~masks[tensor.name])
        if len(missing):
            at = tuple(map(int, missing[0]))
            raise _Found(Early(tensor.name, at, sizes, {}, False))


class _TooLong(Exception):
    pass


@dataclass
class _Watcher(StepRunner):
    masks: dict[str, Any] = field(default_factory=dict)
    iterations: list[int] = field(default_factory=lambda: [0])  # over all runs
    early: Early | None = None

    def run(self, steps: Sequence[OrderedStep], sizes: Mapping[str, int]) -> None:
        self.iterations[0] += 1
        if self.iterations[0] > MAX_ITERATIONS:
            raise _TooLong
        super().run(steps, sizes)

    def assign(self, step: Statement | Write, sizes: Mapping[str, int]) -> None:
        axes = (*step.axes, *step.reduced)
        for read in _reads_of(step):
            self._check(step, read, axes, dict(sizes))
        super().assign(step, sizes)
        mask = self.masks[step.target]
        if isinstance(step, Statement):
            self.masks[step.target] = numpy.ones(self.values[step.target].shape, bool)
        elif not step.combine or step.fresh:
            mask[tuple(self.position(step, axis, sizes) for axis in range(mask.ndim))] = True

    def _check(self, step: OrderedStep, read: Read, axes: tuple[Axis, ...], sizes: Sizes) -> None:
        mask = self.masks[read.tensor]
        mask = mask.reshape(-1) if read.flat else mask
        lengths = [axis.extent.evaluate(sizes) for axis in axes]
        if self.early is not None or mask.all() or any(length <= 0 for length in lengths):
            return
        positions = [
            self.compute(Statement(read.tensor, axes, bare(i)), sizes) for i in read.indices
        ]
        inside: Any = numpy.ones(lengths, bool)
        for position, length in zip(positions, mask.shape):
            inside = inside & (position >= 0) & (position < length)
        safe = tuple(numpy.where(inside, position, 0) for position in positions)
        wrong = numpy.argwhere(inside & ~mask[safe] if safe else inside & ~mask)
        if len(wrong):
            first = tuple(map(int, wrong[0]))
            at = tuple(int(position[first]) for position in positions)
            indices = dict(zip((axis.name for axis in axes), first))
            self.early = Early(read.tensor, at, sizes, indices, False, step, read)

    def settled(self) -> Early:
        """The finding, with whether the element is written later."""
        assert self.early is not None and self.early.read is not None
        mask = self.masks[self.early.tensor]
        mask = mask.reshape(-1) if self.early.read.flat else mask
        later = bool(mask[self.early.at])
        old = self.early
        return Early(old.tensor, old.at, old.sizes, old.indices, later, old.step, old.read)


def _reads_of(step: Statement | Write) -> Iterable[Read]:
    found = list(reads(step.body))
    if isinstance(step, Write):
        found += [read for index in step.indices for read in reads(index)]
        if step.combine and not step.fresh:
            found.append(Read(step.target, step.indices))
    return found
