"""Loops of row kernels: the parallel range over several axes, and vectorized passes over a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen import arithmetic
from anydim.compiler.kernels.codegen.context import Context
from anydim.compiler.kernels.codegen.scalar_lowering import Inside, ScalarLowering
from anydim.compiler.kernels.ir import START, STOP, Like, constant, operate, variable

_LINE = 64  # bytes
# A store brings its line in first. Results of 100 KB to some MB: 1.1 to 1.2 -> 0.9 to 1.0.
_AHEAD = 256  # bytes, prefetch distance of stores


@contextmanager
def for_loop(
    scope: Inside, stop: Like, start: Like = 0, step: Like = 1, axis: str = "", letter: str = "i",
    **options: Any,
) -> Iterator[tuple[Inside, ir.Var]]:  # fmt: skip
    """A loop: its body, and its loop variable, which is the index of `axis` if one is named.

    The options are those of `inner`.
    """
    at = variable(scope.context.fresh(letter))
    inner = scope.inner({axis: at} if axis else {}, **options)
    yield inner, at
    scope.steps.append(arithmetic.loop(at.name, start, stop, step, *inner.steps))


@contextmanager
def nested_loops(
    scope: Inside, spans: Iterable[tuple[str, Like, Like]], **options: Any
) -> Iterator[Inside]:
    """Nested loops over axes, each from a start to a stop; yields the innermost body."""
    with ExitStack() as loops:
        for axis, start, stop in spans:
            scope, _ = loops.enter_context(for_loop(scope, stop, start, axis=axis, **options))
        yield scope


@contextmanager
def if_block(scope: Inside, condition: ir.Value | None, **options: Any) -> Iterator[Inside]:
    """A conditional body; None: unconditional. The options are those of `inner`."""
    inner = scope.inner({}, **options)
    yield inner
    steps = tuple(inner.steps)
    scope.steps += steps if condition is None else (ir.If(condition, steps),)


def parallel_loop(
    scope: ScalarLowering, axes: Sequence[tuple[str, ir.Value]],
    body: Callable[[ScalarLowering], None],
    start: ir.Value = START, stop: ir.Value = STOP, home: ScalarLowering | None = None,
) -> None:  # fmt: skip
    """A loop over start:stop of collapsed axes, whose indices advance like an odometer.

    `home` is the scope of the division that finds the first indices; by default it is `scope`.
    """
    counter = scope.context.fresh("r")
    if len(axes) < 2:
        inner = scope.inner({name: variable(counter) for name, _ in axes})
        body(inner)
    else:
        registers = _first_position(scope, axes, start, home)
        values = {name: variable(scope.context.fresh("i")) for name, _ in axes}
        inner = scope.inner(values)
        inner.steps += [ir.Let(values[n].name, ir.register(registers[n])) for n, _ in axes]
        body(inner)
        inner.steps += _advance(inner, axes, registers, values)
    scope.steps.append(arithmetic.loop(counter, start, stop, 1, *inner.steps))


def _first_position(
    scope: ScalarLowering, axes: Sequence[tuple[str, ir.Value]], start: ir.Value,
    home: ScalarLowering | None,
) -> dict[str, str]:  # fmt: skip
    registers: dict[str, str] = {}
    rest = start
    for name, extent in reversed(axes[1:]):
        registers[name] = scope.context.fresh("at")
        index = rest % extent if home is None else home.name(rest % extent)
        scope.steps.append(ir.Declare(registers[name], index))
        rest = (home or scope).name(rest // extent)
    first = axes[0][0]
    registers[first] = scope.context.fresh("at")
    scope.steps.append(ir.Declare(registers[first], rest))
    return registers


def _advance(
    scope: ScalarLowering, axes: Sequence[tuple[str, ir.Value]], registers: dict[str, str],
    values: dict[str, ir.Var],
) -> tuple[ir.Step, ...]:  # fmt: skip
    steps: tuple[ir.Step, ...] = ()
    for position, (name, extent) in enumerate(axes):
        following = variable(scope.context.fresh("n"))
        value = ir.Let(following.name, values[name] + 1)
        taken = ir.Assign(registers[name], following)
        if position == 0:
            steps = (value, taken)
        else:
            back = ir.Assign(registers[name], constant(0))
            steps = (value, ir.If(following < extent, (taken,), (back, *steps)))
    return steps


# ---- passes over a row -------------------------------------------------------------------------


@dataclass(frozen=True)
class Segment:
    """Vectors of a pass: `copies` side by side from `low` on, repeated up to `high`.

    `high` None runs once. With a mask, only its lanes exist, and only where `when` holds.
    """

    copies: int
    low: ir.Value
    high: ir.Value | None = None
    mask: ir.Value | None = None
    when: ir.Value | None = None


def segments(
    scope: ScalarLowering, low: ir.Value, high: ir.Value, lanes: int, unroll: int, step: int = 0
) -> tuple[Segment, ...]:
    """Split low:high into blocks of vectors, single vectors and a masked remainder.

    `unroll` and `lanes` are powers of two unless the range is constant. Vectors are `step` elements
    apart and use at most `step` lanes; 0 stands for `lanes`.
    """
    step = step or lanes
    part = None if step == lanes else first_lanes(scope, constant(step), lanes)
    if isinstance(low, ir.Const) and isinstance(high, ir.Const):
        return _constant_segments(scope, int(low.value), int(high.value), lanes, unroll, step, part)
    return open_segments(scope, low, high, lanes, unroll, step, part)


def open_segments(
    scope: ScalarLowering, low: ir.Value, high: ir.Value, lanes: int, unroll: int, step: int,
    part: ir.Value | None = None,
) -> tuple[Segment, ...]:  # fmt: skip
    """`segments` for a range of any length; `part` masks the lanes below `step`."""
    count = scope.name(high - low)
    blocks_end = _whole(scope, low, count, step * unroll)
    vectors_end = _whole(scope, low, count, step)
    found = [Segment(unroll, low, blocks_end, part)]
    if unroll > 1:
        found.append(Segment(1, blocks_end, vectors_end, part))
    if lanes > 1:
        rest = scope.name(high - vectors_end)
        mask = scope.name(operate("less", *arithmetic.lane_indices(rest, lanes)))
        more = scope.name(vectors_end < high)
        found.append(Segment(1, vectors_end, None, mask, more))
    return tuple(found)


def _whole(scope: ScalarLowering, low: ir.Value, count: ir.Value, block: int) -> ir.Value:
    if block & (block - 1):
        return scope.name(low + arithmetic.quotient(count, block) * block)
    return scope.name(low + arithmetic.round_down(count, block))


def _constant_segments(
    scope: ScalarLowering, low: int, high: int, lanes: int, unroll: int, step: int,
    part: ir.Value | None,
) -> tuple[Segment, ...]:  # fmt: skip
    vectors, rest = divmod(max(0, high - low), step)
    copies = next((u for u in (unroll, unroll - 1) if u > 1 and vectors % u == 0), unroll)
    whole = vectors // copies * copies
    found = []
    if whole:
        end = None if whole == copies else constant(low + whole * step)
        found.append(Segment(copies, constant(low), end, part))
    if vectors > whole:
        found.append(Segment(vectors - whole, constant(low + whole * step), None, part))
    if rest:
        mask = scope.name(operate("less", *arithmetic.lane_indices(constant(rest), lanes)))
        found.append(Segment(1, constant(low + vectors * step), None, mask))
    return tuple(found)


def first_lanes(scope: ScalarLowering, count: ir.Value, lanes: int) -> ir.Value:
    """A mask of the lanes below `count`."""
    return scope.name(arithmetic.first_lanes(arithmetic.least(count, lanes), lanes))


def run_segment(
    scope: ScalarLowering, segment: Segment, lanes: int,
    body: Callable[[ScalarLowering, ir.Value, int], None],
    nontemporal: ir.Value | None = None,
) -> None:  # fmt: skip
    """Emit a segment; `body` gets the scope, the index of lane 0 and the number of the copy.

    `nontemporal` is the condition for nontemporal stores. Their loop issues all loads of an
    iteration before its stores: a load with the page offset of an earlier store waits until that
    store is in memory.
    """
    near = scope.inner({})
    with vectors_of(segment, near, near.inner({}), lanes) as (inner, starts):
        for copy, at in enumerate(starts):
            body(inner, at, copy)
        many, written = segment.copies > 1 and segment.mask is None, list(inner.steps)
        if many:
            inner.steps += store_prefetches(written)
    loop = near.steps[-1] if many and near.steps else None
    if nontemporal is None or not isinstance(loop, ir.For):
        scope.steps += near.steps
        return
    far = replace(loop, body=tuple(_stores_last(scope.context, written)))
    scope.steps += [*near.steps[:-1], ir.If(nontemporal, (far,), (loop,), rare=True)]


def _stores_last(context: Context, steps: Iterable[ir.Step]) -> Iterator[ir.Step]:
    """The steps of an iteration, with its stores moved to the end and made nontemporal."""
    stores: list[ir.Store] = []
    for step in steps:
        if isinstance(step, ir.Store) and _is_whole(step):
            value = ir.Var(step.value.type, context.fresh("stored"))
            stores.append(replace(step, value=value, nontemporal=True))
            yield ir.Let(value.name, step.value)
        else:
            yield step
    yield from stores


def _is_whole(store: ir.Store) -> bool:
    return store.value.type.lanes > 1 and store.mask is None


@contextmanager
def vectors_of(
    segment: Segment, scope: ScalarLowering, inner: Inside, lanes: int
) -> Iterator[tuple[Inside, list[ir.Value]]]:
    """Wrap the steps emitted in `inner` as a segment in `scope`; yields the indices of its
    vectors."""
    start, high = segment.low, segment.high
    if high is not None:
        start = variable(scope.context.fresh("c"))
    yield inner, [inner.name(start + copy * lanes) for copy in range(segment.copies)]
    steps = tuple(inner.steps)
    if isinstance(start, ir.Var) and high is not None:
        steps = (arithmetic.loop(start.name, segment.low, high, lanes * segment.copies, *steps),)
    elif segment.when is not None:
        steps = (ir.If(segment.when, steps),)
    scope.steps += steps


def store_prefetches(steps: Sequence[ir.Step]) -> list[ir.Step]:
    """Prefetch lines that are about to be written.

    A store waits for its line, and later stores wait behind it. With prefetched lines, a core
    writes to its second-level cache as fast as it reads from it, whatever the alignment.
    """
    found: list[ir.Step] = []
    written: dict[str, int] = {}  # bytes of a tensor
    for step in steps:
        if not isinstance(step, ir.Store) or not _is_whole(step):
            continue
        kind = step.value.type
        if written.setdefault(step.buffer, 0) % _LINE == 0:
            far = step.offset + _AHEAD // kind.dtype.bytes
            found.append(ir.Prefetch(step.buffer, far, write=True))
        written[step.buffer] += kind.lanes * kind.dtype.bytes
    return found
