"""Alternates measured and unmeasured calls; returns profiles and traces."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import numpy

from anydim.base.errors import InputError, OptionError
from anydim.base.user_values import by_names, whole_within
from anydim.runtime import slots
from anydim.runtime.arrays import by_position
from anydim.runtime.clocked import Clock, Clocked
from anydim.runtime.lists import RaggedPort
from anydim.runtime.program.described_model import DescribedModel
from anydim.runtime.program.inputs import Ranges, draw, known_ranges
from anydim.runtime.program.plan import Plan
from anydim.runtime.program.profile.limits import Limits
from anydim.runtime.program.profile.profile import Copied, Profile, Timed
from anydim.runtime.program.profile.spans import COPIES, Place, Places, spans, work_of
from anydim.runtime.program.profile.trace import Trace
from anydim.runtime.program.program import Program
from anydim.sizes import LARGEST, Size

Limited = Callable[..., Limits | None]


def profile_calls(
    model: DescribedModel, inputs: Any, sizes: Mapping[str, int], repeat: int, seed: int,
    integers: Ranges | None, limits: Limited,
) -> Profile:  # fmt: skip
    """Return the profile of `repeat` calls on these inputs, or on random ones at these sizes."""
    whole_within("repeat", repeat, 1, LARGEST, "give how many calls, 1 or more")
    program, call = model.program, model.executable
    feeds, sizes = _call_inputs(model, inputs, sizes, seed, integers)
    planned, clock = _plan_call(model, feeds, sizes), Clock(call, waited=bool(call.devices))
    call(feeds)
    clock.call(feeds)  # threads, pages, caches
    plain: list[float] = []
    clocked: list[Clocked] = []
    for _ in range(repeat):
        begin = perf_counter()
        call(feeds)
        plain.append(perf_counter() - begin)
        clocked.append(clock.call(feeds))
    launches = tuple(_time_launches(program, planned, clocked))
    here = [each for each in launches if each.seconds and not each.device and not each.decided]
    done = [
        (each.flops / each.runs, each.moved / each.runs, each.seconds / each.runs)
        for each in here if each.runs
    ]  # fmt: skip
    return Profile(
        program.signature.name, _known_sizes(planned), call.threads, repeat, median(plain),
        launches, limits(call.threads, done), clocked[-1],
        _trace(model, planned, clocked[-1:], bool(call.devices)), call.chosen,
        {name: device.name for name, device in model.devices.items()}, _median_copies(clocked),
        1e-9 * median(call.beside for call in clocked), (min(plain), max(plain)),
    )  # fmt: skip


def _known_sizes(planned: Plan) -> dict[str, int]:
    """Return the sizes of a call without those that data decides, of which a plan has bounds."""
    left_out = {*planned.decided, *planned.unknown}
    return {name: size for name, size in planned.sizes.items() if name not in left_out}


def _median_copies(clocked: Sequence[Clocked]) -> Copied:
    """Return the medians of the copies of calls."""
    copies = [[each for each in call.device_calls if each.verb in COPIES] for call in clocked]
    return Copied(
        round(median(len(each) for each in copies)),
        round(median(sum(copy.given[2] for copy in each) for each in copies)),
        1e-9 * median(sum(copy.end - copy.begin for copy in each) for each in copies),
    )


def trace_calls(
    model: DescribedModel, inputs: Any, sizes: Mapping[str, int], calls: int, seed: int,
    integers: Ranges | None, waited: bool,
) -> Trace:  # fmt: skip
    """Return the trace of `calls` calls, after an untraced one."""
    whole_within("calls", calls, 1, LARGEST, "give how many calls, 1 or more")
    feeds, sizes = _call_inputs(model, inputs, sizes, seed, integers)
    program, call, planned = model.program, model.executable, _plan_call(model, feeds, sizes)
    words = [
        [(len(site.operands), len(site.sizes)) for site in segment.sites]
        for segment in program.segments if not segment.device
    ]  # fmt: skip
    clock = Clock(call, words, waited, told=True)
    clock.call(feeds)  # threads, pages, caches
    return _trace(model, planned, [clock.call(feeds) for _ in range(calls)], waited)


def _trace(
    model: DescribedModel, planned: Plan, clocked: Sequence[Clocked], waited: bool = False
) -> Trace:
    return Trace(
        planned.name, _known_sizes(planned), model.executable.threads, len(clocked),
        {name: device.name for name, device in model.devices.items()},
        tuple(spans(model.program, planned, clocked)), waited, model.executable.chosen,
        tuple(sorted({each.device for c in clocked for each in c.device_calls if each.done})),
    )  # fmt: skip


def _plan_call(model: DescribedModel, feeds: Mapping[str, Any], sizes: Mapping[str, int]) -> Plan:
    """Return the plan of a call; of a ragged one, with the sizes of its rows."""
    table = next((p.table for p in model.lists.values() if isinstance(p, RaggedPort)), None)
    if table is None:
        return model.plan(**sizes)
    columns = numpy.asarray(feeds[table.rows])[:, len(table.units) :].T.tolist()
    lengths = {dim.name: column for dim, column in zip(table.dims, columns)}
    return model.plan(lengths=lengths, **sizes)


def _call_inputs(
    model: DescribedModel,
    inputs: Any,
    sizes: Mapping[str, int],
    seed: int,
    integers: Ranges | None,
) -> tuple[Mapping[str, Any], Mapping[str, int]]:
    """Return the inputs of a call by name, and its sizes: random inputs, or the given ones."""
    whole_within("seed", seed, 0, LARGEST, "give a number, 0 or more")
    ranges = {**model.index_ranges, **known_ranges(by_names("integers", integers))}
    if inputs is None:
        fixed = {dim.name: dim.lo for dim in model.dims.dims if dim.lo == dim.hi}
        sizes = {**fixed, **sizes}
        model.plan(**sizes)  # raises for what does not fit
        return _draw_inputs(model.program, sizes, seed, ranges), sizes
    feeds = _inputs_by_name(model, inputs, sizes)
    model.executable(feeds)  # raises for what does not fit
    return feeds, _sizes_in(model.program, feeds)


def _inputs_by_name(
    model: DescribedModel, inputs: Any, sizes: Mapping[str, int]
) -> Mapping[str, Any]:
    if sizes:
        raise OptionError("give inputs or sizes, not both", "inputs bring their sizes")
    if isinstance(inputs, Mapping):
        return by_names("inputs", inputs)
    names = [spec.name for spec in model.inputs]
    named = by_position(model.name, names, inputs)
    missing = [name for name in names if name not in named]
    if missing:
        raise InputError(f"{model.name} needs input '{missing[0]}'")
    return named


def _draw_inputs(
    program: Program, sizes: Mapping[str, int], seed: int, ranges: Ranges
) -> dict[str, numpy.ndarray]:
    chance = numpy.random.default_rng(seed)
    return {
        spec.name: draw(spec, sizes, chance, ranges.get(spec.name, (0, 1)))
        for spec in program.signature.inputs
    }


def _sizes_in(program: Program, feeds: Mapping[str, Any]) -> dict[str, int]:
    """Return the dims that are the size of an axis of these inputs."""
    sizes: dict[str, int] = {}
    for spec in program.signature.inputs:
        for size, actual in zip(spec.shape, numpy.shape(feeds.get(spec.name, ()))):
            if size in map(Size.symbol, size.symbols):
                sizes[str(size)] = actual
    return sizes


def _time_launches(program: Program, planned: Plan, clocked: Sequence[Clocked]) -> Iterator[Timed]:
    """Yield each launch of the program with the medians of its times and runs."""
    spent: dict[Place, list[tuple[int, int]]] = defaultdict(list)
    places = Places(program)
    for call in clocked:
        runs: dict[Place, int] = defaultdict(int)
        times: dict[Place, int] = defaultdict(int)
        took = [(places.host(launch), launch.nanoseconds) for launch in call.launches]
        there = [each for each in call.device_calls if each.verb == slots.LAUNCH]
        took += [(places.device(each), each.end - each.begin) for each in there]
        for place, nanoseconds in took:
            runs[place] += 1
            times[place] += nanoseconds
        for place, count in runs.items():
            spent[place].append((count, times[place]))
    work = work_of(program, planned)
    for table, segment in enumerate(program.segments):
        for number, site in enumerate(segment.sites):
            found, plans = spent.get((table, number), [(0, 0)]), work[table, number]
            count = round(median(count for count, _ in found))
            often = sum(1 if each.times is None else each.times for each in plans)
            part = count / max(1, often)  # skipped by branches, or data-dependent
            yield Timed(
                (table, number), site.kernel, site.schedule,
                site.source.partition(": ")[2] or site.source, count,
                median(time for _, time in found) * 1e-9,
                round(part * sum(each.flops for each in plans)),
                round(part * sum(each.moved for each in plans)), segment.device,
                any(each.decided for each in plans),
            )  # fmt: skip
