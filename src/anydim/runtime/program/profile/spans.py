"""Measured calls as spans: launches by site, device requests by entry point."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from threading import get_ident
from typing import Any

from anydim.base.records import dataclass
from anydim.runtime import slots
from anydim.runtime.clocked import Clocked, DeviceCall, Launch
from anydim.runtime.program.plan import LaunchPlan, Plan
from anydim.runtime.program.profile.trace import CALL, COPY, LAUNCH, MEMORY, WAIT, Span
from anydim.runtime.program.program import Program
from anydim.runtime.program.region import copies
from anydim.runtime.program.region_plan import needs
from anydim.runtime.program.segment import Site

Place = tuple[int, int]  # of a launch: the number of its segment, and its number in it
_CALLER = "caller"
_LANES = {LAUNCH: "work", COPY: "copies", WAIT: "waits", MEMORY: "memory"}


@dataclass(frozen=True)
class _Verb:
    """How an entry point of a device is shown; `bytes` is the index of the argument with its
    bytes."""

    name: str
    kind: str
    bytes: int | None = None
    direction: str = ""


COPIES = (slots.COPY_IN, slots.COPY_OUT, slots.COPY_WITHIN)  # between memories, or within one
_VERBS: Mapping[int, _Verb] = {  # what is recorded takes no time
    slots.ALLOCATE: _Verb("allocate", MEMORY, 0),
    slots.FREE: _Verb("free", MEMORY),
    slots.COPY_IN: _Verb("copy in", COPY, 2, "host to {}"),
    slots.COPY_OUT: _Verb("copy out", COPY, 2, "{} to host"),
    slots.COPY_WITHIN: _Verb("copy within", COPY, 2, "within {}"),
    slots.COPY_FROM: _Verb("copy from", COPY, 3),
    slots.FILL: _Verb("fill", COPY, 2, "within {}"),
    slots.WAIT: _Verb("wait", WAIT),
}


_COPIES = {slots.COPY_FROM, slots.COPY_IN, slots.COPY_OUT, slots.COPY_WITHIN}


def spans(program: Program, planned: Plan, clocked: Sequence[Clocked]) -> Iterator[Span]:
    """Yield what calls of this thread did, in the order of their begin."""
    known, first = _Known(program, planned), clocked[0].begin
    threads = {get_ident(): _CALLER}
    for number, call in enumerate(clocked, 1):
        about = {"call": number} if len(clocked) > 1 else {}
        begin, end = call.begin - first, call.end - first
        yield Span(f"call of {program.signature.name}", CALL, "", _CALLER, begin, end, about)
        found = [*known.launches(call, threads), *known.device_spans(call)]
        for span in sorted(found, key=lambda span: span.begin):
            begin, end = span.begin - first, max(span.begin, span.end) - first
            yield Span(span.name, span.kind, span.device, span.lane, begin, end, span.about)


class Places:
    """Maps measured launches to launches of the program."""

    def __init__(self, program: Program) -> None:
        self._host: list[list[Place]] = []  # by table of code
        self._devices: dict[str, list[Place]] = defaultdict(list)
        for number, segment in enumerate(program.segments):
            own = [(number, site) for site in range(len(segment.sites))]
            if segment.device:
                self._devices[segment.device].extend(own)
            else:
                self._host.append(own)

    def host(self, launch: Launch) -> Place:
        """Return the site of a launch on the host."""
        return self._host[launch.table][launch.site]

    def device(self, call: DeviceCall) -> Place:
        """Return the site of a launch on a device."""
        return self._devices[call.device][call.given[0] - 1]


class _Known:
    """The records of a program about its launches."""

    def __init__(self, program: Program, planned: Plan) -> None:
        self._places = Places(program)
        self._sites = [segment.sites for segment in program.segments]
        self._work = work_of(program, planned)
        self._copies = tuple(copies(program.regions))

    def launches(self, call: Clocked, threads: dict[int, str]) -> Iterator[Span]:
        """Yield the host launches: each thread's part of each."""
        for launch in call.launches:
            place = self._places.host(launch)
            site, plans = self._site(place), self._work.get(place, [])
            for number, part in enumerate(launch.parts, 1):
                lane = threads.setdefault(part.thread, f"worker {len(threads)}")
                about = _about(site, part.sizes)
                about["range"] = f"{part.first}:{part.stop}"
                if len(launch.parts) > 1:
                    about |= {"part": number, "parts": len(launch.parts)}
                about |= _planned_work(plans)
                yield Span(_name(site), LAUNCH, "", lane, part.begin, part.end, about)

    def device_spans(self, call: Clocked) -> Iterator[Span]:
        """Yield the requests to devices."""
        for each in call.device_calls:
            if each.verb == slots.LAUNCH:
                yield self._launch_span(each)
            elif each.verb in _VERBS:
                verb = _VERBS[each.verb]
                about: dict[str, Any] = {}
                if verb.bytes is not None:
                    about["bytes"] = each.given[verb.bytes]
                if verb.direction:
                    about["direction"] = verb.direction.format(each.device)
                about |= self._copy_details(each)
                yield _span(each, verb.name, verb.kind, about)

    def _launch_span(self, each: DeviceCall) -> Span:
        _, _, _, _, parallel, _, _, _, flops, moved = each.given
        site = self._site(self._places.device(each))
        about = _about(site, each.sizes)
        about |= {"range": f"0:{parallel}", "flops": flops, "bytes": moved}
        return _span(each, _name(site), LAUNCH, about)

    def _copy_details(self, each: DeviceCall) -> dict[str, Any]:
        """Return the value that a copy transfers, if it belongs to the program."""
        which = each.given[-1] if each.verb in _COPIES else 0
        if not 0 < which <= len(self._copies):
            return {}
        step = self._copies[which - 1]
        about = {"value": step.source or step.value, "makes": step.made}
        if each.verb == slots.COPY_FROM:
            about["direction"] = f"{step.origin} to {step.target}"
        return about

    def _site(self, place: Place) -> Site:
        return self._sites[place[0]][place[1]]


def _span(each: DeviceCall, name: str, kind: str, about: Mapping[str, Any]) -> Span:
    if each.done is None:
        return Span(name, kind, each.device, _LANES[kind], each.begin, each.end, about)
    begin, end = each.done
    asking = {"asking_us": (each.end - each.begin) / 1000}
    asking["waiting_us"] = max(0, begin - each.end) / 1000
    return Span(name, kind, each.device, _LANES[kind], begin, end, {**about, **asking})


def _name(site: Site) -> str:
    return site.source.partition(": ")[2] or site.source or site.kernel


def _about(site: Site, sizes: Sequence[int]) -> dict[str, Any]:
    about: dict[str, Any] = {
        "kernel": site.kernel, "schedule": site.schedule, "nodes": _name(site)
    }  # fmt: skip
    named = {
        str(size): value for size, value in zip(site.sizes, sizes) if size.constant is None
    }  # fmt: skip
    return {**about, "sizes": named} if named else about


def _planned_work(plans: Sequence[LaunchPlan]) -> dict[str, int]:
    """Return the work of a host launch that runs once; for others a plan has only the sum."""
    if len(plans) != 1 or plans[0].times != 1:
        return {}
    return {"flops": plans[0].flops, "bytes": plans[0].moved}


def work_of(program: Program, planned: Plan) -> dict[Place, list[LaunchPlan]]:
    """Return the lines of a plan by launch."""
    places = {
        id(site): (table, number)
        for table, segment in enumerate(program.segments)
        for number, site in enumerate(segment.sites)
    }
    found: dict[Place, list[LaunchPlan]] = defaultdict(list)
    for work, launch in zip(needs(program).work, planned.launches):
        found[places[id(work.site)]].append(launch)
    return found
