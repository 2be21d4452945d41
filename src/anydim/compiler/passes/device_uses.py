"""Devices that read and write the values of regions, before copies are inserted.

A value that a segment computes is on its device. A result of a branch is on the device that takes
the fewest copies, in its arms and for its readers; a carried value is on the device where an
iteration computes it, and so is a stack. Values that a region passes through unchanged do not
count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from anydim.base.records import dataclass
from anydim.runtime.program.region import (
    BranchStep,
    CallStep,
    EngineStep,
    FindStep,
    LoopStep,
    PartStep,
    Region,
    SegmentStep,
    Step,
)

HOST = ""
Use = tuple[str, str, bool]  # a value, a device that reads it, and whether it always does
Made = str | int | None  # a device; an input number; None for a constant


@dataclass(frozen=True)
class Uses:
    """Device uses of regions, by number, before copies are inserted."""

    regions: Sequence[Region]

    def always(self, number: int, results: Sequence[str]) -> Mapping[str, set[str]]:
        """The devices that read each value in every run, with results on `results`."""
        return self._read(number, results)[0]

    def surely(self, number: int, input: int, results: Sequence[str]) -> set[str]:
        """The devices that read an input in every run."""
        name = self.regions[number].signature.inputs[input].name
        return self._read(number, results)[0].get(name, set())

    def maybe(self, number: int, input: int, results: Sequence[str]) -> set[str]:
        """The devices that may read an input."""
        name = self.regions[number].signature.inputs[input].name
        return self._read(number, results)[1].get(name, set())

    def results(self, number: int, step: Step) -> tuple[str, ...]:
        """The devices of the results of a step that runs other regions."""
        key = (number, id(step))
        if key not in self._results:
            self._results[key] = tuple(_RESULTS[type(step)](self, number, step))
        return self._results[key]

    @cached_property
    def _results(self) -> dict[tuple[int, int], tuple[str, ...]]:
        return {}

    @cached_property
    def _known(self) -> dict[tuple[int, tuple[str, ...]], tuple[dict[str, set[str]], ...]]:
        return {}

    def _read(self, number: int, results: Sequence[str]) -> tuple[dict[str, set[str]], ...]:
        """By value, the devices that always read it, and those that may."""
        key = (number, tuple(results))
        if key not in self._known:
            surely: dict[str, set[str]] = defaultdict(set)
            maybe: dict[str, set[str]] = defaultdict(set)
            for value, device, always in self._uses(number, results):
                maybe[value].add(device)
                if always:
                    surely[value].add(device)
            self._known[key] = (dict(surely), dict(maybe))
        return self._known[key]

    def _uses(self, number: int, results: Sequence[str]) -> Iterator[Use]:
        region = self.regions[number]
        for step in region.steps:
            yield from self._of_step(number, step)
        for spec, device in zip(region.signature.outputs, results):
            yield spec.name, device, True

    def _of_step(self, number: int, step: Step, passing: bool = True) -> Iterator[Use]:
        """Uses of a step; with `passing`, including values that nested regions return unchanged."""
        if isinstance(step, SegmentStep):
            yield from ((name, step.segment.device, True) for name in step.reads)
        elif isinstance(step, (FindStep, PartStep)):
            yield step.value, HOST, True
        elif isinstance(step, EngineStep):
            yield from ((name, HOST, True) for name in step.reads)
        elif isinstance(step, CallStep):
            results = self.results(number, step) if passing else ()
            yield from self._of_arms((step.region,), step.given, results)
        elif isinstance(step, BranchStep):
            if isinstance(step.condition, str):
                yield step.condition, HOST, True
            results = self.results(number, step) if passing else ()
            yield from self._of_arms((step.then, step.otherwise), step.given, results)
        elif isinstance(step, LoopStep):
            yield from self._of_loop(number, step)

    def _of_arms(
        self, arms: Sequence[int], given: Sequence[str], results: Sequence[str]
    ) -> Iterator[Use]:
        for position, value in enumerate(given):
            surely = set.intersection(*(self.surely(arm, position, results) for arm in arms))
            maybe = set.union(*(self.maybe(arm, position, results) for arm in arms))
            yield from ((value, device, device in surely) for device in maybe)

    def _of_loop(self, number: int, step: LoopStep) -> Iterator[Use]:
        results = self.results(number, step)
        carried = len(step.carried)
        if step.condition is not None:
            yield step.condition, HOST, True
        yield from ((name, device, True) for name, device in zip(step.carried, results))
        for stack, device in zip(step.stacks, results[carried:]):
            if stack.initial is not None:
                yield stack.initial, device, True
        inner = (*((HOST,) if step.condition is not None else ()), *results)
        first = carried + sum(stack.history for stack in step.stacks)
        for position, value in enumerate(step.given, first):
            maybe = self.maybe(step.body, position, inner)
            yield from ((value, device, True) for device in maybe)

    # ---- devices of results -------------------------------------------------------------------

    def made(self, number: int, value: str) -> Made:
        """The device that computes a value of a region, an input number, or None."""
        region = self.regions[number]
        for step in region.steps:
            if value not in step.makes:
                continue
            if isinstance(step, SegmentStep):
                return step.segment.device
            return self.results(number, step)[step.makes.index(value)]
        names = [spec.name for spec in region.signature.inputs]
        return names.index(value) if value in names else None

    def _outputs(self, number: int) -> list[Made]:
        """The sources of a region's results."""
        return [self.made(number, spec.name) for spec in self.regions[number].signature.outputs]

    def _of_call(self, number: int, step: CallStep) -> Iterator[str]:
        for made in self._outputs(step.region):
            source = self.made(number, step.given[made]) if isinstance(made, int) else made
            yield source if isinstance(source, str) else HOST

    def _of_branch(self, number: int, step: BranchStep) -> Iterator[str]:
        arms = (self._outputs(arm) for arm in (step.then, step.otherwise))
        for name, *made in zip(step.makes, *arms):
            found = [self.made(number, step.given[m]) if isinstance(m, int) else m for m in made]
            arm = [device for device in found if isinstance(device, str)]
            steps = iter(self.regions[number].steps)
            next(other for other in steps if other is step)
            uses = {use for later in steps for use in self._of_step(number, later, passing=False)}
            readers = {device for value, device, _ in uses if value == name}
            if name in (spec.name for spec in self.regions[number].signature.outputs):
                readers |= {HOST} if number == len(self.regions) - 1 else set()
            options = sorted({*arm, *readers} or {HOST})
            yield min(options, key=lambda option: (
                sum(device != option for device in arm) + 2 * len(readers - {option})
            ))  # fmt: skip

    def _of_loop_results(self, number: int, step: LoopStep) -> Iterator[str]:
        outputs = self._outputs(step.body)[step.condition is not None :]
        carried = len(step.carried)
        for position, made in enumerate(outputs):
            seen: set[int] = set()
            while isinstance(made, int) and made < carried and made not in seen:
                seen.add(made)
                made = outputs[made]
            if isinstance(made, str):
                yield made
            else:
                yield self._only_reader(step.body, position) if position < carried else HOST

    def _only_reader(self, body: int, input: int) -> str:
        """The only device on which a body reads an input that it passes through; else the host."""
        name = self.regions[body].signature.inputs[input].name
        steps = self.regions[body].steps
        uses = {use for step in steps for use in self._of_step(body, step, passing=False)}
        found = {device for value, device, _ in uses if value == name}
        return found.pop() if len(found) == 1 else HOST


_RESULTS: dict[type[Step], Callable[[Uses, int, Any], Iterable[str]]] = {
    CallStep: Uses._of_call, BranchStep: Uses._of_branch, LoopStep: Uses._of_loop_results,
    EngineStep: lambda uses, number, step: [HOST] * len(step.makes),
    PartStep: lambda uses, number, step: [HOST],
}  # fmt: skip
