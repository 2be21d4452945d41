"""Segment -> its host code: `bind` (sizes, checks) and `run` (launches).

Both take the address of a block (`runtime/layout.py`). `run` loads the kernel of each launch from a
table, so that its code does not depend on variants. The module calls functions of
`native/threads.py` and `native/stopping.py` by name and has no other dependencies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from anydim.base.cache import key_of
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import constant
from anydim.compiler.native.arithmetic import LARGEST, Arithmetic, RangedValue
from anydim.compiler.native.body import Body
from anydim.compiler.native.device_emit import STEPS_PER_FUNCTION, on_device
from anydim.compiler.native.entry import Entry, EntryChecks, verdict
from anydim.compiler.native.launch_words import BLOCK, Chunk, Words, words_of
from anydim.compiler.native.stopping import LOOK, STARTED
from anydim.compiler.native.threads import BEGIN, LAUNCH, REST, WAKE
from anydim.compiler.native.written import emit_sizes
from anydim.runtime.checks import Check
from anydim.runtime.layout import (
    ADDRESS,
    ARENA,
    BEHIND,
    CODE,
    EMPTY,
    PARALLEL,
    POOL,
    STOPPING,
    WORTH_WAKING,
    Layout,
)
from anydim.runtime.positions import FINE, Position
from anydim.runtime.program.binding import requested_dims
from anydim.runtime.program.segment import Buffer, Segment, Site
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import as_size

BIND, RUN = "anydim_bind", "anydim_run"


@dataclass(frozen=True)
class Host:
    """The host code of a program and its interface.

    `requested_dims`: dims that the caller sets, with their slots.
    """

    code: ir.Library
    layout: Layout
    checks: tuple[Check, ...]
    requested_dims: tuple[tuple[str, int], ...] = ()


def emit(program: Segment, runs: bool = True) -> Host:
    """Return the host code; dims that no input determines are read from their slots.

    Without `runs`, it is `bind` alone.
    """
    layout, needed = layout_of(program), _needed_symbols(program)
    waiting = requested_dims(program.signature, needed)
    checks = EntryChecks.of(program.signature, needed, frozenset(waiting))

    def made() -> tuple[ir.Function, ...]:
        binding = _bind(program, checks, layout, waiting)
        return (binding, *_run(program, layout, RUN)) if runs else (binding,)

    called, identity = ("host", "") if runs else ("binding", "bind alone: ")
    code = ir.Library(called, made, key_of(identity + repr(program)))
    names = program.signature.box.names
    words = tuple((name, layout.first_dim + names.index(name)) for name in waiting)
    return Host(code, layout, checks.first + checks.second, words)


def emit_segment(program: Segment, prefix: str) -> ir.Library:
    """Return the code of a program that is a step of a region, as functions `part_names(prefix)`.

    The caller writes the dims; only overflow is checked.
    """

    def made() -> tuple[ir.Function, ...]:
        layout, (bind, run) = layout_of(program), part_names(prefix)
        launching = on_device if program.device else _run
        return _bind_given(program, layout, bind), *launching(program, layout, run)

    return ir.Library(prefix, made, key_of(repr(program)))


def without_names(program: Segment) -> Segment:
    """Return the segment with all that its host code depends on: buffers have numbers as names.

    Kernels and constants are found in tables. Segments of equal layers become equal.
    """
    if program.device:  # its code loads kernels by name
        return program
    numbers = {buffer.name: str(number) for number, buffer in enumerate(program.buffers)}
    numbers[""] = ""  # no workspace

    def named(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(numbers[name] for name in names)

    def specs(found: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        return tuple(replace(spec, name=numbers[spec.name]) for spec in found)

    def site(old: Site) -> Site:
        operands, workspace = named(old.operands), numbers[old.workspace]
        return Site("", operands, old.sizes, old.parallel, old.grain, old.scratch, workspace)

    signature, position = program.signature, Position("", "", as_size(0))
    return replace(
        program,
        signature=Signature("", signature.box, specs(signature.inputs), specs(signature.outputs)),
        buffers=tuple(
            Buffer(numbers[each.name], each.kind, each.bytes, each.offset)
            for each in program.buffers
        ),
        sites=tuple(map(site, program.sites)),
        constants=named(program.constants),
        positions=(position,) * len(program.positions),
        updates=(),
        setups=tuple(replace(each, values=named(each.values)) for each in program.setups),
    )


def layout_of(program: Segment) -> Layout:
    """Return the layout of a segment's block."""
    return Layout.of(program.signature, program.words, len(program.positions), len(program.setups))


def part_names(prefix: str) -> tuple[str, str]:
    """Return the names of a segment's bind and run."""
    return f"{prefix}_bind", f"{prefix}_run"


# ---- bind --------------------------------------------------------------------------------------


def _bind(
    program: Segment, checks: EntryChecks, layout: Layout, waiting: Sequence[str]
) -> ir.Function:
    signature, body = program.signature, Body()
    given = {
        name: RangedValue(
            body.load(BLOCK, layout.first_dim + number), signature.box.dim(name).range
        )
        for number, name in enumerate(signature.box.names)
        if name in waiting
    }
    entry = Entry(signature, checks, body, BLOCK, layout.input_axis, given)
    entry.solve()
    others: dict[str, RangedValue] = {}
    for number, dim in enumerate(signature.box.dims):
        if dim.name not in entry.dims:  # unused
            others[dim.name] = RangedValue(constant(min(dim.lo, LARGEST)), dim.range)
        value = (entry.dims | others)[dim.name].value
        body.store(BLOCK, layout.first_dim + number, value)
    code = verdict(body, entry.inside(), 1)
    with body.when(code.differs(0)):
        body.give(code)
    arithmetic = entry.within(others)
    holding = entry.between(arithmetic)
    emit_sizes(program, layout, arithmetic)
    holding.append(arithmetic.fits)
    body.give(verdict(body, holding, 1 + len(checks.first)))
    return _straight(body, BIND)


def _bind_given(program: Segment, layout: Layout, name: str) -> ir.Function:
    """Compute sizes from dims that the caller has written and checked; 1 if one exceeds 64 bits."""
    body = Body()
    dims = {
        dim.name: RangedValue(body.load(BLOCK, layout.first_dim + number), dim.range)
        for number, dim in enumerate(program.signature.box.dims)
        if dim.name in needed_dims(program)
    }
    arithmetic = Arithmetic(body, dims)
    emit_sizes(program, layout, arithmetic)
    body.give(verdict(body, [arithmetic.fits], 1))
    return _straight(body, name)


def _straight(body: Body, name: str) -> ir.Function:
    return body.function(name, ("block",), public=True, quick=True)


def _needed_symbols(program: Segment) -> frozenset[str]:
    signature = program.signature
    sizes = [*signature.box.constraints]
    sizes += [size for spec in signature.inputs for size in spec.shape]
    sizes += [side for guard in signature.guards for side in (guard.left, guard.right)]
    return needed_dims(program).union(*(size.symbols for size in sizes))


def needed_dims(program: Segment) -> frozenset[str]:
    """Return the dims that the program depends on, except for its checks."""
    sizes = [*program.slots, *(z for spec in program.signature.outputs for z in spec.shape)]
    return frozenset().union(*(size.symbols for size in sizes))


# ---- run ---------------------------------------------------------------------------------------


def stops(program: Segment) -> bool:
    """Whether a call may stop in it: whether any launch may take long."""
    return not program.device and any(map(_long, program.sites))


def _long(site: Site) -> bool:
    """Whether the range of a launch may reach its grain size."""
    range, grain = site.parallel.constant, site.grain.constant
    return range is None or grain is None or range >= grain


def _setups(program: Segment, layout: Layout) -> Iterator[ir.Function]:
    """Yield a function per setup that fills its block; it returns the code of a run."""
    start, words, stopping = 0, words_of(program, layout), stops(program)
    for number, setup in enumerate(program.setups):
        body, stop = Body(), start + setup.launches
        for part, first in enumerate(range(start, stop, STEPS_PER_FUNCTION)):
            steps = program.sites[first : min(stop, first + STEPS_PER_FUNCTION)]
            name = f"{_setup_name(number)}_part{part}"
            yield _chunk(name, first, steps, program, words, stopping, stop)
            if not stopping:
                body.call(name, BLOCK)
                continue
            stopped = body.ask(name, BLOCK)
            with body.when(stopped.differs(0)):
                body.give(stopped + layout.statuses)
        body.give(_first_out_of_range(body, layout, _checks(program, range(start, stop))))
        yield body.function(_setup_name(number), ("block",), quick=True)
        start = stop


def _setup_name(number: int) -> str:
    return f"setup{number}"


def _emit_setups(program: Segment, layout: Layout, body: Body) -> None:
    """Emit the setups with empty blocks; the code returns that of one that fails."""
    for number in range(len(program.setups)):
        empty, behind = (layout.setup(number) + word for word in (EMPTY, BEHIND))
        with body.when(body.load(BLOCK, empty).differs(0)):
            with body.when(body.load(BLOCK, behind) >= 0):
                address = body.load(BLOCK, ARENA) + body.load(BLOCK, behind)
                body.store(BLOCK, layout.setup(number) + ADDRESS, address)
            failed = body.ask(_setup_name(number), BLOCK)
            with body.when(failed.differs(0)):
                body.give(failed)
            body.store(BLOCK, empty, 0)


def _checks(program: Segment, launches: range) -> range:
    """Return the indices that some launches check, in order of their slots."""
    words = [
        program.buffer[name]
        for number in launches
        for name in program.sites[number].operands
        if program.buffer[name].kind == "status"
    ]
    starts = [int(each.offset.constant or 0) // 8 for each in words if each.offset is not None]
    ends = [start + int(each.bytes.constant or 0) // 8 for start, each in zip(starts, words)]
    return range(min(starts, default=0), max(ends, default=0))


def _first_out_of_range(body: Body, layout: Layout, checks: range) -> ir.Value:
    """Return the code of the first of these indices that is out of range, otherwise 0."""
    words = [layout.first_status + number for number in checks]
    inside = [body.let(body.load(BLOCK, word).equals(FINE)) for word in words]
    return verdict(body, inside, 1 + checks.start)


def _run(program: Segment, layout: Layout, name: str) -> Iterator[ir.Function]:
    """Yield all launches of a call; returns the code of the first index out of range, or 0.

    If it `stops`, the verdicts of `stopping.py` are the codes after those.
    """
    yield from _setups(program, layout)
    count, words = len(program.sites), words_of(program, layout)
    starts = range(program.first_launch, count, STEPS_PER_FUNCTION)
    stopping = stops(program)
    for number, start in enumerate(starts):
        steps = program.sites[start : start + STEPS_PER_FUNCTION]
        yield _chunk(f"part{number}", start, steps, program, words, stopping, count)
    body = Body()
    if name == RUN:  # otherwise a part of a call
        body.call(BEGIN, body.load(BLOCK, POOL))
        if stopping:
            with body.when(body.load(BLOCK, STOPPING).differs(0)):
                body.call(STARTED, body.load(BLOCK, STOPPING))
    if not program.setups:
        _emit_wake(body)
    statuses = range(layout.first_status, layout.first_status + layout.statuses)
    for word in statuses:
        body.store(BLOCK, word, FINE)
    if program.setups:
        _emit_setups(program, layout, body)
        _emit_wake(body)
    stopped = body.variable(body.ask("part0", BLOCK)) if stopping and starts else None
    for number in range(0 if stopped is None else 1, len(starts)):
        if stopped is None:
            body.call(f"part{number}", BLOCK)
            continue
        with body.when(stopped().equals(0)):
            stopped.set(body.ask(f"part{number}", BLOCK))
    with body.when(body.load(BLOCK, PARALLEL) >= WORTH_WAKING):
        body.call(REST, body.load(BLOCK, POOL))
    if stopped is not None:
        with body.when(stopped().differs(0)):
            body.give(stopped() + len(statuses))
    body.give(
        _first_out_of_range(body, layout, _checks(program, range(program.first_launch, count)))
    )
    yield _straight(body, name)


def _emit_wake(body: Body) -> None:
    """Emit: wake the workers if the launches are worth it."""
    with body.when(body.load(BLOCK, PARALLEL) >= WORTH_WAKING):
        body.call(WAKE, body.load(BLOCK, POOL))


def _chunk(
    name: str, first: int, steps: Sequence[Site], program: Segment, words: Words, stopping: bool,
    end: int,
) -> ir.Function:  # fmt: skip
    """Return some launches; the verdict, if it is `stopping`. Short launches are checked together.

    There is no check after the launches that `end`.
    """
    body = Body()
    chunk = _Launches(program, words, body)
    for site, step in enumerate(steps, first):
        chunk.launch(site, step)
    if stopping:
        if first + len(steps) < end:
            with body.when(chunk.load(STOPPING).differs(0)):
                body.give(body.ask(LOOK, chunk.load(STOPPING)))
        body.give(0)
    return body.function(name, ("block",), result=stopping, quick=True)


class _Launches(Chunk):
    """Launches on the host."""

    def __init__(self, program: Segment, words: Words, body: Body) -> None:
        super().__init__(program, words, body)
        self.arena, self.pool, self.code = map(self.load, (ARENA, POOL, CODE))

    def launch(self, site: int, step: Site) -> None:
        """Emit a launch; the code returns the verdict of one that may take long, unless it is 0."""
        arguments = self.give_operands(site, step)
        given = (
            self.pool, self.body.load(self.code, site), arguments,
            self.size(step.parallel), self.size(step.grain),
            self.buffer(step.workspace) if step.workspace else self.arena, self.size(step.scratch),
            self.load(STOPPING) if _long(step) else 0,
        )  # fmt: skip
        stopped = self.body.ask(LAUNCH, *given)
        if _long(step):
            with self.body.when(stopped.differs(0)):
                self.body.give(stopped)
