"""Plans: what a call does at given sizes, without running it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial

from anydim.base.amounts import bytes_text, exact_bytes_text
from anydim.base.records import dataclass
from anydim.base.sheet import Sheet, Shown, Table
from anydim.base.text import count_of, kernel_text, nodes_text, quote_list
from anydim.runtime.checks import choose_guard, guard_error
from anydim.runtime.program.binding import check_sizes, determined_dims
from anydim.runtime.program.document import Document, document
from anydim.runtime.program.program import Program
from anydim.runtime.program.region_plan import Work, needs, values_at
from anydim.runtime.program.segment import Site
from anydim.runtime.signature import Signature
from anydim.sizes import Condition, Size, SizeNames, holds


@dataclass(frozen=True)
class LaunchPlan:
    """A launch: its parallel range, the number of parts, and estimated work.

    It runs `times` times, None if data determines it; `flops` and `moved` are the sums over all
    runs (of one run if unknown). They are bounds if data `decided` sizes of the launch. A `kept`
    launch runs only in the first call at these sizes. `body` is its kernel: "generic", or a variant
    for these sizes ("exact") or for a span. `version` names the way to compute that these sizes
    select, `because` why earlier ones do not apply; both are "" for kernels with one version.
    """

    kernel: str
    schedule: str
    source: str
    parallel: int
    parts: int
    flops: int
    moved: int
    times: int | None = 1
    body: str = "generic"
    kept: bool = False
    decided: bool = False
    version: str = ""
    because: str = ""


@dataclass(frozen=True)
class Plan(Shown):
    """What a call does at given sizes. `arena_bytes` is the exact size of the arena.

    In programs with data-dependent control flow, `value_bytes` is the maximum size of values
    between steps, including results, each allocated when its size is known; `bytes` is the sum of
    both. Sizes that were not given are `decided` by data and count with their upper bounds;
    `unknown` dims have none and count with their lower bounds. `kept_bytes` are cached values of
    these sizes, shared by all calls with them.
    """

    name: str
    sizes: Mapping[str, int]
    value_bytes: int
    arena_bytes: int
    input_bytes: int
    output_bytes: int
    constant_bytes: int
    launches: tuple[LaunchPlan, ...]
    unknown: tuple[str, ...] = ()
    decided: tuple[str, ...] = ()
    describe: Callable[[], Document] = field(default=dict, compare=False, repr=False)
    sites: tuple[tuple[Site, tuple[int, ...]], ...] = field(default=(), compare=False, repr=False)
    kept_bytes: int = 0

    def with_bodies(self, body: Callable[[Site, tuple[int, ...]], str]) -> Plan:
        """Return the plan with the variant of each launch."""
        bodies = [body(*each) for each in self.sites]
        launches = (replace(each, body=name) for each, name in zip(self.launches, bodies))

        def described() -> Document:
            found = self.describe()
            pairs = zip(found["launches"], bodies)
            return {**found, "launches": [{**launch, "body": name} for launch, name in pairs]}

        return replace(self, launches=tuple(launches), describe=described)

    def document(self) -> Document:
        """The plan as plain dicts, lists, texts and numbers; docs/memory.md says which."""
        return self.describe()

    def json(self, indent: int | None = 2) -> str:
        """The document as a text."""
        return json.dumps(self.document(), indent=indent)

    @property
    def bytes(self) -> int:
        """Bytes of intermediate values, scratch of all threads, and cached values of the sizes."""
        return self.value_bytes + self.arena_bytes + self.kept_bytes

    @property
    def flops(self) -> int:
        """Estimated operations of all launches, except cached ones."""
        return sum(launch.flops for launch in self.launches if not launch.kept)

    def _sheet(self) -> Sheet:
        """Memory and work, then a row per launch, in order."""
        at = ", ".join(f"{name} = {value}" for name, value in self.sizes.items())
        plain = all(launch.body == "generic" and not launch.kept for launch in self.launches)
        rows = [_row(launch)[: len(_HEADERS) - plain] for launch in self.launches]
        return Sheet(
            f"{self.name} at {at or 'its only size'}",
            tuple(self._facts()),
            (Table(_HEADERS[: len(rows[0])], rows, left=2),) if rows else (),
        )

    def _facts(self) -> Iterator[tuple[str, str]]:
        if self.unknown:
            yield "", f"{quote_list(self.unknown)} without bound: counted as the least size"
        if self.decided:
            yield "", f"data decides {quote_list(self.decided)}: counted with the upper bound"
        yield "arena", exact_bytes_text(self.arena_bytes)
        if self.value_bytes:
            yield (
                "between",
                f"{exact_bytes_text(self.value_bytes)}  (between steps, at most: taken as known)",
            )
        if self.kept_bytes:
            yield "kept", f"{exact_bytes_text(self.kept_bytes)}  (for calls at these sizes)"
        yield "inputs", exact_bytes_text(self.input_bytes)
        yield "outputs", exact_bytes_text(self.output_bytes)
        yield "constants", exact_bytes_text(self.constant_bytes)
        launches = count_of(len(self.launches), "launch", "es")
        yield "work", f"{launches}, about {count_text(self.flops)}flop"
        known = {str(when): when for site, _ in self.sites for _, when in site.versions[:-1]}
        yield from _list_versions(self.launches, known)

    __str__ = Shown.__str__
    __repr__ = Shown.__str__


def plan(program: Program, sizes: Mapping[str, int]) -> Plan:
    """The plan at these sizes; raises DimError when they are not a point of the box.

    Dims that data decides may be left out.
    """
    signature, known = program.signature, needs(program)
    decided = set(known.box.names) - determined_dims(signature.box, signature.inputs, frozenset())
    optional = [name for name in decided if name not in sizes and program.straight is None]
    check_sizes(signature.name, known.box.without(optional), sizes)
    _check_guards(signature, sizes)
    return estimate(program, sizes)


def estimate(program: Program, sizes: Mapping[str, int]) -> Plan:
    """Return the plan at unchecked sizes."""
    signature, known = program.signature, needs(program)
    values, unknown = values_at(known.box, sizes)

    def value(size: Size) -> int:
        return max(0, size.evaluate(values))

    decided = tuple(n for n in known.box.names if n not in {*sizes, *unknown})
    launches = (
        replace(_launches(work, program.threads, values), decided=work.reads({*decided, *unknown}))
        for work in known.work
    )
    return Plan(
        name=signature.name,
        sizes={name: values[name] for name in known.box.names},
        value_bytes=value(known.values),
        arena_bytes=value(known.arena),
        input_bytes=sum(value(spec.bytes) for spec in signature.inputs),
        output_bytes=sum(value(spec.bytes) for spec in signature.outputs),
        constant_bytes=sum(constant.bytes for constant in program.constants),
        launches=tuple(launches),
        unknown=unknown,
        decided=decided,
        describe=partial(document, program, values),
        sites=tuple((work.site, _words(work, values)) for work in known.work),
        kept_bytes=value(known.kept),
    )


def _check_guards(signature: Signature, sizes: Mapping[str, int]) -> None:
    for guard in signature.guards:
        if guard.symbols <= sizes.keys() and not holds(guard, sizes):
            told = choose_guard(guard, signature.guards, sizes, signature.box)
            raise guard_error(told, signature.name, sizes, signature.box)


def launches_at(
    program: Program, sizes: Mapping[str, int], numbers: Sequence[int]
) -> Iterator[LaunchPlan]:
    """Yield some launches of the plan at unchecked sizes."""
    known = needs(program)
    values, _ = values_at(known.box, sizes)
    yield from (_launches(known.work[number], program.threads, values) for number in numbers)


def _words(work: Work, values: Mapping[str, int]) -> tuple[int, ...]:
    """Return the arguments of a launch: its sizes, then its parallel range."""
    sizes = {name: size.evaluate(values) for name, size in work.sizes.items()}
    return tuple(size.evaluate(sizes) for size in (*work.site.sizes, work.site.parallel))


def _launches(work: Work, threads: int, values: Mapping[str, int]) -> LaunchPlan:
    sizes = {name: size.evaluate(values) for name, size in work.sizes.items()}
    once = _launch(work.site, threads, sizes)
    times = None if work.times is None else work.times.evaluate(values)
    often = 1 if times is None else times
    return replace(
        once, flops=once.flops * often, moved=once.moved * often, times=times, kept=work.kept
    )


def _launch(site: Site, threads: int, sizes: Mapping[str, int]) -> LaunchPlan:
    parallel = site.parallel.evaluate(sizes)
    shared, grain = (size.evaluate(sizes) for size in site.shared)
    parts = 0 if parallel <= 0 else max(1, min(threads, shared // max(1, grain)))
    flops, moved = site.flops.evaluate(sizes), site.moved.evaluate(sizes)
    version, because = version_at(site, sizes)
    return LaunchPlan(
        site.kernel, site.schedule, site.source, parallel, parts, flops, moved,
        version=version, because=because,
    )  # fmt: skip


def version_at(site: Site, sizes: Mapping[str, int]) -> tuple[str, str]:
    """The version of a site that these sizes select, and why the earlier ones do not apply.

    Empty texts for a site of one version, unless its schedule forces that.
    """
    found = _FORCED.search(site.schedule)
    forced = found[1] if found else ""
    if len(site.versions) < 2 and not forced:
        return "", ""
    for number, (name, when) in enumerate(site.versions):
        if when.holds(sizes):
            earlier = (
                f"{other}{', which is forced,' if forced else ''} is for {needs}"
                for other, needs in site.versions[:number]
                if not forced or other == forced
            )
            return name, "it is forced" if name == forced else "; ".join(earlier)
    return "", ""


@dataclass
class _Selected:
    """Launches of one version instead of the same others: nodes, and what the others are for."""

    version: str
    nodes: dict[str, None] = field(default_factory=dict)
    others: dict[str, dict[str, None]] = field(default_factory=dict)

    def conditions(self) -> Iterator[str]:
        """Yield the conditions that are printed: one of each other version."""
        for conditions in self.others.values():
            yield next(iter(conditions))

    def text(self, shown: Callable[[str], str]) -> str:
        """Its text; `shown` gives that of a condition."""
        names, reasons = list(self.nodes), []
        for (other, conditions), printed in zip(self.others.items(), self.conditions()):
            more = f" (and {len(conditions) - 1} like it)" if len(conditions) > 1 else ""
            reasons.append(f"{other} is for {shown(printed)}{more}" if printed else other)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        why = f", since {'; '.join(reasons)}" if reasons else ""
        return f"{', '.join(names[:_NAMED])}{more}: {self.version}{why}"


def _list_versions(
    launches: Iterable[LaunchPlan], known: Mapping[str, Condition]
) -> Iterator[tuple[str, str]]:
    """The versions of launches with their nodes; those that replace the same ones are one fact.

    Names of sizes in the conditions, `known` by their texts, follow.
    """
    found: dict[tuple[str, ...], _Selected] = {}
    for launch in launches:
        if launch.version:
            parts = [each.partition(" is for ")[::2] for each in launch.because.split("; ") if each]
            key = (launch.version, *(other for other, _ in parts))
            selected = found.setdefault(key, _Selected(launch.version))
            selected.nodes[nodes_text(launch.source)] = None
            for other, condition in parts:
                selected.others.setdefault(other, {})[condition] = None
    shown = dict.fromkeys(condition for each in found.values() for condition in each.conditions())
    names = SizeNames(known[condition] for condition in shown if condition in known)

    def text(condition: str) -> str:
        return names.text(known[condition]) if condition in known else condition

    yield from (("version", each.text(text)) for each in found.values())
    yield from (("where", line) for line in names.lines())


_FORCED = re.compile(r"\bversion=(\w+)")  # in the text of a schedule
_NAMED = 3  # launches of a version that a plan names
_HEADERS = ("nodes", "kernel", "range", "parts", "flop", "moved", "body")


def _row(launch: LaunchPlan) -> tuple[str, ...]:
    body = f"kept: {launch.body}" if launch.kept else launch.body
    return (
        nodes_text(launch.source), kernel_text(launch.kernel), str(launch.parallel),
        str(launch.parts), count_text(launch.flops).strip(), bytes_text(launch.moved), body,
    )  # fmt: skip


def count_text(value: int) -> str:
    """Format as 1.5 M, 320 k, 7."""
    for factor, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value} "
