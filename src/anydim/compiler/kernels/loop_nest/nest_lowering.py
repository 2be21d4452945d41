"""Lowers ordered steps to one kernel: loops, branches and partial writes.

The loops run in program order. Threads share a range without dependences between its parts, if
there is one: each thread runs all iterations of the loops for its part. Lanes run along the axis of
each write with contiguous accesses.
"""

from __future__ import annotations

from dataclasses import replace

from anydim.base.errors import OptionError
from anydim.base.text import quote_list
from anydim.compiler.kernels.codegen.scalar_lowering import SizeParameters
from anydim.compiler.kernels.launch import Launch, Machine, moved_bytes
from anydim.compiler.kernels.loop_nest.nest_elements import NestContext, Storage
from anydim.compiler.kernels.loop_nest.nest_form import NestForm, first_copy, loop_ranges
from anydim.compiler.kernels.loop_nest.nest_loops import NestCode
from anydim.compiler.kernels.loop_nest.nest_plan import STAGES, best, operations_of, plan_stages
from anydim.compiler.kernels.loop_nest.nest_schedule import NONE, LoopNest
from anydim.compiler.kernels.loop_nest.nest_stages import StagedCode
from anydim.compiler.kernels.loop_nest.nest_writes import Vectorization, as_run, vectorization_of
from anydim.compiler.kernels.operands import Operands
from anydim.compiler.kernels.template import Task
from anydim.compiler.kernels.work_estimate import TYPICAL_ROW
from anydim.lang.dependence.accesses import instances
from anydim.lang.dependence.chunks import Chunks
from anydim.lang.dependence.verdicts import IN_ORDER, PARALLEL, analyse
from anydim.lang.tree.stepping import expressions_of
from anydim.sizes import Box, Size, align_up, as_size, product


def propose(form: NestForm, task: Task) -> LoopNest:
    storage, _ = _storage(form)
    vectorized = _vectorizations(form, storage, task.machine)
    lanes = max((each.lanes for each in vectorized.values()), default=1)
    chunks = best(form.chunks)
    if chunks is None:
        shared = plan_stages(form, task.box, vectorized, task.machine) is not None
        return LoopNest(lanes, 2, STAGES if shared else NONE)
    in_loops = [i.number for i in instances(form.steps) if i.write is not None and i.loops]
    alone = not chunks.loops and in_loops and all(vectorized[n].lane is None for n in in_loops)
    return LoopNest(lanes, 2, _name(chunks), 1 if alone else 0)


def _name(chunks: Chunks) -> str:
    names = chunks.axis.split(" and ")
    return next((name for name in names if name.isidentifier()), names[0])


def lower(form: NestForm, schedule: LoopNest, task: Task) -> Launch:
    """The launch of a matched group; OptionError for a schedule that splits a range with
    dependences."""
    box, machine = task.box, task.machine
    storage, scratch = _storage(form)
    every = _vectorizations(form, storage, machine)
    plan = plan_stages(form, box, every, machine) if schedule.parallel == STAGES else None
    chunks = None if plan is not None else _choose_chunks(form, schedule, box)
    sizes = SizeParameters()
    buffers = {name: stored.buffer for name, stored in storage.items()}
    context = NestContext(
        form.types, sizes, machine, buffers, running=True, storage=storage,
        variables=form.variables, failed="failed",
    )  # fmt: skip
    vectorized = {
        n: replace(each, lanes=min(each.lanes, schedule.lanes)) if schedule.lanes > 1
        else Vectorization(None, 1)
        for n, each in every.items()
    }  # fmt: skip
    copy = None if schedule.block or plan is not None else first_copy(form)
    how = (context, vectorized, schedule.unroll, schedule.block, copy)
    if plan is None:
        body = NestCode(form, chunks, *how).body()
    else:
        body = StagedCode(form, None, *how).emit_stages(plan.staged, plan.each)
    pairs = () if copy is None else ((copy.made, copy.read),)
    touched = Operands.of(task.group, (expr for _, expr in expressions_of(form.steps)), buffers)
    operations = operations_of(form.steps, as_size(1), loop_ranges(form.steps))
    return touched.launch(
        "loop_nest", sizes, body, schedule, _reason(form, chunks, box, plan is not None),
        parallel=_range(chunks) if plan is None else plan.range,
        work=(operations, moved_bytes(task.group)),
        grain=_grain(form, chunks, machine) if plan is None else -plan.each,
        scratch=scratch, in_place=pairs,
    )  # fmt: skip


def _choose_chunks(form: NestForm, schedule: LoopNest, box: Box) -> Chunks | None:
    if schedule.parallel == NONE:
        return None
    for chunks in form.chunks:
        if schedule.parallel in chunks.axis.split(" and "):
            return chunks
    known = [_name(chunks) for chunks in form.chunks]
    hint = f"it can be split along {quote_list(known)}" if known else "no range of it can be split"
    found = analyse(form.group, box)
    why = [str(v) for v in found.loops if v.at.variable == schedule.parallel]
    why += [str(v) for v in found.axes if v.axis == schedule.parallel and v.order != PARALLEL]
    why += [str(v) for v in found.loops if v.order == IN_ORDER]
    why.append("there is no such axis")
    raise OptionError(f"'{schedule.parallel}' cannot be shared by threads: {why[0]}", hint)


def _range(chunks: Chunks | None) -> Size:
    return as_size(1) if chunks is None else chunks.extent


def _reason(form: NestForm, chunks: Chunks | None, box: Box, staged: bool) -> str:
    found = analyse(form.group, box)
    lines = [str(verdict) for verdict in found.loops]
    if staged:
        lines.append("threads synchronize after each stage")
    elif chunks is None:
        lines.append("no range can be split into independent parts")
    else:
        lines.append(f"parts along {chunks.axis} share nothing that is written")
    return "; ".join(lines)


def _storage(form: NestForm) -> tuple[dict[str, Storage], Size]:
    """The storage of each tensor: operands in their own buffers, temporaries in scratch."""
    operands = (*form.group.inputs, *form.group.outputs)
    found = {
        tensor.name: Storage.of(f"t{number}", tensor.type.shape)
        for number, tensor in enumerate(operands)
    }
    end = as_size(0)
    for tensor in form.temporaries:
        shape = list(tensor.type.shape)
        ring = form.rings.get(tensor.name)
        if ring is not None:
            shape[ring[0]] = as_size(ring[1])
        stored = Storage.of("scratch", tuple(shape))
        start = end // tensor.type.dtype.bytes
        slices = {} if ring is None else dict([ring])
        found[tensor.name] = Storage(stored.buffer, start, stored.strides, slices)
        end = end + align_up(product(shape) * tensor.type.dtype.bytes, 64)
    return found, end


def _vectorizations(
    form: NestForm, storage: dict[str, Storage], machine: Machine
) -> dict[int, Vectorization]:
    """The vectorization of each write; a write outside of loops may be run as a single loop."""
    found = {}
    for i in instances(form.steps):
        if i.write is not None:
            run = None if i.loops else as_run(i.write, form)
            vectorized = vectorization_of(run or i.write, form, storage, machine)
            if run is not None and vectorized.lane is not None:
                vectorized = replace(vectorized, lane=i.write.axes[-1], run=run)
            found[i.number] = vectorized
    return found


# ---- work ----------------------------------------------------------------------------------------


def _grain(form: NestForm, chunks: Chunks | None, machine: Machine) -> int:
    """Positions of the range that make a part worth a thread, at typical sizes."""
    if chunks is None:
        return 1
    operations = operations_of(form.steps, as_size(1), loop_ranges(form.steps))
    typical = dict.fromkeys(operations.symbols, TYPICAL_ROW)
    each = operations.evaluate(typical) // max(1, chunks.extent.substitute(typical).constant or 1)
    return max(1, machine.limits.part_work // max(1, each))
