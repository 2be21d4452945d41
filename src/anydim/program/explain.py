"""Why a program looks as it does, for people: kernels, schedules, sizes, fusion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from anydim.program.plan import memory
from anydim.program.steps import LaunchStep, Program


def explain(program: Program, notes: Sequence[str] = ()) -> str:
    """A text: launches by kernel with schedule and reason, memory, and what passes noted."""
    counts = Counter(step.kernel for step in program.steps)
    first: dict[str, LaunchStep] = {}
    for step in program.steps:
        first.setdefault(step.kernel, step)
    lines = [
        str(program.signature),
        f"  dims: {program.signature.box or 'none'}",
        f"  {len(program.steps)} launches of {len(counts)} kernels, {program.threads} threads",
        f"  {len(program.slots)} sizes are computed once per call",
        f"  arena: {memory(program)}",
    ]
    for kernel, step in first.items():
        lines += ["", f"kernel {kernel}: {counts[kernel]} launches"]
        lines += _details(step, [s for s in program.steps if s.kernel == kernel])
    if notes:
        lines += ["", "notes", *(f"  {note}" for note in notes)]
    return "\n".join(lines)


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
