"""Where the regions of a program keep their words in the memory of a call.

Every region has words of its own, whoever runs it: no region runs inside itself. So do the blocks
of its segments, which keep the sizes that they were bound to. A value has a word for the address of
its elements, one for the block that holds them (0: they lie in an input or a constant, which
outlive the call) and a word for each size. Of a result that a segment makes, address and sizes are
those in the segment's block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anydim.program.region import LoopStep, Region, RegionProgram, SegmentStep
from anydim.program.steps import Program
from anydim.runtime import context
from anydim.runtime.layout import Layout
from anydim.runtime.signature import TensorSpec


@dataclass(frozen=True)
class Place:
    """The words of a value; `shape` is the first of its sizes."""

    data: int
    owner: int
    shape: int


@dataclass(frozen=True)
class SegmentPlace:
    """Where the block of a segment begins, its layout, whether it is bound, bytes of results."""

    base: int
    layout: Layout
    bound: int
    bytes: int


@dataclass(frozen=True)
class RegionPlaces:
    """The words of a region; segments and loops by the number of the step."""

    dims: Mapping[str, int]
    values: Mapping[str, Place]
    results: tuple[Place, ...]
    moved: tuple[bool, ...]
    segments: Mapping[int, SegmentPlace]
    loops: Mapping[int, int]


LOOP_WORDS = 2  # of a loop: turns to do; whether to go on
STACK_WORDS = 3  # of each of its stacks: slices it has room for, bytes of a slice, place of a slice


@dataclass
class _Words:
    """Hands out words one after the other."""

    next: int = context.WORDS

    def take(self, count: int = 1) -> int:
        first = self.next
        self.next += count
        return first


@dataclass(frozen=True)
class RegionLayout:
    """All words of a call; `regions` in the order of the program."""

    regions: tuple[RegionPlaces, ...]
    words: int


def region_layout(program: RegionProgram) -> RegionLayout:
    """The layout for a program."""
    words = _Words()
    regions = tuple(_Region(region, words).places() for region in program.regions)
    return RegionLayout(regions, words.next)


@dataclass
class _Region:
    region: Region
    words: _Words
    values: dict[str, Place] = field(default_factory=dict)
    segments: dict[int, SegmentPlace] = field(default_factory=dict)
    loops: dict[int, int] = field(default_factory=dict)

    def places(self) -> RegionPlaces:
        region, words = self.region, self.words
        dims = {name: words.take() for name in region.signature.box.names}
        self._inputs(region.signature.inputs)
        for name in region.constants:
            self._value(region.values[name])
        for number, step in enumerate(region.steps):
            if isinstance(step, SegmentStep):
                self.segments[number] = self._segment(step.program)
                continue
            for name in step.makes:
                self._value(region.values[name])
            if isinstance(step, LoopStep):
                self.loops[number] = words.take(LOOP_WORDS + STACK_WORDS * len(step.stacks))
        moved = self._moved()
        results = tuple(
            self.values[spec.name] if own else self._fresh(spec)
            for spec, own in zip(region.signature.outputs, moved)
        )
        return RegionPlaces(dims, self.values, results, moved, self.segments, self.loops)

    def _inputs(self, specs: tuple[TensorSpec, ...]) -> None:
        """Addresses, then owners, then sizes, so that a caller can write each in one go."""
        data, owners = self.words.take(len(specs)), self.words.take(len(specs))
        for number, spec in enumerate(specs):
            shape = self.words.take(spec.rank)
            self.values[spec.name] = Place(data + number, owners + number, shape)

    def _fresh(self, spec: TensorSpec) -> Place:
        return Place(self.words.take(), self.words.take(), self.words.take(spec.rank))

    def _value(self, spec: TensorSpec) -> None:
        self.values[spec.name] = self._fresh(spec)

    def _segment(self, program: Program) -> SegmentPlace:
        signature = program.signature
        layout = Layout.of(signature, len(program.slots), len(program.positions))
        base, first = self.words.take(layout.words), len(signature.inputs)
        for number, spec in enumerate(signature.outputs):
            self.values[spec.name] = Place(
                base + layout.pointer(first + number), self.words.take(),
                base + layout.output_axis(number, 0),
            )  # fmt: skip
        bound, sizes = self.words.take(), self.words.take(len(signature.outputs))
        return SegmentPlace(base, layout, bound, sizes)

    def _moved(self) -> tuple[bool, ...]:
        """Whether a result is a value that a step makes, named once: then it changes hands."""
        made = {name for step in self.region.steps for name in step.makes}
        names = [spec.name for spec in self.region.signature.outputs]
        return tuple(name in made and names.count(name) == 1 for name in names)
