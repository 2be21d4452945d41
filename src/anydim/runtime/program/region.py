"""Regions: steps over named values; some steps run other regions.

A graph and each graph nested in it become a region. Dims have values at the start (`given` by name
from outside, or determined by the shapes of inputs) or receive them from a step. Straight-line code
between two other steps is one segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from anydim.base.records import dataclass
from anydim.runtime.program.segment import Segment
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Guard, Size


@dataclass(frozen=True)
class SegmentStep:
    """Launches in order, on the device of the segment.

    Inputs and outputs of the segment are values of the region; `given` and `made` have those whose
    names differ. `updates` are pairs of a result and the operand whose memory it is written to.
    """

    segment: Segment
    source: str = ""
    given: tuple[str, ...] | None = None
    made: tuple[str, ...] | None = None
    updates: tuple[tuple[str, str], ...] = ()

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
        yield from (f"    '{made}' in place of '{read}'" for made, read in self.updates)
        yield from (f"    {_line(guard)}" for guard in signature.guards)
        yield from (f"    {line}" for line in self.segment.lines())


@dataclass(frozen=True)
class FindStep:
    """Defines dims by the elements of an int64 value, or of a row of a table."""

    value: str
    dims: tuple[str, ...]
    source: str = ""
    makes: tuple[str, ...] = ()
    row: Size | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.value,)

    def lines(self) -> Iterator[str]:
        row = "" if self.row is None else f", row {self.row}"
        yield f"sizes {', '.join(self.dims)} = '{self.value}'{row}"


class _OfOneValue:
    """A step that makes one value of another."""

    value: str
    made: str

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.value,)

    @property
    def makes(self) -> tuple[str, ...]:
        return (self.made,)


@dataclass(frozen=True)
class PartStep(_OfOneValue):
    """Elements of a value from row-major index `first` on, in the same memory."""

    value: str
    made: str
    first: Size
    source: str = ""

    def lines(self) -> Iterator[str]:
        yield f"'{self.made}' = part of '{self.value}' from {self.first}"


@dataclass(frozen=True)
class BranchStep:
    """Runs one of two regions, by number; the condition is a bool value or a relation of sizes."""

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
    """Runs a region, by number."""

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
    """A result of each iteration, stored as a slice of one tensor; as in `graph/regions.py`.

    `initial` is the initial value of the tensor; a `joined` result has several slices. A tensor
    `in_place` takes the memory of its initial value, an input of the program that the caller
    permits to be written.
    """

    position: Size
    extent: Size | None
    history: bool = False
    initial: str | None = None
    joined: bool = False
    in_place: bool = False

    def __str__(self) -> str:
        extent = "iterations" if self.extent is None else self.extent
        slices = "slices from" if self.joined else "slice"
        history = ", read as it grows" if self.history else ""
        how = "in place of" if self.in_place else "from"
        initial = f", {how} '{self.initial}'" if self.initial is not None else ""
        return f"{slices} {self.position} of {extent}{history}{initial}"


@dataclass(frozen=True)
class LoopStep:
    """Runs a region repeatedly.

    Its inputs are the carried values, the stacks that it reads, then `given`; its results are the
    condition, if there is one, the carried values, then a slice per stack.
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
class CopyStep(_OfOneValue):
    """Copies a value between devices; '' is the host."""

    value: str
    made: str
    origin: str
    target: str
    source: str = ""

    def lines(self) -> Iterator[str]:
        ends = (f"'{device}'" if device else "host" for device in (self.origin, self.target))
        yield f"copy '{self.made}' = '{self.value}', {' to '.join(ends)}"


@dataclass(frozen=True)
class EngineStep:
    """A part that engine `engine` runs in host memory: an ONNX model, stored as constant `model`.

    Its inputs and outputs are called `inputs` and `outputs` in the model; `vectors` are further
    int64 inputs that contain sizes. If all results are empty, it does not run; otherwise none of
    the sizes `needed` is 0.
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
    """Frees values after their last use."""

    reads: tuple[str, ...]
    makes: tuple[str, ...] = ()
    source: str = ""

    def lines(self) -> Iterator[str]:
        yield f"release {_names(self.reads)}"


Step: TypeAlias = (
    SegmentStep
    | FindStep
    | PartStep
    | BranchStep
    | CallStep
    | LoopStep
    | CopyStep
    | EngineStep
    | ReleaseStep
)


@dataclass(frozen=True)
class Region:
    """Steps over named values.

    `signature` has its inputs, outputs and dims, and the guards that must hold as soon as their
    dims have values. `values` has the type of each value. `constants` are those that a step other
    than a segment reads, or that the region returns: value name to constant name in the program.
    `devices` has the device of each value that is not on the host.
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
        """The steps that other engines run."""
        return tuple(step for step in self.steps if isinstance(step, EngineStep))

    def heading(self) -> Iterator[str]:
        """Yield its inputs, outputs and dims as text."""
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
    """Yield the copies of all regions; host code numbers them in this order, from 1 on."""
    for region in regions:
        yield from (step for step in region.steps if isinstance(step, CopyStep))
