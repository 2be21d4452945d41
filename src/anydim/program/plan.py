"""What a program will do at given sizes, and what memory it can need at most; runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anydim.base.errors import DimError
from anydim.base.text import listed, suggestion
from anydim.program.steps import ALIGNMENT, LaunchStep, Program
from anydim.runtime.signature import TensorSpec
from anydim.sizes import Box, Size, align_up, as_size, bounds, product


@dataclass(frozen=True)
class LaunchPlan:
    """One kernel call: the parallel range, into how many parts it is cut, estimated work."""

    kernel: str
    schedule: str
    source: str
    parallel: int
    parts: int
    flops: int
    moved: int


@dataclass(frozen=True)
class Plan:
    """What one size assignment will do. `bytes` is what the arena takes, exactly."""

    name: str
    sizes: Mapping[str, int]
    value_bytes: int
    scratch_bytes: int
    input_bytes: int
    output_bytes: int
    constant_bytes: int
    launches: tuple[LaunchPlan, ...]

    @property
    def bytes(self) -> int:
        """Bytes of the arena: intermediate values and scratch of all threads."""
        return self.value_bytes + self.scratch_bytes

    @property
    def flops(self) -> int:
        """Estimated arithmetic of all launches."""
        return sum(launch.flops for launch in self.launches)

    def __str__(self) -> str:
        at = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        lines = [
            f"{self.name} at {at or 'its only size'}",
            f"  arena     {_bytes(self.bytes)}  ({_bytes(self.value_bytes)} values, "
            f"{_bytes(self.scratch_bytes)} scratch)",
            f"  inputs    {_bytes(self.input_bytes)}",
            f"  outputs   {_bytes(self.output_bytes)}",
            f"  constants {_bytes(self.constant_bytes)}",
            f"  {len(self.launches)} launches, about {_count(self.flops)}flop",
        ]
        return "\n".join(lines + _table(self.launches))


def plan(program: Program, sizes: Mapping[str, int]) -> Plan:
    """The plan at these sizes; raises DimError when they are not a point of the box."""
    signature = program.signature
    check_sizes(signature.name, signature.box, sizes)

    def value(size: Size) -> int:
        return size.evaluate(sizes)

    for guard in signature.guards:
        left, right = value(guard.left), value(guard.right)
        if not _RELATIONS[guard.relation](left, right):
            raise DimError(
                f"{signature.name}: {guard.left} {guard.relation} {guard.right} does not hold: "
                f"{left} {guard.relation} {right}",
                guard.message,
            )
    launches = tuple(_launch(step, program.threads, sizes) for step in program.steps)
    values = value(align_up(program.arena_bytes, ALIGNMENT))
    return Plan(
        name=signature.name,
        sizes={name: sizes[name] for name in signature.box.names},
        value_bytes=values,
        scratch_bytes=value(program.total_bytes) - values,
        input_bytes=sum(value(tensor_bytes(spec)) for spec in signature.inputs),
        output_bytes=sum(value(tensor_bytes(spec)) for spec in signature.outputs),
        constant_bytes=sum(array.nbytes for array in program.constants.values()),
        launches=launches,
    )


def check_sizes(name: str, box: Box, sizes: Mapping[str, int]) -> None:
    """Raise DimError unless `sizes` names every dim of the box once, inside its bounds."""
    for dim in sizes:
        if dim not in box.names:
            hint = suggestion(dim, box.names) or f"the dims are {listed(box.names)}"
            raise DimError(f"{name} has no dim '{dim}'", hint)
    violations = box.violations(sizes)
    if violations:
        raise DimError(f"{name}: {violations[0]}", "; ".join(violations[1:]) or f"declared {box}")


_RELATIONS = {
    "==": int.__eq__,
    "!=": int.__ne__,
    "<=": int.__le__,
    "<": int.__lt__,
    ">=": int.__ge__,
    ">": int.__gt__,
}


def _launch(step: LaunchStep, threads: int, sizes: Mapping[str, int]) -> LaunchPlan:
    parallel = step.parallel.evaluate(sizes)
    parts = 0 if parallel <= 0 else max(1, min(threads, parallel // max(1, step.grain)))
    flops, moved = step.flops.evaluate(sizes), step.moved.evaluate(sizes)
    return LaunchPlan(step.kernel, step.schedule, step.source, parallel, parts, flops, moved)


def tensor_bytes(spec: TensorSpec) -> Size:
    """Bytes of a tensor."""
    return product(spec.shape) * spec.dtype.bytes


@dataclass(frozen=True)
class Memory:
    """Peak bytes of intermediate values and scratch, as a formula over the dims."""

    bytes: Size
    box: Box

    @property
    def bound(self) -> int | None:
        """An upper bound of `bytes` over the box; None when there is none."""
        return bounds(self.bytes, self.box).hi

    def at(self, **sizes: int) -> int:
        """Bytes at given sizes; raises DimError when they are not a point of the box."""
        check_sizes("memory", self.box, sizes)
        return self.bytes.evaluate(sizes)

    def __str__(self) -> str:
        bound = self.bound
        limit = "without bound" if bound is None else f"at most {_bytes(bound)}"
        return f"{self.bytes} bytes, {limit} for {self.box or 'its only size'}"


def memory(program: Program) -> Memory:
    """Peak memory of a call of a program, beside inputs, outputs and constants."""
    return Memory(as_size(program.total_bytes), program.signature.box)


def _table(launches: tuple[LaunchPlan, ...]) -> list[str]:
    if not launches:
        return []
    width = max(len(launch.kernel) for launch in launches)
    lines = [f"  {'kernel':{width}}  {'range':>9} parts {'flop':>8} {'moved':>8}  schedule"]
    for launch in launches:
        lines.append(
            f"  {launch.kernel:{width}}  {launch.parallel:9} {launch.parts:5} "
            f"{_count(launch.flops):>8} {_count(launch.moved):>7}B  {launch.schedule}".rstrip()
        )
    return lines


def _count(value: int) -> str:
    """1.5 M, 320 k, 7."""
    for factor, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value} "


def _bytes(value: int) -> str:
    return f"{value} B" if value < 10_000 else f"{value} B ({_count(value)}B)"
