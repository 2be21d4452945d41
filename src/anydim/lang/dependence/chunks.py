"""Ranges along which a whole nest can be split: each chunk writes what no other chunk accesses.

    for t in 0:T { h(t, b, i) = h(t - 1, b, i) * f(t, b, i) + x(t, b, i) }

can be split along b, or along i: each chunk runs all iterations of t without synchronisation. A
split assigns to every write one of its axes, or a loop around it, whose value plus an offset is
the position in the range; every written tensor has a dimension indexed by that position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from anydim.base.records import dataclass
from anydim.lang.dependence.accesses import Access, Instance, LinearForm, LoopAt, accesses
from anydim.lang.dependence.starts import private
from anydim.lang.tree import SizeTerm, TensorType
from anydim.sizes import Box, Size, Truth, as_size, maximum, prove, simplify


@dataclass(frozen=True)
class ChunkedWrite:
    """How a write is split: `variable` + `offset` is its position in the range.

    `kind` is 'axis' or 'loop', `variable` the name of the axis or the number of the loop.
    """

    kind: str
    variable: str | int
    offset: Size


@dataclass(frozen=True)
class Chunks:
    """A range 0:extent and the split of each write, by number; `axis` describes it."""

    extent: Size
    cuts: Mapping[int, ChunkedWrite]
    loops: Mapping[int, ChunkedWrite]
    axis: str

    def __hash__(self) -> int:
        return hash((self.extent, self.axis, tuple(sorted(self.cuts))))


def split_ranges(
    found: Sequence[Instance], types: Mapping[str, TensorType], hidden: Iterable[str], box: Box,
    still: Callable[[Access], bool] = lambda access: False,
) -> Iterator[Chunks]:  # fmt: skip
    """Yield all ranges along which the nest can be split, outer loops and axes first.

    Each chunk has private copies of `hidden` tensors, so one that lives in an iteration of a loop
    is no obstacle. Neither is a `still` access, whose elements no write touches.
    """
    writes = [instance for instance in found if instance.write is not None]
    if not writes:
        return
    first = max(writes, key=lambda instance: len(_candidates(instance)))
    for kind, variable in _candidates(first):
        growth = _Growth(found, types, frozenset(hidden), box, still)
        if growth.grow(first, ChunkedWrite(kind, variable, as_size(0))):
            chunks = growth.chunks()
            if chunks is not None:
                yield chunks


def _candidates(instance: Instance) -> list[tuple[str, str | int]]:
    """The loops and axes of a write along which it may be split, outermost first."""
    assert instance.write is not None
    loops: list[tuple[str, str | int]] = [
        ("loop", at.number) for at in instance.loops if at.loop.step == 1
    ]
    return [*loops, *(("axis", axis.name) for axis in instance.write.axes)]


@dataclass
class _Growth:
    """Propagates splits from write to write through the written tensors."""

    found: Sequence[Instance]
    types: Mapping[str, TensorType]
    hidden: frozenset[str]
    box: Box
    still: Callable[[Access], bool]
    cuts: dict[int, ChunkedWrite] = field(default_factory=dict)  # by index in `found`
    tensors: dict[str, tuple[int, Size]] = field(default_factory=dict)  # dimension, shift

    def __post_init__(self) -> None:
        types = dict(self.types)
        self.accesses = [
            tuple(a for a in accesses(instance, types) if not self.still(a))
            for instance in self.found
        ]
        self.written = {a.tensor for all in self.accesses for a in all if a.writes}

    def grow(self, seed: Instance, cut: ChunkedWrite) -> bool:
        """Whether all writes can be split such that the seed is split as given."""
        position = next(n for n, instance in enumerate(self.found) if instance is seed)
        if not self._assign(position, cut):
            return False
        for number, instance in enumerate(self.found):
            if number not in self.cuts and instance.write is not None:
                if not any(self._try(number, cut) for cut in self._options(instance)):
                    return False
        return self._loops_agree()

    def _options(self, instance: Instance) -> list[ChunkedWrite]:
        """Possible splits of a write: a loop around it that is split already, or any."""
        around = {at.number for at in instance.loops}
        chosen = [c for c in self.cuts.values() if c.kind == "loop" and c.variable in around]
        every = [ChunkedWrite(*candidate, as_size(0)) for candidate in _candidates(instance)]
        return chosen[:1] or every

    def _own(self, number: int, cut: ChunkedWrite, tensor: str) -> bool:
        """Whether each chunk has a private copy of the tensor."""
        if tensor not in self.hidden or not isinstance(cut.variable, int):
            return False
        at = _loop(self.found[number], cut.variable)
        return private(tensor, at, self.found, self.types, self.box)

    def _try(self, number: int, cut: ChunkedWrite) -> bool:
        saved = dict(self.cuts), dict(self.tensors)
        if self._assign(number, cut):
            return True
        self.cuts, self.tensors = saved
        return False

    def _assign(self, number: int, cut: ChunkedWrite) -> bool:
        waiting = [(number, cut)]
        while waiting:
            number, cut = waiting.pop()
            if number in self.cuts:
                if self.cuts[number] != cut:
                    return False
                continue
            self.cuts[number] = cut
            for tensor in dict.fromkeys(a.tensor for a in self.accesses[number]):
                if tensor in self.written and not self._own(number, cut, tensor):
                    reached = self._spread(number, cut, tensor)
                    if reached is None:
                        return False
                    waiting += reached
        return True

    def _spread(
        self, number: int, cut: ChunkedWrite, tensor: str
    ) -> list[tuple[int, ChunkedWrite]] | None:
        """The splits that a tensor implies for other writes; None when it cannot be split so."""
        own = [a for a in self.accesses[number] if a.tensor == tensor]
        if tensor in self.tensors:
            fits = _shift(own, cut, self.tensors[tensor][0]) == self.tensors[tensor][1]
            return [] if fits else None
        for dimension in range(self.types[tensor].rank):
            shift = _shift(own, cut, dimension)
            if shift is not None:
                self.tensors[tensor] = dimension, shift
                return self._others(tensor, dimension, shift)
        return None

    def _others(
        self, tensor: str, dimension: int, shift: Size
    ) -> list[tuple[int, ChunkedWrite]] | None:
        reached = []
        for number, all in enumerate(self.accesses):
            touching = [a for a in all if a.tensor == tensor]
            if not touching:
                continue
            form = touching[0].form(dimension)
            alone = None if form is None else form.alone
            if form is None or alone is None or not _may_cut(self.found[number], alone):
                return None
            cut = ChunkedWrite(*alone, form.rest - shift)
            if _shift(touching, cut, dimension) != shift:
                return None
            reached.append((number, cut))
        return reached

    def _loops_agree(self) -> bool:
        """Whether a split loop is split for everything it contains."""
        chosen = {c.variable: c for c in self.cuts.values() if c.kind == "loop"}
        for number, instance in enumerate(self.found):
            for at in instance.loops:
                touches = instance.write is not None or any(
                    a.tensor in self.written - self.hidden for a in self.accesses[number]
                )
                if at.number in chosen and touches and self.cuts.get(number) != chosen[at.number]:
                    return False
        return True

    def chunks(self) -> Chunks | None:
        """The range, if it is known before the kernel runs and starts at 0."""
        ends = []
        names: dict[str, None] = {}
        for number, cut in self.cuts.items():
            span = _span(self.found[number], cut)
            if span is None or _at_least_zero(span[0], self.box) is not True:
                return None
            ends.append(span[1])
            names[_name(self.found[number], cut)] = None
        around = {at.variable for instance in self.found for at in instance.loops}
        if any(end.symbols & around for end in ends):
            return None
        extent = simplify(maximum(0, *ends), self.box)
        cuts = {
            self.found[number].number: cut
            for number, cut in self.cuts.items()
            if self.found[number].write is not None
        }
        loops = {c.variable: c for c in cuts.values() if isinstance(c.variable, int)}
        return Chunks(extent, cuts, loops, " and ".join(names))


def _at_least_zero(size: Size, box: Box) -> bool:
    return size == 0 or prove(size, ">=", 0, box) is Truth.PROVED


def _span(instance: Instance, cut: ChunkedWrite) -> tuple[Size, Size] | None:
    """The first position of a split, and the one after its last."""
    if cut.kind == "axis":
        axis = next(axis for axis in instance.axes if axis.name == cut.variable)
        return cut.offset, cut.offset + axis.extent
    loop = next(at for at in instance.loops if at.number == cut.variable).loop
    if not isinstance(loop.start, SizeTerm) or not isinstance(loop.stop, SizeTerm):
        return None
    return cut.offset + loop.start.size, cut.offset + loop.stop.size


def _name(instance: Instance, cut: ChunkedWrite) -> str:
    if cut.kind == "axis":
        return str(cut.variable)
    return next(at for at in instance.loops if at.number == cut.variable).variable


def _may_cut(instance: Instance, alone: tuple[str, int]) -> bool:
    """Whether a variable is a loop with step 1, or an axis of the result."""
    kind, variable = alone
    if kind == "loop":
        return _loop(instance, variable).loop.step == 1
    return instance.write is not None and any(a.name == variable for a in instance.write.axes)


def _loop(instance: Instance, number: int) -> LoopAt:
    return next(at for at in instance.loops if at.number == number)


def _shift(touching: Sequence[Access], cut: ChunkedWrite, dimension: int) -> Size | None:
    """Constant offset of a dimension's indices from the position; None if accesses differ."""
    shifts = [_distance(access.form(dimension), cut) for access in touching]
    return shifts[0] if shifts and all(s == shifts[0] for s in shifts) else None


def _distance(form: LinearForm | None, cut: ChunkedWrite) -> Size | None:
    if form is None or form.alone != (cut.kind, cut.variable):
        return None
    return form.rest - cut.offset
