"""The template of attention: softmax(f(queries * keys)) * values in one kernel.

The matrix of scores is never materialised: a tile of queries is multiplied by a block of keys, its
scores become powers in the first-level cache, and the mixed values are stored to the result. When
all keys fit one block, as with sentences, softmax is computed directly; otherwise the running
maximum and sum of online softmax (Milakov and Gimelshein, 2018) combine the blocks.

A row whose scores are all -inf, or that has a NaN, is NaN, as in numpy; without keys the result is
0. Keys whose score is 80 below the row's maximum count as 0. Keys after the last key that a mask
permits for a tile of queries may be skipped, whatever their values (`key_masks.py`).
"""

from __future__ import annotations

from dataclasses import replace

from anydim.base.dtypes import float32, uint8
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.attention.attention_loops import attention_steps
from anydim.compiler.kernels.attention.attention_plan import Plan, are_words, heads_of
from anydim.compiler.kernels.attention.key_panels import tile_library, tile_rows
from anydim.compiler.kernels.attention_form import AttentionForm, attention_form
from anydim.compiler.kernels.codegen.scalar_lowering import Context, SizeParameters
from anydim.compiler.kernels.ir import constant, variable
from anydim.compiler.kernels.knobs import FLAG, VERSIONS, Knob, is_whole
from anydim.compiler.kernels.launch import Launch, Machine, moved_bytes
from anydim.compiler.kernels.naming import named_kernel
from anydim.compiler.kernels.operands import Operands
from anydim.compiler.kernels.schedule import ANY, any_version
from anydim.compiler.kernels.template import Task, form_template
from anydim.compiler.kernels.versions import (
    Listed,
    Version,
    checked_version,
    taken_where,
    versioned_launch,
)
from anydim.lang.tree import Read
from anydim.sizes import (
    ALWAYS,
    NEVER,
    Box,
    Size,
    Truth,
    as_size,
    at_most,
    maximum,
    minimum,
    product,
    prove,
    settle,
)

ONE_BLOCK, BLOCKS = "one_block", "blocks"  # names of versions
MAX_KEYS = 512  # maximum keys in one block
MIN_PAIRED = 24  # keys: 1 to 16 take 1.17 to 1.2 of float32's time in bfloat16, 32 take 0.9


@dataclass(frozen=True)
class Attention:
    """Tiles of `rows` queries against blocks of `key_block` keys, `lanes` at a time.

    A unit of parallel work is at most `query_block` queries of one batch position. With `copies`,
    values are packed along with the keys; otherwise they are read in place.
    """

    query_block: int
    key_block: int
    lanes: int
    rows: int
    copies: bool = False
    version: str = any_version()


@dataclass(frozen=True)
class Bfloat16Attention(Attention):
    """Attention of queries, keys, values and shares rounded to bfloat16; values are packed."""


def _propose(form: AttentionForm, task: Task) -> Attention | None:
    machine, lanes = task.machine, task.machine.lanes(float32)
    if form.widens or form.rounds or form.narrow or lanes % 4 or lanes & (lanes - 1):
        return None
    rows = tile_rows(machine.registers)
    fitting = machine.l1_bytes * 3 // 4 // (rows * float32.bytes)
    key_block = max(lanes, min(MAX_KEYS, fitting // lanes * lanes))
    tiles = 2 if _fit(form, key_block, task.box) else 16
    return Attention(tiles * rows, key_block, lanes, rows)


def _propose_pairs(form: AttentionForm, task: Task) -> Bfloat16Attention | None:
    if not (form.rounds and task.machine.pairs) or (form.depth.extent.constant or 1) % 2:
        return None
    in_rows = form.keys.address.stride(form.depth.name).constant == 1
    if form.keys.tensor in form.narrow and in_rows and not are_words(form.keys):
        return None
    plain = _propose(_exact(form), task)
    if plain is None:
        return None
    return Bfloat16Attention(plain.query_block, plain.key_block, plain.lanes, plain.rows)


def _exact(form: AttentionForm) -> AttentionForm:
    """The same attention of float32."""
    return replace(form, rounds=False, widens=False, narrow=frozenset())


def _fit(form: AttentionForm, key_block: int, box: Box) -> bool:
    """Whether all keys always fit one block."""
    return prove(form.key.extent, "<=", key_block, box) is Truth.PROVED


def _lower(form: AttentionForm, schedule: Attention, task: Task) -> Launch:
    group, machine = task.group, task.machine
    versions = _versions(form, schedule, task.box)
    fit, heads = versions[0][0] == ONE_BLOCK, heads_of(form)
    plan = Plan(
        form=form,
        library=tile_library(schedule.lanes, schedule.rows, form.rounds),
        rows=schedule.rows,
        tiles=max(1, schedule.query_block // (schedule.rows * heads)),
        lanes=schedule.lanes,
        key_block=schedule.key_block,
        l2_bytes=machine.l2_bytes,
        blocks=not fit,
        copies=(
            schedule.copies
            or form.rounds
            or (form.width.extent.constant or 0) % schedule.lanes != 0
        ),
    )
    factors = (form.queries.tensor, form.keys.tensor, form.values.tensor)
    kernel_operands = Operands.of(group, (form.score, *(Read(name, ()) for name in factors)))
    sizes = SizeParameters()
    variant = "all keys in one block" if fit else "online softmax over blocks of keys"
    variant += "; factors rounded to bfloat16" * form.rounds
    return kernel_operands.launch(
        "attention", sizes, (), schedule, f"two products joined by softmax; {variant}",
        kernel=_kernel(plan, kernel_operands, sizes, machine),
        parallel=product(axis.extent for axis in plan.batch) * plan.chunks,
        work=(_flops(form), moved_bytes(group)), grain=_grain(form, schedule, machine),
        scratch=plan.scratch, versions=versions,
    )  # fmt: skip


def _versions(form: AttentionForm, schedule: Attention, box: Box) -> Listed:
    """The version: `one_block` if the box has no more keys than a block, else `blocks`."""
    one = taken_where(
        schedule.version, ONE_BLOCK, settle(at_most(form.key.extent, schedule.key_block), box)
    )
    return checked_version(
        schedule.version, ((ONE_BLOCK, ALWAYS if one == ALWAYS else NEVER), (BLOCKS, ALWAYS))
    )[:1]


def _lower_pairs(form: AttentionForm, schedule: Bfloat16Attention, task: Task) -> Launch:
    """Lower to the kernel of bfloat16, and to that of float32 for few keys that it has to round.

    Queries of other keys, as in a decoder's step, have the bits that they have among more keys.
    """
    if form.narrow or form.query.extent != form.key.extent:
        return _lower(form, schedule, task)
    plain = _propose(_exact(form), task)
    return versioned_launch(
        (
            Version(
                "exact", at_most(form.key.extent, MIN_PAIRED - 1), plain,
                lambda own: _lower(_exact(form), own, task),
            ),
            Version(
                "pairs", ALWAYS, replace(schedule, version=ANY),
                lambda own: _lower(form, own, task),
            ),
        ),
        schedule,
    )  # fmt: skip


def _grain(form: AttentionForm, schedule: Attention, machine: Machine) -> Size:
    """Return the blocks of queries that pay for another thread."""
    heads = heads_of(form)
    block = max(schedule.rows, schedule.query_block // heads)
    queries = minimum(form.query.extent, block) * heads
    each = queries * form.key.extent * (form.depth.extent + form.width.extent)
    return maximum(as_size(machine.limits.attention_work) // maximum(each, 1), 1)


def _kernel(
    plan: Plan, kernel_operands: Operands, sizes: SizeParameters, machine: Machine
) -> ir.Kernel:
    """Return two functions: `main` divides the scratch memory into the parts that `units` uses."""
    context = Context(kernel_operands.types, sizes, machine, kernel_operands.buffers)
    steps, operands = attention_steps(plan, context), kernel_operands.operands
    offsets = [(part.name, sizes.value(part.offset)) for part in plan.parts]
    shared: tuple[ir.Pointer | ir.Scalar, ...] = (
        *(ir.Pointer(operand.name, operand.dtype) for operand in operands),
        *(ir.Scalar(name) for name in (*sizes.names, ir.START.name, ir.STOP.name)),
    )
    parts = tuple(ir.Pointer(name, float32) for name, _ in offsets)
    kind = "_pairs" if plan.pairs else ""  # both may be versions in one kernel
    units = ir.Function(f"units{kind}", (*shared, *parts), steps)
    arguments: tuple[ir.Value | ir.Address, ...] = (
        *(ir.Address(operand.name, constant(0)) for operand in operands),
        *map(variable, sizes.names),
        ir.START,
        ir.STOP,
        *(ir.Address("scratch", at) for _, at in offsets),
    )
    call = ir.Call(units.name, arguments)
    main = ir.Function(f"main{kind}", (*shared, ir.Pointer("scratch", uint8)), (call,))
    return named_kernel("attention", operands, sizes.names, (units, main), (plan.library,))


def _flops(form: AttentionForm) -> Size:
    rows = product(axis.extent for axis in (*form.batch, form.query))
    return rows * form.key.extent * (form.depth.extent + form.width.extent) * 2


_KNOBS = {
    "query_block": Knob(
        lambda value, at: is_whole(value, at.rows, 1 << 20) and value % at.rows == 0,
        "a multiple of the rows of a tile", everywhere=(24, 48, 96, 192, 384),
    ),
    "key_block": Knob(
        lambda value, at: is_whole(value, at.lanes, 4096) and value % at.lanes == 0,
        "a multiple of the lanes up to 4096",
    ),
    "version": VERSIONS,
}  # fmt: skip
TEMPLATE = form_template(
    "attention", Attention, lambda task: attention_form(task.group), _propose, _lower,
    knobs={**_KNOBS, "copies": FLAG.with_tries(everywhere=(False, True))},
)  # fmt: skip
BFLOAT16 = form_template(
    "attention_bfloat16", Bfloat16Attention, lambda task: attention_form(task.group),
    _propose_pairs, _lower_pairs, rounds=True, least_lanes=64, knobs=_KNOBS,
)  # fmt: skip
