"""What a program will do at given sizes, and what memory it can need at most; runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from anydim.base.errors import DimError
from anydim.base.text import listed, suggestion
from anydim.program.binding import told
from anydim.program.program import Program
from anydim.program.region_plan import Work, needs, values_at
from anydim.program.segment import Site
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Box, Size, bounds, product


@dataclass(frozen=True)
class LaunchPlan:
    """One kernel call: the parallel range, into how many parts it is cut, estimated work.

    It runs `times` times, None: data decides; `flops` and `moved` are those of all times (of one).
    """

    kernel: str
    schedule: str
    source: str
    parallel: int
    parts: int
    flops: int
    moved: int
    times: int | None = 1


@dataclass(frozen=True)
class Plan:
    """What one size assignment will do. `bytes` is what the arena takes, exactly.

    Where data decides what runs, `bytes` is the most that values between steps (results among
    them) and the arena take together. Sizes that were not given have their upper bounds; `unknown`
    are dims that have none and count with their least size.
    """

    name: str
    sizes: Mapping[str, int]
    value_bytes: int
    scratch_bytes: int
    input_bytes: int
    output_bytes: int
    constant_bytes: int
    launches: tuple[LaunchPlan, ...]
    unknown: tuple[str, ...] = ()

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
        if self.unknown:
            lines.insert(1, f"  {listed(self.unknown)} without bound: counted as the least size")
        return "\n".join(lines + _table(self.launches))


def plan(program: Program, sizes: Mapping[str, int]) -> Plan:
    """The plan at these sizes; raises DimError when they are not a point of the box.

    Dims that data decides may be left out.
    """
    signature, known = program.signature, needs(program)
    decided = set(known.box.names) - told(signature.box, signature.inputs, frozenset())
    optional = [name for name in decided if name not in sizes and program.straight is None]
    check_sizes(signature.name, known.box.without(optional), sizes)
    _check_guards(signature, sizes)
    return estimate(program, sizes)


def estimate(program: Program, sizes: Mapping[str, int]) -> Plan:
    """The plan at sizes that nobody has checked."""
    signature, known = program.signature, needs(program)
    values, unknown = values_at(known.box, sizes)

    def value(size: Size) -> int:
        return max(0, size.evaluate(values))

    return Plan(
        name=signature.name,
        sizes={name: values[name] for name in known.box.names},
        value_bytes=value(known.values),
        scratch_bytes=value(known.arena),
        input_bytes=sum(value(tensor_bytes(spec)) for spec in signature.inputs),
        output_bytes=sum(value(tensor_bytes(spec)) for spec in signature.outputs),
        constant_bytes=sum(constant.bytes for constant in program.constants),
        launches=tuple(_launches(work, program.threads, values) for work in known.work),
        unknown=unknown,
    )


def _check_guards(signature: Signature, sizes: Mapping[str, int]) -> None:
    for guard in signature.guards:
        if not (guard.left.symbols | guard.right.symbols) <= sizes.keys():
            continue
        left, right = guard.left.evaluate(sizes), guard.right.evaluate(sizes)
        if not _RELATIONS[guard.relation](left, right):
            raise DimError(
                f"{signature.name}: {guard.left} {guard.relation} {guard.right} does not hold: "
                f"{left} {guard.relation} {right}",
                guard.message,
            )


def _launches(work: Work, threads: int, values: Mapping[str, int]) -> LaunchPlan:
    sizes = {name: size.evaluate(values) for name, size in work.sizes.items()}
    once = _launch(work.site, threads, sizes)
    times = None if work.times is None else work.times.evaluate(values)
    often = 1 if times is None else times
    return replace(once, flops=once.flops * often, moved=once.moved * often, times=times)


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


def _launch(site: Site, threads: int, sizes: Mapping[str, int]) -> LaunchPlan:
    parallel = site.parallel.evaluate(sizes)
    parts = 0 if parallel <= 0 else max(1, min(threads, parallel // max(1, site.grain)))
    flops, moved = site.flops.evaluate(sizes), site.moved.evaluate(sizes)
    return LaunchPlan(site.kernel, site.schedule, site.source, parallel, parts, flops, moved)


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
    """Peak memory of a call of a program, beside inputs, outputs and constants.

    Where data decides what runs, the outputs are among it.
    """
    known = needs(program)
    return Memory(known.bytes, known.box)


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
