"""Explains how a program was compiled: a summary on one screen, and details on request."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from anydim.base.amounts import exact_bytes_text
from anydim.base.errors import OptionError
from anydim.base.sheet import Report, Sheet, Table
from anydim.base.text import count_of, fold_lines, matches, quote_list, suggestion
from anydim.runtime.program.findings import findings, works
from anydim.runtime.program.memory import memory
from anydim.runtime.program.program import Program
from anydim.runtime.program.region import ReleaseStep
from anydim.runtime.program.segment import Site
from anydim.sizes import Condition, Size, SizeNames

_CLAUSE = re.compile("[,;]")  # ends the description of a kernel in the reason for its schedule
_FEW = 6  # lines of one kind in a summary
_HINT = (
    "each kernel: explain(details=True) or --details; some: explain('PATTERN') or --kernel PATTERN"
)


def explain(
    program: Program, notes: Sequence[str] = (), bodies: Sequence[str] = (), pattern: str = "",
    details: bool = False, ragged: Sequence[str] = (), rows: Sequence[str] = (),
) -> Report:  # fmt: skip
    """Return a summary in lines of at most 100 columns; with `details`, everything known.

    `notes` are the notes of passes, `bodies` lines on the strategy, `ragged` those on ragged
    rows, `rows` those on dims of rows. With a `pattern`, only kernels whose names, or the names of
    whose nodes, match it; raises OptionError if none does.
    """
    if pattern:
        found = _kernels(program, _matching(program, pattern), None)
        return Report.of(None, *map(fold_lines, found))
    if not details:
        summary = _summary(
            program, _list_notes(program, notes), list(map(_plain, bodies)), ragged, rows
        )
        return Report.of(summary, f"  {_HINT}")
    parts = []
    if program.straight is None:
        parts.append("\n".join(_course(program)))
    parts += _kernels(program, program.sites, 4)
    if notes:
        parts.append("\n".join(["notes", *(f"  {note}" for note in notes)]))
    if bodies:
        parts.append("\n".join(bodies))
    summary = _summary(program, ragged=ragged, rows=rows, most=None)
    return Report.of(summary, *map(fold_lines, parts))


def _matching(program: Program, pattern: str) -> list[Site]:
    """Return the sites with a name that matches a pattern, or begins with it."""
    found = [site for site in program.sites if matches(pattern, site.names)]
    if not found:
        known = list(dict.fromkeys(name for site in program.sites for name in site.names))
        hint = suggestion(pattern, known) or f"such as {quote_list(known[:_FEW])}"
        raise OptionError(f"no node or kernel matches '{pattern}'", hint)
    return found


# ---- the summary -------------------------------------------------------------------------------


def _list_notes(program: Program, notes: Sequence[str]) -> list[str]:
    """Return the notes, except those that only list the nodes of a launch."""
    sources = {site.source for site in program.sites}
    return [note for note in notes if note.partition(": ")[2] not in sources]


def _summary(
    program: Program, notes: Sequence[str] = (), bodies: Sequence[str] = (),
    ragged: Sequence[str] = (), rows: Sequence[str] = (), most: int | None = _FEW,
) -> Sheet:  # fmt: skip
    """Fusion, memory, constants, warnings and templates; at most `most` lines of a kind."""
    held = sum(constant.bytes for constant in program.constants)
    found = findings(program)
    facts = [
        ("dims", str(program.signature.box) or "none"),
        *_shape(program),
        *(("memory", line) for line in memory(program).lines()),
        *(("ragged", line) for line in ragged),
        *_few("rows", rows, most),
        *_few("kept", _list_setups(program), most),
        ("constants", f"{exact_bytes_text(held)} in {count_of(len(program.constants), 'array')}"),
        *_few("engines", _engines(program), most),
        *_few("notes", notes, most),
        *_few("strategy", bodies, most),
        *_few("warnings", found or ["none"], most),
    ]
    templates = _templates(program)
    headers = ("template", "computes", "kernels", "launches", "nodes", "of work")
    tables = (Table(headers, templates, 2),) if templates else ()
    return Sheet(str(program.signature), facts, tables)


def _few(name: str, lines: Sequence[str], most: int | None) -> Iterator[tuple[str, str]]:
    """Yield the lines under a name, at most `most`."""
    shown = lines if most is None or len(lines) <= most else lines[: most - 1]
    yield from ((name, line) for line in shown)
    if len(shown) < len(lines):
        yield name, f"and {len(lines) - len(shown)} more"


def _shape(program: Program) -> Iterator[tuple[str, str]]:
    """Yield the numbers of launches, sizes and checks of a call."""
    kernels = count_of(len({site.kernel for site in program.sites}), "kernel")
    launches, threads = len(program.sites), count_of(program.threads, "thread")
    yield "code", f"{count_of(launches, 'launch', 'es')} of {kernels}, {threads}"
    relations = count_of(len(program.signature.guards), "relation")
    if program.straight is not None:
        sizes = count_of(len(program.straight.slots), "size")
        yield "sizes", f"{sizes} computed and {relations} of sizes checked in each call"
    else:
        pieces, regions = len(program.segments), count_of(len(program.regions), "region")
        yield "control", f"{count_of(pieces, 'segment')} in {regions}"
        yield "sizes", f"{relations} of sizes checked in each call"


def _list_setups(program: Program) -> list[str]:
    """Return what is computed once for distinct sizes."""
    setups = [setup for segment in program.segments for setup in segment.setups]
    return [
        f"for distinct sizes of {quote_list(setup.dims, none='no dim')}: {setup.bytes} bytes, "
        f"{count_of(setup.launches, 'launch', 'es')}: {_some(setup.values)}"
        for setup in setups
    ]


def _some(names: Sequence[str]) -> str:
    shown = quote_list(names[:2])
    return f"{shown} and {len(names) - 2} more values" if len(names) > 2 else shown


def _engines(program: Program) -> list[str]:
    parts = Counter(step.engine for region in program.regions for step in region.handed)
    return [
        f"{count_of(parts[engine], 'part')} on {engine}, whose own memory is not counted"
        for engine in program.engines
    ]


def _templates(program: Program) -> list[tuple[str, ...]]:
    """Return a row per kernel template, by work, descending."""
    shares = list(zip(program.sites, works(program)))
    whole = sum(share for _, share in shares) or 1.0
    rows = []
    for name in dict.fromkeys(map(_template, program.sites)):
        same = [(site, share) for site, share in shares if _template(site) == name]
        reasons = Counter(site.reason for site, _ in same if site.reason)
        why = _CLAUSE.split(reasons.most_common(1)[0][0])[0] if reasons else ""
        nodes = sum(len(site.source.split(" + ")) for site, _ in same)
        kernels = len({site.kernel for site, _ in same})
        share = sum(share for _, share in same) / whole
        row = (name, why, str(kernels), str(len(same)), str(nodes), f"{100 * share:.1f} %")
        rows.append((share, row))
    return [row for _, row in sorted(rows, key=lambda each: -each[0])]


def _plain(line: str) -> str:
    return line.strip().removeprefix("strategy ")


def _template(site: Site) -> str:
    return site.schedule.partition("(")[0].partition(":")[0].strip() or "routine"


# ---- the details -------------------------------------------------------------------------------


def _kernels(program: Program, sites: Sequence[Site], most: int | None) -> Iterator[str]:
    """Yield a paragraph per kernel of these sites, with at most `most` sources.

    Names of sizes that they repeat follow.
    """
    names = SizeNames(_detail_sizes(sites))
    for kernel in dict.fromkeys(site.kernel for site in sites):
        same = [site for site in sites if site.kernel == kernel]
        title = f"kernel {kernel}: {count_of(len(same), 'launch', 'es')}"
        details = _details(same[0], same, most, names)
        yield "\n".join([title, *(f"  {line}" for line in details)])
    if len(names):
        yield "\n".join(["sizes", *(f"  {line}" for line in names.lines())])


def _detail_sizes(sites: Sequence[Site]) -> Iterator[Size | Condition]:
    """Yield what the details of kernels print."""
    for site in {each.kernel: each for each in reversed(sites)}.values():
        yield from (when for _, when in site.versions if len(site.versions) > 1)
        yield from dict.fromkeys((site.parallel, site.shared[0], site.shared[1], site.scratch))


def _course(program: Program) -> list[str]:
    """Return the steps of each region, in short."""
    lines: list[str] = []
    for number, region in enumerate(program.regions):
        lines += [*([""] if lines else []), f"region {number}: {region.signature.name}"]
        for step in region.steps:
            if not isinstance(step, ReleaseStep):
                source = f"  # {step.source}" if step.source else ""
                lines.append(f"  {next(step.lines())}{source}")
    return lines


def _details(site: Site, sites: Sequence[Site], most: int | None, names: SizeNames) -> list[str]:
    lines = []
    if site.schedule:
        lines.append(f"schedule: {site.schedule}")
    if site.reason:
        lines.append(f"because: {site.reason}")
    for number, (name, when) in enumerate(site.versions if len(site.versions) > 1 else ()):
        last = number == len(site.versions) - 1
        where = "elsewhere" if last and number else f"where {names.text(when)}"
        lines.append(f"version {name}: {where}")
    shared, grain = site.shared
    stages = "" if shared == site.parallel else f" in stages of {names.text(shared)}"
    parallel = names.text(site.parallel)
    lines.append(f"parallel over {parallel}{stages}, at least {names.text(grain)} a part")
    if site.scratch != 0:
        lines.append(f"scratch: {names.text(site.scratch)} bytes a thread")
    sources = list(dict.fromkeys(s.source for s in sites if s.source))
    lines += [f"from {source}" for source in sources[:most]]
    if most is not None and len(sources) > most:
        lines.append(f"and {len(sources) - most} more")
    return lines
