"""Regions -> host code: a function per region that returns 0 or the number of a failure.

All functions take the memory of the call (`region_layout.py`). A region holds a reference to a
value of a step until its last use; passing it on adds a reference. The caller of a region holds
those of its inputs. Ownership of results moves to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anydim.base.cache import key_of
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import constant, select
from anydim.compiler.native import blocks
from anydim.compiler.native.arithmetic import LARGEST
from anydim.compiler.native.blocks import DROP
from anydim.compiler.native.body import Body
from anydim.compiler.native.delegate_emit import emit_engine_call
from anydim.compiler.native.device_emit import call_device
from anydim.compiler.native.emit import (
    emit_segment,
    needed_dims,
    part_names,
    stops,
    without_names,
)
from anydim.compiler.native.region_code import BLOCK, MAIN, Code, function_name, tensor_bytes
from anydim.compiler.native.region_loop import loop
from anydim.compiler.native.shared_steps import share_steps
from anydim.compiler.native.stopping import KINDS, STARTED
from anydim.compiler.native.threads import BEGIN
from anydim.runtime import context, slots
from anydim.runtime.checks import Check
from anydim.runtime.failures import Failure
from anydim.runtime.layout import ARENA, ARENA_BYTES, PARALLEL, POOL, STOPPING
from anydim.runtime.program.binding import requested_dims
from anydim.runtime.program.program import Program
from anydim.runtime.program.region import (
    BranchStep,
    CallStep,
    CopyStep,
    EngineStep,
    FindStep,
    LoopStep,
    PartStep,
    Region,
    ReleaseStep,
    SegmentStep,
    Step,
)
from anydim.runtime.program.region_layout import RegionLayout, region_layout
from anydim.runtime.program.segment import Segment
from anydim.sizes import Guard


@dataclass(frozen=True)
class RegionHost:
    """The code of all regions and segments, the layout of their slots, and the meaning of failure
    numbers."""

    code: tuple[ir.Library, ...]
    layout: RegionLayout
    failures: tuple[Failure, ...]
    requested_dims: tuple[str, ...]  # dims of the entry region that the caller sets


def emit_regions(program: Program) -> RegionHost:
    """Return the code of a program; raises GraphError if inputs do not determine a needed dim."""
    layout = region_layout(program)
    failures: list[Failure] = []
    segments: dict[Segment, ir.Library] = {}
    prefixes = []
    for segment in map(without_names, program.segments):
        if segment not in segments:
            segments[segment] = emit_segment(segment, f"anydim_segment{len(segments)}")
        prefixes.append(segments[segment].name)
    functions = tuple(
        function
        for number in range(len(program.regions))
        for function in _functions(Code(program, number, layout, failures, prefixes))
    )
    regions = ir.Library("regions", functions, key_of(repr(program)))
    requested = _requested_dims(program.regions[-1])
    return RegionHost((*segments.values(), regions), layout, tuple(failures), requested)


def _requested_dims(region: Region) -> tuple[str, ...]:
    """Return the dims that segments need and neither inputs nor other steps may determine."""
    needed: set[str] = set()
    determined: set[str] = set(region.given)
    for step in region.steps:
        if isinstance(step, SegmentStep):
            needed |= needed_dims(step.segment)
            continue
        determined.update(step.dims if isinstance(step, FindStep) else ())
        determined.update([step.counter] if isinstance(step, LoopStep) else ())
        if not isinstance(step, CopyStep):
            sizes = (size for name in step.makes for size in region.values[name].shape)
            determined.update(dim for size in sizes for dim in size.symbols)
    return requested_dims(region.signature, frozenset(needed - determined))


def _functions(code: Code) -> Iterator[ir.Function]:
    """Yield the function of a region, behind those for equal steps."""
    region, own = code.region, code.slots
    code.known |= region.given
    if code.number == len(code.program.regions) - 1:
        code.known.update(_requested_dims(region))
    name = function_name(code.program, code.number)
    if name == MAIN:
        code.body.call(BEGIN, code.load(context.POOL))
        code.body.call(STARTED, BLOCK)
    inputs = region.signature.inputs
    shapes = [own.values[spec.name] for spec in inputs]
    code.determine(region.signature.name, "input", inputs, shapes, everything=True)
    ends = [code.body.here]
    for number, step in enumerate(region.steps):
        code.wait_for(step.reads)
        _STEPS[type(step)](code, number, step)
        ends.append(code.body.here)
    code.wait_for([spec.name for spec in region.signature.outputs])
    _wait_for_shared(code)
    for spec, target, moved in zip(region.signature.outputs, own.results, own.moved):
        if not moved:
            code.copy_value(code.value(spec.name), target, spec.rank)
            code.hold(target.owner)
    code.body.give(0)
    shared, written = share_steps(code.body.written, ends, name)
    yield from shared
    body = Body()
    body.take(written)
    yield body.function(name, ("block",), public=name == MAIN)


def _release(code: Code, number: int, step: ReleaseStep) -> None:
    for name in step.reads:
        code.drop(code.value(name).owner, code.device(name))


def _copy(code: Code, number: int, step: CopyStep) -> None:
    """Copy a value to another device; a copy to the host is waited for before its first use."""
    spec, value, made = code.spec(step.value), code.value(step.value), code.value(step.made)
    code.copy(value.shape, made.shape, spec.rank)
    bytes = constant(spec.dtype.bytes)
    for axis in range(spec.rank):
        bytes = code.body.let(bytes * code.load(value.shape + axis))
    data = code.load(value.data)
    if number not in code.resident:
        _copy_or_share(code, number, step, data, bytes)
    else:
        with code.body.when(code.load(code.slots.events[number]).differs(0)):
            code.store(made.data, data)
            if step.origin:
                code.store(made.owner, code.load(value.owner))
                code.hold(made.owner)
            else:
                code.store(made.owner, 0)  # the caller's
        with code.body.otherwise():
            _copy_or_share(code, number, step, data, bytes)
    if not step.target:
        code.store(code.slots.events[number], code.event(step.origin))
        code.coming[step.made] = (step.origin, code.slots.events[number])


def _copy_or_share(
    code: Code, number: int, step: CopyStep, data: ir.Value, bytes: ir.Value
) -> None:
    """Copy a value, unless a device in host memory shares it."""
    made = code.value(step.made)
    lent = {step.made: step.value, step.value: step.made}.items() & code.shared.items()
    if lent:
        with code.body.when(code.on_host(step.origin or step.target)):
            if not step.origin:  # a result is here already
                code.store(made.data, data)
                code.store(made.owner, 0)
        with code.body.otherwise():
            _copy_to_block(code, number, step, data, bytes)
    else:
        _copy_to_block(code, number, step, data, bytes)


def _copy_to_block(
    code: Code, number: int, step: CopyStep, data: ir.Value, bytes: ir.Value
) -> None:
    """Copy a value to a newly allocated block."""
    block, memory = code.allocate(bytes, step.source, step.target)
    code.store_block(code.value(step.made), block, memory)
    if not step.origin:
        code.do(step.target, slots.COPY_IN, memory, data, bytes, code.copies[number])
    elif not step.target:
        code.do(step.origin, slots.COPY_OUT, memory, data, bytes, code.copies[number])
    else:
        _across(code, step, memory, data, bytes, code.copies[number])


def _waited_devices(code: Code) -> set[str]:
    """Return the devices from which a result was copied and waited for after the last work."""
    steps = code.region.steps
    work = [n for n, step in enumerate(steps) if not isinstance(step, (CopyStep, ReleaseStep))]
    after = steps[max(work, default=-1) + 1 :]
    copies = (step for step in after if isinstance(step, CopyStep) and not step.target)
    return {step.origin for step in copies if step.made not in code.coming}


def _wait_for_shared(code: Code) -> None:
    """Emit a wait until no device works on arrays of the caller."""
    lent = {code.device(name) for name in code.shared}
    for device in sorted(lent - _waited_devices(code)):
        reads = code.on_host(device)
        for number in code.resident:
            step = code.region.steps[number]
            if isinstance(step, CopyStep) and step.target == device:
                reads = reads | code.load(code.slots.events[number]).differs(0)
        with code.body.when(reads):
            code.do(device, slots.WAIT, code.event(device))


def _across(
    code: Code, step: CopyStep, target: ir.Value, source: ir.Value, bytes: ir.Value, which: int
) -> None:
    """Copy between devices: within a shared context, otherwise directly, or via the host."""
    contexts = (code.layout.homes[device] + slots.CONTEXT for device in (step.origin, step.target))
    first, second = map(code.load, contexts)
    with code.body.when(first.equals(second)):
        code.do(step.target, slots.COPY_WITHIN, target, source, bytes, which)
    with code.body.otherwise():
        home_of = code.home(step.target)
        found = call_device(
            code.body, home_of, slots.COPY_FROM, target, first, source, bytes, which
        )
        failed = code.failure("device", found=code.layout.homes[step.target])
        code.leave_unless(found.differs(1), failed)
        with code.body.when(found.equals(slots.BY_HOST)):
            _by_host(code, step, target, source, bytes, which)


def _by_host(
    code: Code, step: CopyStep, target: ir.Value, source: ir.Value, bytes: ir.Value, which: int
) -> None:
    block, between = code.allocate(bytes, step.source)
    code.do(step.origin, slots.COPY_OUT, between, source, bytes, which)
    code.do(step.origin, slots.WAIT, code.event(step.origin))
    code.do(step.target, slots.COPY_IN, target, between, bytes, which)
    code.body.call(DROP, BLOCK, block)


# ---- segments ------------------------------------------------------------------------------


def _segment(code: Code, number: int, step: SegmentStep) -> None:
    program, block = step.segment, code.slots.segments[number]
    bind, run = part_names(code.prefixes[block.number])
    body, layout = code.body, block.layout
    for input, name in enumerate(step.reads):
        code.copy(code.value(name).data, block.base + layout.pointer(input))
    _bind(code, number, step, bind)
    if program.total_bytes.constant != 0 or (program.device and program.positions):
        arena = _arena(code, program, code.load(block.base + ARENA_BYTES))
        refused = code.failure("memory", step.source, found=context.FOUND)
        code.leave_unless(arena.differs(0), refused)
        code.store(block.base + ARENA, arena)
    updated = dict(step.updates)
    for output, name in enumerate(step.makes):
        if name in updated:
            operand = code.value(updated[name])
            code.store_block(code.value(name), code.load(operand.owner), code.load(operand.data))
            code.hold(operand.owner)
            continue
        size = tensor_bytes(code.spec(name)).constant
        bytes = code.load(block.bytes + output) if size is None else constant(size)
        _result(code, name, bytes, step.source)
    if program.device:
        code.store(block.base + POOL, code.home(program.device))
    elif program.threads > 1:
        several = code.load(block.base + PARALLEL).differs(0)
        code.store(block.base + POOL, select(several, code.load(context.POOL), 0))
    failed = body.ask(run, code.address(block.base))
    stopping = stops(program)
    if program.positions or program.device or stopping:
        offset = len(code.failures)
        first = block.base + layout.first_status
        code.failures += [
            code.failure("position", step.source, position=position, found=first + word)
            for word, position in enumerate(program.positions)
        ]
        if program.device:
            words = code.layout.homes[program.device]
            code.failures.append(code.failure("device", step.source, found=words))
        elif stopping:
            code.failures += [code.failure(kind, step.source) for kind in KINDS]
        code.leave_with(failed, offset)


def _arena(code: Code, program: Segment, bytes: ir.Value) -> ir.Value:
    """Allocate the arena of a segment; on a device, with the status slots of checked indices."""
    if not program.device:
        return code.body.ask(blocks.ARENA, BLOCK, bytes)
    arena = blocks.DEVICE.function(blocks.ARENA)
    return code.body.ask(arena, code.home(program.device), bytes + 8 * len(program.positions))


def _result(code: Code, name: str, bytes: ir.Value, source: str) -> None:
    """Set the destination of a segment's result: a slice of an outer stack, or a new block."""
    value, target, device = code.value(name), code.target(name), code.device(name)
    if device and name in code.shared:
        _shared_result(code, name, bytes, source)
        return
    if target is None:
        code.store_block(value, *code.allocate(bytes, source, device))
        return
    requested = code.load(target.data)
    with code.body.when(requested.differs(0)):
        code.store_block(value, code.load(target.owner), requested)
        code.hold(target.owner)
        code.store(target.data, 0)
    with code.body.otherwise():
        code.store_block(value, *code.allocate(bytes, source, device))


def _shared_result(code: Code, name: str, bytes: ir.Value, source: str) -> None:
    """Let a device in host memory write a result of the call where the caller reads it."""
    value, device = code.value(name), code.device(name)
    with code.body.when(code.on_host(device)):
        block, memory = code.allocate(bytes, source)
        code.store_block(code.value(code.shared[name]), block, memory)
        code.store_block(value, constant(0), memory)
    with code.body.otherwise():
        code.store_block(value, *code.allocate(bytes, source, device))


def _bind(code: Code, number: int, step: SegmentStep, bind: str) -> None:
    """Bind the sizes of the segment, unless they equal the last ones."""
    program, block, body = step.segment, code.slots.segments[number], code.body
    names = program.signature.box.names
    first = block.base + block.layout.first_dim
    used = [dim for dim in names if dim in needed_dims(program)]
    changed = body.let(code.load(block.bound).equals(0))
    dims = code.arithmetic().symbols
    for dim in used:
        before = code.load(first + names.index(dim))
        changed = body.let(changed | dims[dim].value.differs(before))
    with body.when(changed):
        code.store(block.bound, 0)
        for dim in used:
            code.copy(code.slots.dims[dim], first + names.index(dim))
        failed = code.failure("check", step.source, check=Check("large"))
        bad = body.ask(bind, code.address(block.base))
        code.leave_unless(bad.equals(0), failed)
        arithmetic = code.arithmetic()
        for output, name in enumerate(step.makes):
            size = tensor_bytes(code.spec(name))
            if size.constant is None:
                code.store(block.bytes + output, arithmetic.size(size))
        code.fits(arithmetic, step.source)
        code.store(block.base + STOPPING, BLOCK)
        code.store(block.bound, 1)


# ---- data-dependent dims, other regions --------------------------------------------------------


def _find(code: Code, number: int, step: FindStep) -> None:
    spec, sizes = code.spec(step.value), code.value(step.value)
    if step.row is None and spec.rank and spec.shape[0].constant != len(step.dims):
        count = code.load(sizes.shape)
        dims = ", ".join(step.dims)
        failed = code.failure("count", step.source, dim=dims, found=sizes.shape)
        code.leave_unless(count.equals(len(step.dims)), failed)
    data = code.load(sizes.data)
    if step.row is not None:  # a row of the table, as the verifier has proved
        words = code.arithmetic().size(step.row * len(step.dims))
        data = code.body.let(data + words * 8)
    code.known |= set(step.dims)
    checks = []
    for word, name in enumerate(step.dims):
        value = code.body.load(data, word)
        code.store(code.slots.dims[name], value)
        dim = code.region.signature.box.dim(name)
        failed = code.failure("found", step.source, dim=name)
        checks.append((code.body.let(value >= dim.lo), failed))
        if dim.hi is not None:
            high = min(dim.hi, LARGEST)
            checks.append((code.body.let(value <= high), failed))
    code.leave_first(checks)
    where = step.source or code.region.signature.name
    code.determine(where, "size", (), (), found=frozenset(step.dims))


def _part(code: Code, number: int, step: PartStep) -> None:
    """Point into the memory of a value; the verifier has proved that the part is inside."""
    spec, value, made = code.spec(step.made), code.value(step.value), code.value(step.made)
    arithmetic = code.arithmetic()
    offset = arithmetic.size(step.first * spec.dtype.bytes)
    for axis, size in enumerate(spec.shape):
        code.store(made.shape + axis, arithmetic.size(size))
    code.fits(arithmetic, step.source)
    code.store_block(made, code.load(value.owner), code.body.let(code.load(value.data) + offset))
    code.hold(made.owner)


def _call(code: Code, number: int, step: CallStep) -> None:
    code.use(step.region, step.given, step.makes, step.source)
    code.check_results(step.makes, step.source)


def _branch(code: Code, number: int, step: BranchStep) -> None:
    body = code.body
    if isinstance(step.condition, Guard):
        guard, arithmetic = step.condition, code.arithmetic()
        left, right = arithmetic.size(guard.left), arithmetic.size(guard.right)
        holds = arithmetic.holds(left, guard.relation, right)
        code.fits(arithmetic, step.source)
    else:
        holds = code.truth(code.value(step.condition))
    with body.when(holds):
        code.use(step.then, step.given, step.makes, step.source)
    with body.otherwise():
        code.use(step.otherwise, step.given, step.makes, step.source)
    code.check_results(step.makes, step.source)


_STEPS: dict[type[Step], Callable[..., None]] = {
    SegmentStep: _segment,
    FindStep: _find,
    PartStep: _part,
    BranchStep: _branch,
    CallStep: _call,
    LoopStep: loop,
    CopyStep: _copy,
    EngineStep: emit_engine_call,
    ReleaseStep: _release,
}
