"""Why a program looks as it does, for people: kernels, schedules, sizes, fusion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from anydim.base.amounts import told_bytes
from anydim.base.text import counted, listed
from anydim.program.findings import findings
from anydim.program.memory import memory
from anydim.program.program import Program
from anydim.program.region import ReleaseStep
from anydim.program.segment import Site


def explain(program: Program, notes: Sequence[str] = ()) -> str:
    """A text: a summary, launches by kernel with schedule and reason, and what passes noted."""
    counts = Counter(site.kernel for site in program.sites)
    first: dict[str, Site] = {}
    for site in program.sites:
        first.setdefault(site.kernel, site)
    lines = list(summary(program))
    if program.straight is None:
        lines += _course(program)
    for kernel, site in first.items():
        lines += ["", f"kernel {kernel}: {counted(counts[kernel], 'launch', 'es')}"]
        lines += _details(site, [s for s in program.sites if s.kernel == kernel])
    if notes:
        lines += ["", "notes", *(f"  {note}" for note in notes)]
    return "\n".join(lines)


def summary(program: Program) -> Iterator[str]:
    """What it is, in about ten lines: launches, memory, and what is far from its limit."""
    sites, signature = program.sites, program.signature
    kinds = Counter(site.schedule.partition("(")[0] or "routine" for site in sites)
    kernels = len({site.kernel for site in sites})
    made = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    threads = counted(program.threads, "thread")
    yield str(signature)
    yield f"  dims: {str(signature.box) or 'none'}"
    launches = counted(len(sites), "launch", "es")
    yield f"  {launches} of {counted(kernels, 'kernel')}, {threads}{made and ': '}{made}"
    if program.straight is not None:
        sizes = len(program.straight.slots)
        yield f"  {counted(sizes, 'size')} {'is' if sizes == 1 else 'are'} computed once per call"
    else:
        pieces = counted(len(program.segments), "segment")
        yield f"  {pieces} in {counted(len(program.regions), 'region')}"
    for engine in program.engines:
        parts = sum(step.engine == engine for region in program.regions for step in region.handed)
        yield f"  {counted(parts, 'part')} on {engine}, whose own memory is not counted"
    yield f"  {counted(len(signature.guards), 'relation')} of sizes checked in each call"
    yield f"  arena: {memory(program)}"
    for segment in program.segments:
        for setup in segment.setups:
            dims, bytes = listed(setup.dims, none="no dim"), f"{setup.bytes} bytes"
            made = counted(setup.launches, "launch", "es")
            yield f"  kept for distinct sizes of {dims}: {bytes}, {made}: {listed(setup.values)}"
    held = sum(constant.bytes for constant in program.constants)
    yield f"  constants: {told_bytes(held)} in {counted(len(program.constants), 'array')}"
    found = findings(program)
    yield f"  far from its limit: {'nothing that is known' if not found else ''}".rstrip()
    yield from (f"    {line}" for line in found)


def _course(program: Program) -> list[str]:
    """The steps of each region, in short."""
    lines = []
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
    shared, grain = site.shared
    stages = "" if shared == site.parallel else f" in stages of {shared}"
    lines.append(f"  parallel over {site.parallel}{stages}, at least {grain} a part")
    if site.scratch != 0:
        lines.append(f"  scratch: {site.scratch} bytes a thread")
    sources = list(dict.fromkeys(s.source for s in sites if s.source))
    lines += [f"  from {source}" for source in sources[:4]]
    if len(sources) > 4:
        lines.append(f"  and {len(sources) - 4} more")
    return lines
