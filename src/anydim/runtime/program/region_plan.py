"""Formulas of a region program: launches, memory and lifetimes.

The regions are walked once, with all dims expressed over the dims of the entry region. A dim that
only data determines is a symbol in the formulas; a dim of a nested region that changes between
iterations gets a fresh name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property

from anydim.base.records import dataclass
from anydim.runtime.program.binding import solve
from anydim.runtime.program.program import Program
from anydim.runtime.program.region import (
    BranchStep,
    CallStep,
    CopyStep,
    LoopStep,
    PartStep,
    Region,
    ReleaseStep,
    SegmentStep,
    Step,
)
from anydim.runtime.program.region_layout import stack_targets
from anydim.runtime.program.segment import ALIGNMENT, Segment, Site
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Atom, Box, Covering, Dim, Size, align_up, as_size, maximum, product, prove
from anydim.sizes.proofs import Truth

_SAMPLE = 1024  # assumed size of a dim without upper bound in comparisons
_PROVEN = 12  # maximum number of sizes compared by proofs
_MOST_PROVEN = 2_000  # and their maximum characters: proofs of long ones took 0.1 s each
_GROWING = 3  # a growing stack: capacity of twice its slices, and the copied original


@dataclass(frozen=True)
class Work:
    """A launch, its sizes over the dims of the entry region, and its number of runs.

    `times` is None if data determines it. A `kept` launch runs once for distinct sizes.
    """

    site: Site
    sizes: Mapping[str, Size]
    times: Size | None
    kept: bool = False

    def at(self, size: Size) -> Size:
        return size.substitute(self.sizes)

    def reads(self, dims: Collection[str]) -> bool:
        """Whether the work of the launch depends on one of these dims."""
        needed = self.at(self.site.flops).symbols | self.at(self.site.moved).symbols
        return not needed.isdisjoint(dims)

    def depends_on(self, dims: Collection[str]) -> bool:
        """Whether its work or its number of runs does, or data determines its runs."""
        return self.times is None or self.reads(dims) or not self.times.symbols.isdisjoint(dims)


@dataclass(frozen=True)
class Moment:
    """The live values after a step of node `where`: names, and bytes of each."""

    where: str = ""
    parts: tuple[tuple[str, Size], ...] = ()

    @property
    def sizes(self) -> tuple[Size, ...]:
        return tuple(size for _, size in self.parts)

    @cached_property
    def bytes(self) -> Size:
        return _sum(self.sizes)

    def beside(self, parts: Iterable[tuple[str, Size]]) -> Moment:
        """Return the same moment plus outer values."""
        return Moment(self.where, (*parts, *self.parts))


@dataclass(frozen=True)
class Needs:
    """`values`: the maximum bytes of values that live between steps, per device; 0 in a straight
    program, whose results belong to the caller. `arena`: the maximum that one segment needs, with
    scratch, per device. `box`: the dims in these formulas. `moments`: candidates for the maximum of
    values. `kept`: cached size values of a straight program.

    `devices` has the sum of both for each device of the program, and for the host, ''.

    `parts` are the segments in the order of the walk, with their dims over those of the box.
    """

    values: Size
    arena: Size
    work: tuple[Work, ...]
    box: Box
    parts: tuple[tuple[Segment, Mapping[str, Size]], ...] = ()
    moments: tuple[Moment, ...] = ()
    kept: Size = field(default_factory=lambda: as_size(0))
    devices: Mapping[str, Size] = field(default_factory=dict)

    @property
    def bytes(self) -> Size:
        return self.values + self.arena + self.kept


def needs(program: Program) -> Needs:
    """Return the formulas of a program."""
    if program.straight is not None:
        return _straight(program.straight)
    walk = _Walk(program)
    main = len(program.regions) - 1
    box = program.signature.box
    same = {dim.name: dim.size for dim in box.dims}
    moments = walk.region(main, same, as_size(1))
    whole = box.also(*walk.others)
    places = [moments]
    if program.devices:  # each device keeps its maximum, independent of the moment
        walks = (_Walk(program, (device,)) for device in ("", *program.devices))
        places = [each.region(main, same, as_size(1)) for each in walks]
    values = [largest([moment.bytes for moment in place], whole) for place in places]
    names = ("", *program.devices)
    arenas = [
        largest(
            [p.allocated_bytes.substitute(env) for p, env in walk.parts if p.device == device],
            whole,
        )
        for device in names
    ]
    return Needs(
        _sum(values), _sum(arenas), tuple(walk.work), whole, tuple(walk.parts), tuple(moments),
        devices={name: value + arena for name, value, arena in zip(names, values, arenas)},
    )  # fmt: skip


def _straight(segment: Segment) -> Needs:
    box = segment.signature.box
    same = {dim.name: dim.size for dim in box.dims}
    first = segment.first_launch
    work = tuple(Work(s, same, as_size(1), n < first) for n, s in enumerate(segment.sites))
    parts = ((segment, same),)
    return Needs(as_size(0), segment.total_bytes, work, box, parts, kept=segment.kept_bytes)


def values_at(box: Box, sizes: Mapping[str, int]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return sizes for all dims of a box, with upper bounds for missing ones.

    Also return the dims without upper bound; they count with their lower bound.
    """
    fixed = [Dim(d.name, sizes[d.name], sizes[d.name]) if d.name in sizes else d for d in box.dims]
    ranges = Box(tuple(fixed), box.constraints).enclosure.ranges
    most = {dim.name: ranges[dim.name].hi for dim in box.dims}
    unknown = tuple(name for name, high in most.items() if high is None)
    values = {d.name: d.lo if (high := most[d.name]) is None else high for d in box.dims}
    return {**values, **sizes}, unknown


def largest(sizes: Sequence[Size], box: Box) -> Size:
    """Return the maximum of sizes, without those that another one dominates.

    Dominance is decided by coefficients, and by proofs for a few short sizes; proofs of long ones
    are slow.
    """
    sample = {dim.name: _SAMPLE if dim.hi is None else dim.hi for dim in box.dims}
    covering = Covering(box)
    kept: list[Size] = []
    terms = dict.fromkeys(term for size in sizes for term in _terms(size))
    for term in sorted(terms, key=lambda each: -each.evaluate(sample)):
        if not any(covering.covers(other, term) for other in kept):
            kept.append(term)
    if len(kept) <= _PROVEN and sum(len(str(term)) for term in kept) <= _MOST_PROVEN:
        for term in kept[:0:-1]:
            others = [other for other in kept if other is not term]
            if any(prove(term, "<=", other, box) is Truth.PROVED for other in others):
                kept = others
    return maximum(*kept) if kept else as_size(0)


def _terms(size: Size) -> tuple[Size, ...]:
    """Return the operands of a maximum."""
    atoms = [atom for monomial in size.coefficients for atom in monomial]
    if len(atoms) == 1 and isinstance(atoms[0], Atom) and size.coefficients == {(atoms[0],): 1}:
        return atoms[0].arguments if atoms[0].function == "max" else (size,)
    return (size,)


Env = Mapping[str, Size]


@dataclass
class _Walk:
    """Collects the live bytes at each step of everything that runs, on all `devices` or some."""

    program: Program
    devices: tuple[str, ...] | None = None
    parts: list[tuple[Segment, Env]] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    others: list[Dim] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._aimed = stack_targets(self.program)

    def region(self, number: int, env: Env, times: Size | None) -> list[Moment]:
        """Return the values of a region and of those that it runs, at each step."""
        region = self.program.regions[number]
        outputs = region.signature.outputs
        elsewhere = {outputs[output].name for output in self._aimed[number]}
        held: dict[str, Size] = {}
        moments = [Moment()]
        for step in region.steps:
            if isinstance(step, ReleaseStep):
                for name in step.reads:
                    held.pop(name, None)
                continue
            before = tuple(held.items())
            inside = list(self.inside(region, step, env, times))
            shared = _shared_results(step)
            for name in step.makes:
                if name not in elsewhere and name not in shared and self.counts(region, name):
                    held[name] = _bytes(region.values[name], env)
            moments.append(Moment(step.source, tuple(held.items())))
            moments += [moment.beside(before) for moment in inside]
        return list({moment.sizes: moment for moment in moments}.values())

    def inside(self, region: Region, step: Step, env: Env, times: Size | None) -> Iterator[Moment]:
        """Yield what a step runs, without the values of the region."""
        if isinstance(step, CopyStep) and step.origin and step.target:
            if self.devices is None or "" in self.devices:  # through host memory
                yield Moment(step.source, ((step.value, _bytes(region.values[step.value], env)),))
        elif isinstance(step, SegmentStep):
            self.parts.append((step.segment, env))
            self.work += [Work(site, env, times) for site in step.segment.sites]
        elif isinstance(step, BranchStep):
            for number in dict.fromkeys((step.then, step.otherwise)):
                own = self.inner(region, number, step.given, env)
                yield from self.region(number, own, times)
        elif isinstance(step, CallStep):
            own = self.inner(region, step.region, step.given, env)
            yield from self.region(step.region, own, times)
        elif isinstance(step, LoopStep):
            yield from self.loop(region, step, env, times)

    def loop(
        self, region: Region, step: LoopStep, env: Env, times: Size | None
    ) -> Iterator[Moment]:
        body = self.program.regions[step.body]
        first = len(body.signature.inputs) - len(step.given)
        carried = len(step.carried)
        makes = step.makes[carried:]
        given: list[str | None] = [*step.carried, *[None] * (first - carried), *step.given]
        for position, stack in enumerate(step.stacks):
            if stack.history:
                given[given.index(None)] = makes[position]
        results = body.signature.outputs[step.condition is not None :]
        steady = [
            spec.shape == result.shape
            for spec, result in zip(body.signature.inputs[:carried], results)
        ]
        known = self.last_iteration(step, env, body)
        own = self.inner(region, step.body, given, env, steady, known)
        trips = None
        if step.condition is None and step.trips is not None and times is not None:
            trips = times * maximum(step.trips.substitute(env), 0)
        around = [
            (spec.name, _bytes(spec, own))
            for spec in body.signature.inputs[:carried]
            if self.counts(body, spec.name)
        ]
        for number, name in enumerate(makes):
            if not self.counts(region, name) or step.stacks[number].in_place:
                continue
            room = _GROWING if self.grows(step, number) else 1
            around.append((name, _bytes(region.values[name], env) * room))
        for moment in self.region(step.body, own, trips):
            yield moment.beside(around)

    def counts(self, region: Region, name: str) -> bool:
        """Whether a value of a region is on a counted device."""
        return self.devices is None or region.devices.get(name, "") in self.devices

    def grows(self, step: LoopStep, stack: int) -> bool:
        known = step.trips is not None and step.condition is None
        return step.stacks[stack].extent is None and not known

    def last_iteration(self, step: LoopStep, env: Env, body: Region) -> dict[str, Size]:
        """Return the loop counter in the last iteration, if known."""
        if step.trips is None:
            return {step.counter: self.other(body.signature.box.dim(step.counter))}
        return {step.counter: maximum(step.trips.substitute(env) - 1, 0)}

    def inner(
        self,
        region: Region,
        number: int,
        given: Sequence[str | None],
        env: Env,
        steady: Sequence[bool] = (),
        known: Env | None = None,
    ) -> dict[str, Size]:
        """Return the dims of a nested region as sizes; `steady` lists carried inputs with constant
        sizes."""
        callee = self.program.regions[number]
        box, inputs = callee.signature.box, callee.signature.inputs
        found = {**(known or {})}
        found.update({name: env[name] for name in callee.given if name in env})
        usable = [
            spec for position, spec in enumerate(inputs)
            if given[position] is not None and (position >= len(steady) or steady[position])
        ]  # fmt: skip
        outside = dict(zip((spec.name for spec in inputs), given))
        signature = Signature("", box, tuple(usable), ())
        for source in solve(signature, frozenset(), frozenset(found)):
            name = outside[usable[source.input].name]
            assert name is not None
            size = region.values[name].shape[source.axis].substitute(env)
            rest, factor = source.rest.substitute(found), source.factor.substitute(found)
            found[source.dim] = (size - rest) // factor if factor != 1 else size - rest
        found |= {d.name: most for d in box.dims if (most := _at_most(d, box, found)) is not None}
        return {**{d.name: self.other(d) for d in box.dims if d.name not in found}, **found}

    def other(self, dim: Dim) -> Size:
        """Return a dim of a nested region under a fresh name."""
        taken = {*self.program.signature.box.names, *(other.name for other in self.others)}
        name, number = dim.name, 1
        while name in taken:
            name, number = f"{dim.name}.{number}", number + 1
        self.others.append(dim.named(name))
        return self.others[-1].size


def _shared_results(step: Step) -> frozenset[str]:
    """The results of a step in memory of its operands."""
    if isinstance(step, PartStep):
        return frozenset(step.makes)
    if isinstance(step, SegmentStep):
        return frozenset(made for made, _ in step.updates)
    if isinstance(step, LoopStep):
        stacks = zip(step.makes[len(step.carried) :], step.stacks)
        return frozenset(name for name, stack in stacks if stack.in_place)
    return frozenset()


def _at_most(dim: Dim, box: Box, known: Env) -> Size | None:
    """The dim that bounds an unknown dim by a constraint `bound - dim >= 0`; None: there is none.

    Bytes grow with sizes, so the most are those at the bound.
    """
    if dim.name in known:
        return None
    bounds = (constraint + dim.size for constraint in box.constraints)
    return next((known[str(each.atom)] for each in bounds if each.atom in known), None)


def _bytes(spec: TensorSpec, env: Env) -> Size:
    return align_up((product(spec.shape) * spec.dtype.bytes).substitute(env), ALIGNMENT)


def _sum(sizes: Iterable[Size]) -> Size:
    return sum(sizes, as_size(0))
