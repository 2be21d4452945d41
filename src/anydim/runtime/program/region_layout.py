"""Layout of the slots of regions in the memory of a call.

Each region has its own slots, since no region recurses. So have the blocks of its segments, which
keep the sizes that they are bound to. A value has a slot for the address of its elements, one for
the block that contains them (0: an input or a constant, which outlives the call) and one per size.
Address and sizes of a segment's result are in the segment's block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from anydim.base.records import dataclass
from anydim.runtime import context, slots
from anydim.runtime.layout import Layout
from anydim.runtime.program.program import Program
from anydim.runtime.program.region import CopyStep, EngineStep, LoopStep, Region, SegmentStep, Stack
from anydim.runtime.signature import TensorSpec


@dataclass(frozen=True)
class ValueSlots:
    """The slots of a value; `shape` is the first of its sizes."""

    data: int
    owner: int
    shape: int


@dataclass(frozen=True)
class Target:
    """Slots that request the address and the block of a region's result; 0: any."""

    data: int
    owner: int


@dataclass(frozen=True)
class LoopSlots:
    """Slots of a loop: remaining iterations, whether to continue, and the first one of its
    stacks."""

    trips: int
    going: int
    stacks: int


CAPACITY, BYTES, AT = range(
    3
)  # slots of a stack: capacity in slices, bytes of a slice, destination
STACK_WORDS = 3


@dataclass(frozen=True)
class SegmentSlots:
    """Segment `number` of the program.

    Slots: the address of its block; whether it is bound; the bytes of results.
    """

    number: int
    base: int
    layout: Layout
    bound: int
    bytes: int


@dataclass(frozen=True)
class DelegatedSlots:
    """Slots of a delegated part: its function, and its first argument."""

    function: int
    first: int


@dataclass(frozen=True)
class RegionSlots:
    """The slots of a region; segments, loops and delegated parts by step number, targets by result.

    `events` are those of copies to the host, by step number.
    """

    dims: Mapping[str, int]
    values: Mapping[str, ValueSlots]
    results: tuple[ValueSlots, ...]
    moved: tuple[bool, ...]
    segments: Mapping[int, SegmentSlots]
    loops: Mapping[int, LoopSlots]
    targets: Mapping[int, Target]
    events: Mapping[int, int]
    handed: Mapping[int, DelegatedSlots]


@dataclass
class _Words:
    """Allocates consecutive slots, and numbers of segments."""

    next: int = context.WORDS
    segments: int = 0

    def take(self, count: int = 1) -> int:
        first = self.next
        self.next += count
        return first


@dataclass(frozen=True)
class RegionLayout:
    """All slots of a call; `regions` in program order.

    `homes` are the first slots of each device (`runtime/slots.py`).
    """

    regions: tuple[RegionSlots, ...]
    words: int
    homes: Mapping[str, int]


def region_layout(program: Program) -> RegionLayout:
    """Return the layout of a program."""
    words = _Words()
    homes = {device: words.take(slots.WORDS) for device in program.devices}
    wanted = stack_targets(program)
    regions = tuple(
        _Region(region, words, wanted[number]).places()
        for number, region in enumerate(program.regions)
    )
    return RegionLayout(regions, words.next, homes)


def stack_targets(program: Program) -> list[set[int]]:
    """Return, for each region, the results that can be written directly to a stack of a loop around
    it."""
    found: list[set[int]] = [set() for _ in program.regions]
    for region in program.regions:
        for step in region.steps:
            if isinstance(step, LoopStep):
                found[step.body].update(_slices(program.regions[step.body], region, step))
    return found


def _slices(body: Region, region: Region, step: LoopStep) -> Iterator[int]:
    """Yield the results of a body that are slices with sizes known outside, produced by segments.

    A slice that is also carried to the next iteration must not be overwritten by a later one.
    """
    first = len(step.carried) + (step.condition is not None)
    outputs = body.signature.outputs
    names = [spec.name for spec in outputs]
    made = {name for part in body.segments for name in part.makes}
    for number, stack in enumerate(step.stacks):
        known = {step.counter, *region.signature.box.names}
        if stack.joined or not stack.position.symbols <= known:  # the body finds the position
            continue
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
    """Whether no two iterations write the same slice."""
    if stack.extent is None:
        return True
    split = stack.position.linear_in((counter,))
    return split is not None and split[0][counter].constant not in (None, 0)


@dataclass
class _Region:
    region: Region
    words: _Words
    aimed: set[int]
    values: dict[str, ValueSlots] = field(default_factory=dict)
    segments: dict[int, SegmentSlots] = field(default_factory=dict)
    loops: dict[int, LoopSlots] = field(default_factory=dict)
    events: dict[int, int] = field(default_factory=dict)
    handed: dict[int, DelegatedSlots] = field(default_factory=dict)

    def places(self) -> RegionSlots:
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
                self.handed[number] = DelegatedSlots(
                    words.take(), words.take(self._delegated_slots(step))
                )
            if isinstance(step, LoopStep):
                stacks = words.take(STACK_WORDS * len(step.stacks))
                self.loops[number] = LoopSlots(words.take(), words.take(), stacks)
        moved = self._moved_results()
        results = tuple(
            self.values[spec.name] if own else self._fresh(spec)
            for spec, own in zip(region.signature.outputs, moved)
        )
        targets = {output: Target(words.take(), words.take()) for output in sorted(self.aimed)}
        return RegionSlots(
            dims, self.values, results, moved, self.segments, self.loops, targets, self.events,
            self.handed,
        )  # fmt: skip

    def _delegated_slots(self, step: EngineStep) -> int:
        """Return the number of slots of a delegated part: `runtime/delegated.py`."""
        values = [self.region.values[name] for name in (*step.reads, *step.makes)]
        return sum(1 + spec.rank for spec in values) + sum(len(s) for _, s in step.vectors)

    def _inputs(self, specs: tuple[TensorSpec, ...]) -> None:
        """Allocate owners, then addresses, then sizes, so that a caller writes both at once."""
        owners, data = self.words.take(len(specs)), self.words.take(len(specs))
        for number, spec in enumerate(specs):
            shape = self.words.take(spec.rank)
            self.values[spec.name] = ValueSlots(data + number, owners + number, shape)

    def _fresh(self, spec: TensorSpec) -> ValueSlots:
        return ValueSlots(self.words.take(), self.words.take(), self.words.take(spec.rank))

    def _value(self, spec: TensorSpec) -> None:
        self.values[spec.name] = self._fresh(spec)

    def _segment(self, step: SegmentStep) -> SegmentSlots:
        segment, signature = step.segment, step.segment.signature
        layout = Layout.of(signature, segment.words, len(segment.positions))
        base, first = self.words.take(layout.words), len(signature.inputs)
        for number, name in enumerate(step.makes):
            self.values[name] = ValueSlots(
                base + layout.pointer(first + number), self.words.take(),
                base + layout.output_axis(number, 0),
            )  # fmt: skip
        bound, sizes = self.words.take(), self.words.take(len(signature.outputs))
        self.words.segments += 1
        return SegmentSlots(self.words.segments - 1, base, layout, bound, sizes)

    def _moved_results(self) -> tuple[bool, ...]:
        """Whether each result is a value of a step at its first use as a result.

        Its ownership then moves; further uses share it.
        """
        made = {name for step in self.region.steps for name in step.makes}
        names = [spec.name for spec in self.region.signature.outputs]
        return tuple(
            name in made and name not in names[:number] for number, name in enumerate(names)
        )
