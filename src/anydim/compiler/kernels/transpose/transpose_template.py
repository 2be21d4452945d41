"""The template of copies whose contiguous axis differs between source and target, and of functions
of such copies.

    y(..., k, w) = f(x(..., w, k))

Square blocks are transposed in registers, so that both sides move whole cache lines: gathering
along the source's rows takes several times as long. For copies a square is half as wide as the
widest registers, because more units shuffle these; 8-byte elements use 8 lanes. A guarded read
yields 0 where its lanes are out of bounds. A function that is more than a copy is computed after
the transpose.

Where target rows are so far apart that their lines map to the same set of the L1 cache, a strip of
squares is assembled in a panel and written to its rows line by line.

Which axes are long is known only at call time. If one of the two has few elements, squares would be
nearly empty, and elements are copied one by one. If the contiguous axis of one side is contiguous
on the other too (a batch of 1 moved to the end), whole vectors are copied.
"""

from __future__ import annotations

from dataclasses import replace

from anydim.base.dtypes import boolean, uint8
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.scalar_lowering import Context, SizeParameters
from anydim.compiler.kernels.codegen.writer import Writer
from anydim.compiler.kernels.knobs import VERSIONS, power_of_two
from anydim.compiler.kernels.launch import Launch
from anydim.compiler.kernels.operands import Operands
from anydim.compiler.kernels.schedule import any_version
from anydim.compiler.kernels.template import Task, form_template
from anydim.compiler.kernels.transpose.transpose_form import (
    TransposeForm,
    blocks_of,
    grain_of,
    parts_of,
    transpose_form_of,
)
from anydim.compiler.kernels.transpose.transpose_loops import FEW, MOST_LANES, Chunks
from anydim.lang.tree import Group, Tensor
from anydim.sizes import as_size, product

# Registers of 64 bytes, and pieces of 16 or 64 rows, are no faster.
_REGISTER = 32  # bytes of the registers for copies: two units shuffle registers of this size
_LEAST = 8  # minimum lanes, given enough registers: whole lines of 8-byte elements


@dataclass(frozen=True)
class Transpose:
    """Square blocks of `lanes` x `lanes`."""

    lanes: int
    version: str = any_version()


def _propose(form: TransposeForm, task: Task) -> Transpose | None:
    group = _group_of(form, task)
    kinds = {tensor.type.dtype for tensor in (*group.inputs, *group.outputs)}
    lanes = min(MOST_LANES, *map(task.machine.lanes, kinds))
    if boolean in kinds or len(group.inputs) != 1 or lanes < 4:
        return None
    dtype = group.inputs[0].type.dtype
    short = [axis.extent.constant for axis in (form.row, form.lane)]
    if _is_interleaved(form):
        short.pop()
    if any(extent is not None and 2 * extent < lanes for extent in short) and dtype.bytes > 2:
        return None
    # Wider registers have one shuffle unit instead of two: no faster.
    if form.value == form.read:
        lanes = min(lanes, max(_LEAST, _REGISTER // dtype.bytes))
    return Transpose(lanes)


def _is_interleaved(form: TransposeForm) -> bool:
    """Whether the target consists of a known small number of interleaved columns."""
    columns, copies = form.lane.extent, form.value == form.read
    packed = form.target.stride(form.row.name) == columns and form.inside is None
    return copies and packed and columns.constant in FEW


def _lower(form: TransposeForm, schedule: Transpose, task: Task) -> Launch:
    group = _group_of(form, task)
    (given,), (made,) = group.inputs, group.outputs
    dtype = given.type.dtype
    sizes = SizeParameters()
    touched = Operands.of(group, (form.value,), {given.name: "x", made.name: "y"})
    context = Context(touched.types, sizes, task.machine)
    code, vector = Writer(), ir.Type(dtype, schedule.lanes)
    chunks = Chunks(code, form, context, made.type.dtype, vector, schedule.version)
    chunks.write()
    outer = product(axis.extent for axis in form.outer)
    moved = (dtype.bytes + made.type.dtype.bytes) * product(made.type.shape)
    return touched.launch(
        "transpose", sizes, code.written, schedule,
        "a copy with another contiguous axis than its source",
        parallel=outer * blocks_of(form, dtype) * parts_of(form), work=(as_size(0), moved),
        grain=grain_of(form, dtype), versions=chunks.versions,
    )  # fmt: skip


def _group_of(form: TransposeForm, task: Task) -> Group:
    """The group of a task; copied flags become bytes."""
    group = task.group
    if form.value != form.read:
        return group

    def bytes_of(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        flags = (t.type.dtype == boolean for t in tensors)
        as_bytes = (replace(t, type=replace(t.type, dtype=uint8)) for t in tensors)
        return tuple(b if flag else t for t, b, flag in zip(tensors, as_bytes, flags))

    return replace(group, inputs=bytes_of(group.inputs), outputs=bytes_of(group.outputs))


TEMPLATE = form_template(
    "transpose", Transpose, lambda task: transpose_form_of(task.group, task.box), _propose, _lower,
    same_bits=True,
    knobs={
        "lanes": power_of_two(64).with_tries(4, 8, 16, everywhere=(4, 8, 16)), "version": VERSIONS,
    },
)  # fmt: skip
