"""Insert explicit copies of values that cross devices, in regions with segments on several devices.

A value is computed on one device. Right after that it is copied once to each other device where its
region always reads it, so that the copy overlaps with the next steps; where only a branch reads it,
the branch copies it if it is taken. A loop body receives invariants on the devices that read them,
so that they are copied before the loop; a carried value stays on the device where iterations
compute it, and so does a stack. Constants need no copies: they reside on each device that reads
them from the first call on. Conditions, found sizes and the results of the program are on the host.

After: every step reads values of its own device; no value is copied twice to one device, except in
branches, of which one is taken. Names of values on a device end in its name: `x@accel`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

from anydim.base.records import dataclass
from anydim.compiler.passes.device_uses import HOST, Uses
from anydim.compiler.passes.flow import unique_name
from anydim.runtime.program.region import (
    BranchStep,
    CallStep,
    CopyStep,
    EngineStep,
    FindStep,
    LoopStep,
    PartStep,
    Region,
    SegmentStep,
    Step,
)
from anydim.runtime.signature import TensorSpec

DevicesOf = tuple[tuple[str, ...], ...]  # the devices on which each input of a region is passed


@dataclass(frozen=True)
class CopiesBetween:
    """Insert copies between the devices of segments; the last region is the entry."""

    def run(self, regions: Sequence[Region]) -> tuple[Region, ...]:
        work = _Work(regions, Uses(regions))
        main = regions[-1].signature
        work.region(
            len(regions) - 1, tuple((HOST,) for _ in main.inputs), (HOST,) * len(main.outputs)
        )
        return tuple(work.made)


@dataclass
class _Work:
    """The new regions, and their numbers by old region and devices."""

    regions: Sequence[Region]
    uses: Uses
    made: list[Region] = field(default_factory=list)
    numbers: dict[tuple[int, DevicesOf, tuple[str, ...]], int] = field(default_factory=dict)

    def region(self, number: int, inputs: DevicesOf, results: tuple[str, ...]) -> int:
        """The number of the region with its inputs and results on these devices."""
        key = (number, inputs, results)
        if key not in self.numbers:
            made = _Region(self, number, results).with_copies(inputs)
            self.numbers[key] = len(self.made)
            self.made.append(made)
        return self.numbers[key]


class _Region:
    """One region; `here` are the devices that have each value so far."""

    def __init__(self, work: _Work, number: int, results: tuple[str, ...]) -> None:
        self.work, self.number, self.results = work, number, results
        self.region = work.regions[number]
        self.wanted = work.uses.always(number, results)
        self.available: dict[str, list[str]] = {}
        self.names: dict[tuple[str, str], str] = {}
        self.taken = {*self.region.values}
        self.values: dict[str, TensorSpec] = {}
        self.devices: dict[str, str] = {}
        self.constants: dict[str, str] = {}
        self.steps: list[Step] = []

    def with_copies(self, inputs: DevicesOf) -> Region:
        """The region with copies, given the devices of its inputs."""
        region = self.region
        taken = [
            self.values[self.arrives(spec.name, device)]
            for spec, devices in zip(region.signature.inputs, inputs)
            for device in devices
        ]
        for spec in region.signature.inputs:
            self.spread(spec.name)
        for step in region.steps:
            self.steps.append(_STEPS[type(step)](self, step))
            for name in step.makes:
                self.spread(name)
        outputs = [
            self.values[self.on(spec.name, device)]
            for spec, device in zip(region.signature.outputs, self.results)
        ]
        signature = replace(region.signature, inputs=tuple(taken), outputs=tuple(outputs))
        return Region(
            signature, region.given, self.values, self.constants, tuple(self.steps), self.devices
        )

    # ---- values --------------------------------------------------------------------------------

    def name(self, value: str, device: str) -> str:
        """The name of a value on a device."""
        if (value, device) not in self.names:
            name = unique_name(f"{value}@{device}", self.taken) if device else value
            self.taken.add(name)
            self.names[value, device] = name
            self.values[name] = replace(self.region.values[value], name=name)
            if device:
                self.devices[name] = device
        return self.names[value, device]

    def arrives(self, value: str, device: str) -> str:
        """Record that a value is on a device; return its name there."""
        self.available.setdefault(value, []).append(device)
        return self.name(value, device)

    def spread(self, value: str) -> None:
        """Copy a value to all devices that always read it; to the host first."""
        for device in sorted(self.wanted.get(value, ())):
            self.on(value, device)

    def on(self, value: str, device: str) -> str:
        """The name of a value on a device, copied there if missing."""
        if value in self.region.constants:
            name = self.name(value, device)
            self.constants[name] = self.region.constants[value]
            return name
        available = self.available[value]
        if device not in available:
            origin = HOST if HOST in available else available[0]
            source = self.name(value, origin)
            self.steps.append(CopyStep(source, self.arrives(value, device), origin, device, value))
        return self.name(value, device)

    def devices_for(self, value: str, surely: set[str], maybe: set[str]) -> tuple[str, ...]:
        """The devices on which to pass a value to a nested region that reads it on these.

        A device that reads it only in some runs copies it inside the region, from a passed one.
        """
        if value in self.region.constants:
            return tuple(sorted(surely | maybe)) or (HOST,)
        for device in sorted(surely):
            self.on(value, device)
        available = self.available[value]
        found = sorted((surely | maybe) & {*available})
        if not found or not maybe <= {*found}:
            origin = HOST if HOST in available else available[0]
            found = sorted({*found, origin})
        return tuple(found)

    def given(self, names: Sequence[str], devices_of: DevicesOf) -> tuple[str, ...]:
        """The operands' names on the devices that need them."""
        return tuple(
            self.on(name, device) for name, devices in zip(names, devices_of) for device in devices
        )

    def makes(self, step: Step, devices: Sequence[str]) -> tuple[str, ...]:
        """The names of a step's results on these devices."""
        return tuple(map(self.arrives, step.makes, devices))

    # ---- steps ---------------------------------------------------------------------------------

    def segment(self, step: SegmentStep) -> Step:
        device = step.segment.device
        given = tuple(self.on(name, device) for name in step.reads)
        made = self.makes(step, [device] * len(step.makes))
        return replace(step, given=given, made=made)

    def engine(self, step: EngineStep) -> Step:
        reads = tuple(self.on(name, HOST) for name in step.reads)
        return replace(step, reads=reads, makes=self.makes(step, [HOST] * len(step.makes)))

    def find(self, step: FindStep) -> Step:
        return replace(step, value=self.on(step.value, HOST))

    def part(self, step: PartStep) -> Step:
        (made,) = self.makes(step, [HOST])
        return replace(step, value=self.on(step.value, HOST), made=made)

    def call(self, step: CallStep) -> Step:
        results = self.work.uses.results(self.number, step)
        inputs = self.operand_devices((step.region,), step.given, results)
        return replace(
            step,
            region=self.work.region(step.region, inputs, results),
            given=self.given(step.given, inputs),
            makes=self.makes(step, results),
        )

    def branch(self, step: BranchStep) -> Step:
        results = self.work.uses.results(self.number, step)
        arms = (step.then, step.otherwise)
        inputs = self.operand_devices(arms, step.given, results)
        condition = step.condition
        if isinstance(condition, str):
            condition = self.on(condition, HOST)
        then, otherwise = (self.work.region(number, inputs, results) for number in arms)
        given = self.given(step.given, inputs)
        return replace(
            step, condition=condition, then=then, otherwise=otherwise, given=given,
            makes=self.makes(step, results),
        )  # fmt: skip

    def operand_devices(
        self, regions: Sequence[int], given: Sequence[str], results: tuple[str, ...]
    ) -> DevicesOf:
        """The devices of the operands of regions of which one runs."""
        uses, found = self.work.uses, []
        for position, value in enumerate(given):
            surely = [uses.surely(number, position, results) for number in regions]
            maybe = [uses.maybe(number, position, results) for number in regions]
            found.append(self.devices_for(value, set.intersection(*surely), set.union(*maybe)))
        return tuple(found)

    def loop(self, step: LoopStep) -> Step:
        uses = self.work.uses
        results = uses.results(self.number, step)
        inner = (*((HOST,) if step.condition is not None else ()), *results)
        carried = len(step.carried)
        stacks = results[carried:]
        histories = [device for device, stack in zip(stacks, step.stacks) if stack.history]
        first = carried + len(histories)
        devices_of = []
        for position, value in enumerate(step.given, first):
            maybe = uses.maybe(step.body, position, inner)
            devices_of.append(self.devices_for(value, maybe, set()))
        fixed = ((device,) for device in (*results[:carried], *histories))
        inputs = (*fixed, *devices_of)
        condition = step.condition and self.on(step.condition, HOST)
        return replace(
            step,
            body=self.work.region(step.body, inputs, inner),
            condition=condition,
            carried=tuple(map(self.on, step.carried, results)),
            stacks=tuple(
                stack if stack.initial is None
                else replace(stack, initial=self.on(stack.initial, device))
                for stack, device in zip(step.stacks, stacks)
            ),
            given=self.given(step.given, tuple(devices_of)),
            makes=self.makes(step, results),
        )  # fmt: skip


_STEPS: dict[type[Step], Callable[[_Region, Any], Step]] = {
    SegmentStep: _Region.segment,
    EngineStep: _Region.engine,
    FindStep: _Region.find,
    PartStep: _Region.part,
    CallStep: _Region.call,
    BranchStep: _Region.branch,
    LoopStep: _Region.loop,
}
