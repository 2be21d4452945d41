"""A program as records: everything that the host does in a call.

Code and the contents of constants are stored separately, by the names in the records.
"""

from __future__ import annotations

from functools import cached_property

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.base.text import fold_lines
from anydim.runtime.program.recipe import Recipe
from anydim.runtime.program.region import FindStep, LoopStep, Region, SegmentStep
from anydim.runtime.program.segment import Segment, Site
from anydim.runtime.signature import Signature


@dataclass(frozen=True)
class Constant:
    """An array constant as its code reads it: contiguous, or packed for a kernel."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Bytes of the array."""
        count = self.dtype.bytes
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True)
class Program:
    """Regions that refer to each other by number; the last one is the entry.

    A straight program is one region whose only step is a segment with the same signature.
    """

    regions: tuple[Region, ...]
    constants: tuple[Constant, ...] = ()
    recipes: tuple[Recipe, ...] = ()
    threads: int = 1

    @staticmethod
    def of(
        segment: Segment, constants: tuple[Constant, ...] = (), recipes: tuple[Recipe, ...] = ()
    ) -> Program:
        """Return the program of a single segment."""
        signature = segment.signature
        values = {spec.name: spec for spec in (*signature.inputs, *signature.outputs)}
        region = Region(signature, frozenset(), values, {}, (SegmentStep(segment),))
        return Program((region,), constants, recipes, segment.threads)

    @property
    def signature(self) -> Signature:
        """The inputs and outputs of a call; the box includes dims that data determines."""
        return self.regions[-1].signature

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Every segment, in the order of regions and steps."""
        return tuple(step.segment for region in self.regions for step in region.segments)

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """Every launch, in the order of segments."""
        return tuple(site for segment in self.segments for site in segment.sites)

    @cached_property
    def host_sites(self) -> tuple[Site, ...]:
        """The launches on the host, which may have variants."""
        return tuple(s for segment in self.segments if not segment.device for s in segment.sites)

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """The devices besides the host, by their names in the program."""
        found = {segment.device for segment in self.segments}
        found.update(*(region.devices.values() for region in self.regions))
        return tuple(sorted(found - {""}))

    @cached_property
    def engines(self) -> tuple[str, ...]:
        """The engines that run parts of it, by their names in the program."""
        return tuple(sorted({step.engine for region in self.regions for step in region.handed}))

    @cached_property
    def straight(self) -> Segment | None:
        """The segment of a straight program, otherwise None."""
        steps = self.regions[-1].steps
        if len(self.regions) > 1 or len(steps) != 1 or not isinstance(steps[0], SegmentStep):
            return None
        segment = steps[0].segment
        whole = segment.signature == self.signature and not segment.device
        return segment if whole else None

    @cached_property
    def loops(self) -> bool:
        """Whether a region has a loop."""
        return any(isinstance(step, LoopStep) for region in self.regions for step in region.steps)

    @cached_property
    def spoken_of(self) -> frozenset[str]:
        """The dims that occur in shapes of values; those that inputs do not determine, data
        does."""
        found = [step for step in self.regions[-1].steps if isinstance(step, FindStep)]
        specs = [spec for region in self.regions for spec in region.values.values()]
        shaped = {dim for spec in specs for size in spec.shape for dim in size.symbols}
        return frozenset(shaped.union(*(step.dims for step in found)))

    def text(self) -> str:
        """Return a readable text, in lines of at most 100 columns."""
        segment = self.straight
        if segment is not None:
            first, *others = self.regions[0].heading()
            lines = [f"program {first}", *others, *(f"  {line}" for line in segment.lines())]
            return fold_lines("\n".join(lines)) + "\n"
        lines = [f"threads {self.threads}"]
        for number, region in enumerate(self.regions):
            first, *others = region.lines()
            lines += ["", f"region {number}: {first}", *others]
        return fold_lines("\n".join(lines)) + "\n"
