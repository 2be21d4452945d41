"""Why a program looks as it does, for people: kernels, schedules, sizes, fusion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from anydim.program.memory import memory
from anydim.program.program import Program
from anydim.program.region import ReleaseStep
from anydim.program.segment import Site


def explain(program: Program, notes: Sequence[str] = ()) -> str:
    """A text: launches by kernel with schedule and reason, memory, and what passes noted."""
    counts = Counter(site.kernel for site in program.sites)
    first: dict[str, Site] = {}
    for site in program.sites:
        first.setdefault(site.kernel, site)
    lines = [
        str(program.signature),
        f"  dims: {str(program.signature.box) or 'none'}",
        f"  {len(program.sites)} launches of {len(counts)} kernels, {program.threads} threads",
    ]
    if program.straight is not None:
        lines.append(f"  {len(program.straight.slots)} sizes are computed once per call")
    lines.append(f"  arena: {memory(program)}")
    if program.straight is None:
        lines += _course(program)
    for kernel, site in first.items():
        lines += ["", f"kernel {kernel}: {counts[kernel]} launches"]
        lines += _details(site, [s for s in program.sites if s.kernel == kernel])
    if notes:
        lines += ["", "notes", *(f"  {note}" for note in notes)]
    return "\n".join(lines)


def _course(program: Program) -> list[str]:
    """The steps of each region, in short."""
    lines = [f"  {len(program.segments)} segments in {len(program.regions)} regions:"]
    for number, region in enumerate(program.regions):
        lines += ["", f"region {number}: {region.signature.name}"]
        for step in region.steps:
            if not isinstance(step, ReleaseStep):
                source = f"  # {step.source}" if step.source else ""
                lines.append(f"  {next(step.lines())}{source}")
    return lines


def _details(site: Site, sites: Sequence[Site]) -> list[str]:
    lines = []
    if site.schedule:
        lines.append(f"  schedule: {site.schedule}")
    if site.reason:
        lines.append(f"  because: {site.reason}")
    lines.append(f"  parallel over {site.parallel}, at least {site.grain} a part")
    if site.scratch != 0:
        lines.append(f"  scratch: {site.scratch} bytes a thread")
    sources = list(dict.fromkeys(s.source for s in sites if s.source))
    lines += [f"  from {source}" for source in sources[:4]]
    if len(sources) > 4:
        lines.append(f"  and {len(sources) - 4} more")
    return lines
