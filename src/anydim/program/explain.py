"""Why a program looks as it does, for people: kernels, schedules, sizes, fusion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from anydim.program.plan import memory
from anydim.program.region import RegionProgram, ReleaseStep
from anydim.program.steps import LaunchStep, Program


def explain(program: Program | RegionProgram, notes: Sequence[str] = ()) -> str:
    """A text: launches by kernel with schedule and reason, memory, and what passes noted."""
    parts = program.segments if isinstance(program, RegionProgram) else (program,)
    steps = [step for part in parts for step in part.steps]
    counts = Counter(step.kernel for step in steps)
    first: dict[str, LaunchStep] = {}
    for step in steps:
        first.setdefault(step.kernel, step)
    lines = [
        str(program.signature),
        f"  dims: {program.signature.box or 'none'}",
        f"  {len(steps)} launches of {len(counts)} kernels, {program.threads} threads",
    ]
    if isinstance(program, Program):
        lines.append(f"  {len(program.slots)} sizes are computed once per call")
    lines.append(f"  arena: {memory(program)}")
    if isinstance(program, RegionProgram):
        lines += _course(program)
    for kernel, step in first.items():
        lines += ["", f"kernel {kernel}: {counts[kernel]} launches"]
        lines += _details(step, [s for s in steps if s.kernel == kernel])
    if notes:
        lines += ["", "notes", *(f"  {note}" for note in notes)]
    return "\n".join(lines)


def _course(program: RegionProgram) -> list[str]:
    """The steps of each region, in short."""
    lines = [f"  {len(program.segments)} segments in {len(program.regions)} regions:"]
    for number, region in enumerate(program.regions):
        lines += ["", f"region {number}: {region.signature.name}"]
        for step in region.steps:
            if not isinstance(step, ReleaseStep):
                source = f"  # {step.source}" if step.source else ""
                lines.append(f"  {next(step.lines())}{source}")
    return lines


def _details(step: LaunchStep, steps: Sequence[LaunchStep]) -> list[str]:
    lines = []
    if step.schedule:
        lines.append(f"  schedule: {step.schedule}")
    if step.reason:
        lines.append(f"  because: {step.reason}")
    lines.append(f"  parallel over {step.parallel}, at least {step.grain} a part")
    if step.scratch != 0:
        lines.append(f"  scratch: {step.scratch} bytes a thread")
    sources = list(dict.fromkeys(s.source for s in steps if s.source))
    lines += [f"  from {source}" for source in sources[:4]]
    if len(sources) > 4:
        lines.append(f"  and {len(sources) - 4} more")
    return lines
