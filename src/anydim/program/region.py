"""Regions: steps over named values, some of which run other regions.

A region is what a graph becomes, and each graph that it holds. Its dims have values when it begins
(those `given` from outside by name, those that the shapes of its inputs tell) or get them on the
way. What runs straight through between two steps of another kind is one segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from anydim.base.records import dataclass
from anydim.program.segment import Segment
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Guard, Size


@dataclass(frozen=True)
class SegmentStep:
    """Launches in order, on the device of the segment.

    The inputs and outputs of the segment are values of the region; where those have other names,
    `given` and `made` have them.
    """

    segment: Segment
    source: str = ""
    given: tuple[str, ...] | None = None
    made: tuple[str, ...] | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        if self.given is not None:
            return self.given
        return tuple(spec.name for spec in self.segment.signature.inputs)

    @property
    def makes(self) -> tuple[str, ...]:
        if self.made is not None:
            return self.made
        return tuple(spec.name for spec in self.segment.signature.outputs)

    def lines(self) -> Iterator[str]:
        signature, device = self.segment.signature, self.segment.device
        on = f" on '{device}'" if device else ""
        yield f"run {_names(self.makes)} = segment({_names(self.reads)}){on}"
        yield from (f"    {_line(guard)}" for guard in signature.guards)
        yield from (f"    {line}" for line in self.segment.lines())


@dataclass(frozen=True)
class FindStep:
    """Dims take the elements of an int64 value."""

    value: str
    dims: tuple[str, ...]
    source: str = ""
    makes: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.value,)

    def lines(self) -> Iterator[str]:
        yield f"sizes {', '.join(self.dims)} = '{self.value}'"


@dataclass(frozen=True)
class BranchStep:
    """One of two regions, by number; the condition is a bool value or a relation of sizes."""

    condition: str | Guard
    then: int
    otherwise: int
    given: tuple[str, ...]
    makes: tuple[str, ...]
    source: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        held = (self.condition,) if isinstance(self.condition, str) else ()
        return (*held, *self.given)

    def lines(self) -> Iterator[str]:
        condition = self.condition
        if isinstance(condition, Guard):
            condition = f"{condition.left} {condition.relation} {condition.right}"
        else:
            condition = f"'{condition}'"
        arms = f"region {self.then} else region {self.otherwise}"
        yield f"{_names(self.makes)} = if {condition} then {arms} ({_names(self.given)})"


@dataclass(frozen=True)
class CallStep:
    """A region, by number."""

    region: int
    given: tuple[str, ...]
    makes: tuple[str, ...]
    source: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        return self.given

    def lines(self) -> Iterator[str]:
        yield f"{_names(self.makes)} = region {self.region} ({_names(self.given)})"


@dataclass(frozen=True)
class Stack:
    """A result of every iteration that is kept as a slice of one tensor; as in `graph/regions.py`.

    `initial` is the value that the tensor starts from.
    """

    position: Size
    extent: Size | None
    history: bool = False
    initial: str | None = None

    def __str__(self) -> str:
        extent = "iterations" if self.extent is None else self.extent
        history = ", read as it grows" if self.history else ""
        initial = f", from '{self.initial}'" if self.initial is not None else ""
        return f"slice {self.position} of {extent}{history}{initial}"


@dataclass(frozen=True)
class LoopStep:
    """A region, iteration after iteration.

    Its inputs are the carried values, the stacks that it reads, then `given`; its results the
    condition when there is one, the carried values, then a slice for each stack.
    """

    body: int
    counter: str
    trips: Size | None
    condition: str | None
    carried: tuple[str, ...]
    given: tuple[str, ...]
    stacks: tuple[Stack, ...]
    makes: tuple[str, ...]
    source: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        held = () if self.condition is None else (self.condition,)
        initial = (stack.initial for stack in self.stacks if stack.initial is not None)
        return (*held, *self.carried, *initial, *self.given)

    def lines(self) -> Iterator[str]:
        until = "" if self.trips is None else f" in 0:{self.trips}"
        held = "" if self.condition is None else f" while '{self.condition}'"
        given = f"{_names(self.carried)}; {_names(self.given)}"
        yield f"{_names(self.makes)} = for {self.counter}{until}{held} region {self.body} ({given})"
        yield from (f"  {stack}" for stack in self.stacks)


@dataclass(frozen=True)
class CopyStep:
    """A value of one device becomes one of another; '' is the host."""

    value: str
    made: str
    origin: str
    target: str
    source: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.value,)

    @property
    def makes(self) -> tuple[str, ...]:
        return (self.made,)

    def lines(self) -> Iterator[str]:
        ends = (f"'{device}'" if device else "host" for device in (self.origin, self.target))
        yield f"copy '{self.made}' = '{self.value}', {' to '.join(ends)}"


@dataclass(frozen=True)
class EngineStep:
    """A part that engine `engine` runs on the host's memory: an ONNX model, the constant `model`.

    Its inputs and outputs have the names `inputs` and `outputs` in the model; `vectors` are other
    inputs of it, int64, that hold sizes. Where all results are empty it does not run; where it
    does, none of the sizes `needed` is 0.
    """

    engine: str
    model: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    vectors: tuple[tuple[str, tuple[Size, ...]], ...] = ()
    needed: tuple[Size, ...] = ()
    source: str = ""

    def lines(self) -> Iterator[str]:
        yield f"{_names(self.makes)} = {self.engine} runs '{self.model}' ({_names(self.reads)})"
        for name, sizes in self.vectors:
            yield f"    '{name}' = [{', '.join(map(str, sizes))}]"


@dataclass(frozen=True)
class ReleaseStep:
    """Values that nobody reads any more."""

    reads: tuple[str, ...]
    makes: tuple[str, ...] = ()
    source: str = ""

    def lines(self) -> Iterator[str]:
        yield f"release {_names(self.reads)}"


Step: TypeAlias = (
    SegmentStep | FindStep | BranchStep | CallStep | LoopStep | CopyStep | EngineStep | ReleaseStep
)


@dataclass(frozen=True)
class Region:
    """Steps over named values.

    `signature` names its inputs and outputs, its dims, and the guards that have to hold as soon as
    the dims they speak of have values. `values` has the type of each value. `constants` are those
    that a step other than a segment takes, or that the region gives: by value, the name that the
    program has for it. `devices` has the device of each value that is not on the host.
    """

    signature: Signature
    given: frozenset[str]
    values: Mapping[str, TensorSpec]
    constants: Mapping[str, str]
    steps: tuple[Step, ...]
    devices: Mapping[str, str] = field(default_factory=dict)

    @property
    def segments(self) -> tuple[SegmentStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, SegmentStep))

    @property
    def handed(self) -> tuple[EngineStep, ...]:
        """The parts that other engines run."""
        return tuple(step for step in self.steps if isinstance(step, EngineStep))

    def heading(self) -> Iterator[str]:
        """What it takes and gives, and what holds of its dims."""
        signature = self.signature
        yield f"{signature}"
        yield f"  dims {signature.box}"
        if self.given:
            yield f"  given {', '.join(sorted(self.given))}"
        yield from (f"  {_line(guard)}" for guard in signature.guards)

    def lines(self) -> Iterator[str]:
        yield from self.heading()
        for step in self.steps:
            note = f"  # {step.source}" if step.source else ""
            first, *others = step.lines()
            yield f"  {first}{note}"
            yield from (f"  {line}" for line in others)


def _line(guard: Guard) -> str:
    return f"guard {guard.left} {guard.relation} {guard.right}  # {guard.message}"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def copies(regions: Sequence[Region]) -> Iterator[CopyStep]:
    """The copies of all regions; host code counts them in this order, from 1 on."""
    for region in regions:
        yield from (step for step in region.steps if isinstance(step, CopyStep))
