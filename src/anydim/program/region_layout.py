"""Where the regions of a program keep their words in the memory of a call.

Every region has words of its own, whoever runs it: no region runs inside itself. So do the blocks
of its segments, which keep the sizes that they were bound to. A value has a word for the address of
its elements, one for the block that holds them (0: they lie in an input or a constant, which
outlive the call) and a word for each size. Of a result that a segment makes, address and sizes are
those in the segment's block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from anydim.base.records import dataclass
from anydim.program.program import Program
from anydim.program.region import CopyStep, EngineStep, LoopStep, Region, SegmentStep, Stack
from anydim.runtime import context, slots
from anydim.runtime.layout import Layout
from anydim.runtime.signature import TensorSpec


@dataclass(frozen=True)
class Place:
    """The words of a value; `shape` is the first of its sizes."""

    data: int
    owner: int
    shape: int


@dataclass(frozen=True)
class Target:
    """Words that say where a result of a region is wanted, and in which block; 0: anywhere."""

    data: int
    owner: int


@dataclass(frozen=True)
class LoopPlace:
    """Words of a loop: iterations to do, whether to go on, and the first of those of its stacks."""

    trips: int
    going: int
    stacks: int


ROOM, BYTES, AT = range(3)  # of a stack: slices it has room for, bytes of one, where one goes
STACK_WORDS = 3


@dataclass(frozen=True)
class SegmentPlace:
    """Segment `number` of the program.

    Words: where its block begins, which has a layout; whether it is bound; the bytes of results.
    """

    number: int
    base: int
    layout: Layout
    bound: int
    bytes: int


@dataclass(frozen=True)
class HandedPlace:
    """Words of a part that an engine runs: where its function is, and the first that this reads."""

    function: int
    first: int


@dataclass(frozen=True)
class RegionPlaces:
    """The words of a region; segments, loops and parts of engines by the number of the step,
    targets by result.

    `events` are those of copies to the host, by the number of the step.
    """

    dims: Mapping[str, int]
    values: Mapping[str, Place]
    results: tuple[Place, ...]
    moved: tuple[bool, ...]
    segments: Mapping[int, SegmentPlace]
    loops: Mapping[int, LoopPlace]
    targets: Mapping[int, Target]
    events: Mapping[int, int]
    handed: Mapping[int, HandedPlace]


@dataclass
class _Words:
    """Hands out words one after the other, and numbers to segments."""

    next: int = context.WORDS
    segments: int = 0

    def take(self, count: int = 1) -> int:
        first = self.next
        self.next += count
        return first


@dataclass(frozen=True)
class RegionLayout:
    """All words of a call; `regions` in the order of the program.

    `homes` are the first words of what is kept for each device (`runtime/slots.py`).
    """

    regions: tuple[RegionPlaces, ...]
    words: int
    homes: Mapping[str, int]


def region_layout(program: Program) -> RegionLayout:
    """The layout for a program."""
    words = _Words()
    homes = {device: words.take(slots.WORDS) for device in program.devices}
    wanted = aimed(program)
    regions = tuple(
        _Region(region, words, wanted[number]).places()
        for number, region in enumerate(program.regions)
    )
    return RegionLayout(regions, words.next, homes)


def aimed(program: Program) -> list[set[int]]:
    """For each region, the results that may be made right in a stack of a loop around it."""
    found: list[set[int]] = [set() for _ in program.regions]
    for region in program.regions:
        for step in region.steps:
            if isinstance(step, LoopStep):
                found[step.body].update(_slices(program.regions[step.body], region, step))
    return found


def _slices(body: Region, region: Region, step: LoopStep) -> Iterator[int]:
    """The results of a body that are slices of sizes known outside, made by segments.

    One that is also carried to the next iteration must not be written over by a later one.
    """
    first = len(step.carried) + (step.condition is not None)
    outputs = body.signature.outputs
    names = [spec.name for spec in outputs]
    made = {name for part in body.segments for name in part.makes}
    for number, stack in enumerate(step.stacks):
        output = outputs[first + number]
        outside = region.values[step.makes[len(step.carried) + number]].shape[1:]
        dims = frozenset().union(*(size.symbols for size in outside))
        if output.name not in made or output.shape != outside:
            continue
        if not dims <= body.given - {step.counter} or names[first:].count(output.name) > 1:
            continue
        if output.name not in names[:first] or _distinct(stack, step.counter):
            yield first + number


def _distinct(stack: Stack, counter: str) -> bool:
    """Whether no two iterations write one slice."""
    if stack.extent is None:
        return True
    split = stack.position.linear_in((counter,))
    return split is not None and split[0][counter].constant not in (None, 0)


@dataclass
class _Region:
    region: Region
    words: _Words
    aimed: set[int]
    values: dict[str, Place] = field(default_factory=dict)
    segments: dict[int, SegmentPlace] = field(default_factory=dict)
    loops: dict[int, LoopPlace] = field(default_factory=dict)
    events: dict[int, int] = field(default_factory=dict)
    handed: dict[int, HandedPlace] = field(default_factory=dict)

    def places(self) -> RegionPlaces:
        region, words = self.region, self.words
        dims = {name: words.take() for name in region.signature.box.names}
        self._inputs(region.signature.inputs)
        for name in region.constants:
            self._value(region.values[name])
        for number, step in enumerate(region.steps):
            if isinstance(step, SegmentStep):
                self.segments[number] = self._segment(step)
                continue
            if isinstance(step, CopyStep):
                self.events[number] = words.take()
            for name in step.makes:
                self._value(region.values[name])
            if isinstance(step, EngineStep):
                self.handed[number] = HandedPlace(words.take(), words.take(self._handed(step)))
            if isinstance(step, LoopStep):
                stacks = words.take(STACK_WORDS * len(step.stacks))
                self.loops[number] = LoopPlace(words.take(), words.take(), stacks)
        moved = self._moved()
        results = tuple(
            self.values[spec.name] if own else self._fresh(spec)
            for spec, own in zip(region.signature.outputs, moved)
        )
        targets = {output: Target(words.take(), words.take()) for output in sorted(self.aimed)}
        return RegionPlaces(
            dims, self.values, results, moved, self.segments, self.loops, targets, self.events,
            self.handed,
        )  # fmt: skip

    def _handed(self, step: EngineStep) -> int:
        """How many words a part of an engine reads: `runtime/delegated.py`."""
        values = [self.region.values[name] for name in (*step.reads, *step.makes)]
        return sum(1 + spec.rank for spec in values) + sum(len(s) for _, s in step.vectors)

    def _inputs(self, specs: tuple[TensorSpec, ...]) -> None:
        """Owners, then addresses, then sizes, so that a caller can write both in one go."""
        owners, data = self.words.take(len(specs)), self.words.take(len(specs))
        for number, spec in enumerate(specs):
            shape = self.words.take(spec.rank)
            self.values[spec.name] = Place(data + number, owners + number, shape)

    def _fresh(self, spec: TensorSpec) -> Place:
        return Place(self.words.take(), self.words.take(), self.words.take(spec.rank))

    def _value(self, spec: TensorSpec) -> None:
        self.values[spec.name] = self._fresh(spec)

    def _segment(self, step: SegmentStep) -> SegmentPlace:
        segment, signature = step.segment, step.segment.signature
        layout = Layout.of(signature, len(segment.slots), len(segment.positions))
        base, first = self.words.take(layout.words), len(signature.inputs)
        for number, name in enumerate(step.makes):
            self.values[name] = Place(
                base + layout.pointer(first + number), self.words.take(),
                base + layout.output_axis(number, 0),
            )  # fmt: skip
        bound, sizes = self.words.take(), self.words.take(len(signature.outputs))
        self.words.segments += 1
        return SegmentPlace(self.words.segments - 1, base, layout, bound, sizes)

    def _moved(self) -> tuple[bool, ...]:
        """Whether a result is a value that a step makes, named for the first time.

        Then it changes hands; whoever gets one that is named again holds it too.
        """
        made = {name for step in self.region.steps for name in step.makes}
        names = [spec.name for spec in self.region.signature.outputs]
        return tuple(
            name in made and name not in names[:number] for number, name in enumerate(names)
        )
