"""Attention with a running softmax: a group makes one row of the result, keys pass by in blocks.

An item has the score of one key of the block, and one element of the row in `items`. The largest
score so far and the sum of shares are corrected when a block has a larger one (Milakov and
Gimelshein, Online normalizer calculation for softmax, 2018), so scores are nowhere kept.
"""

from __future__ import annotations

from anydim.base.dtypes import float32
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.attention.form import AttentionForm, attention_form
from anydim.kernels.grouped.places import Work, plain
from anydim.kernels.ir import apply, constant, convert, fma, greatest, least, number, select
from anydim.kernels.launch import Launch, Machine
from anydim.kernels.template import Task, form_template
from anydim.kernels.write.elements import Elements
from anydim.kernels.write.writer import Writer
from anydim.lang.tree import Group, Read, TensorType
from anydim.lang.tree.affine import Affine
from anydim.sizes import product

_START, _ITEM = ir.Var(ir.INDEX, "start"), ir.Item()
_FLOAT = ir.Type(float32)
_LEAST = number(float32, float("-inf"))


@dataclass(frozen=True)
class Running:
    """`items` make a group, and so many keys a block."""

    items: int = 64


def _form(group: Group) -> AttentionForm | None:
    form = attention_form(group) if plain(group) else None
    if form is None or form.nan_is_zero or form.width.extent.constant is None:
        return None
    return form if group.type_of(form.output.tensor).dtype == float32 else None


def _lower(form: AttentionForm, schedule: Running, task: Task) -> Launch:
    writer = _Writer(task.group, form, schedule.items, task.machine)
    body = writer.body()
    rows = product(axis.extent for axis in (*form.batch, form.query))
    pairs = rows * form.key.extent
    locals = [ir.Local(name, float32, schedule.items) for name in ("shared", "shares")]
    return writer.work.launch(
        "running", body, schedule.items, locals,
        parallel=rows, flops=2 * pairs * (form.depth.extent + form.width.extent),
        schedule=schedule,
        reason="an attention, a group for each row, with a running softmax",
    )  # fmt: skip


TEMPLATE = form_template(
    "running", Running, lambda task: _form(task.group), lambda *_: Running(), _lower,
    keeps=True, widens=True,
)  # fmt: skip


class _Writer:
    """Writes the body of one kernel."""

    def __init__(self, group: Group, form: AttentionForm, items: int, machine: Machine) -> None:
        self.form, self.items = form, items
        self.work = Work(group, machine, {form.raw: TensorType(float32, ())})
        self.code = Writer("w")  # beside names of the work
        width = form.width.extent.constant
        assert width is not None
        self.width = width
        self.shares = range(-(-width // items))  # elements of the row that an item has

    def body(self) -> list[ir.Step]:
        """The steps of an item."""
        form, code = self.form, self.code
        outside = Elements(self.work.context)
        row = outside.inner(self.work.indices(_START, (*form.batch, form.query)))
        code.emit(ir.Declare("top", _LEAST))
        for name in ("total", *(f"sum{j}" for j in self.shares)):
            code.emit(ir.Declare(name, number(float32, 0)))
        self.keys = self.work.sizes.value(form.key.extent)
        with code.range(0, self.keys, self.items) as first:
            self._block(row, first)
        self._finish(row)
        return [*outside.steps, *self.work.written, *row.steps, *code.written]

    def _block(self, row: Elements, first: ir.Value) -> None:
        """Scores of a block of keys, their shares, and what they add to the row."""
        code, let = self.code, self.code.let
        score, top, total = (ir.Get(_FLOAT, name) for name in ("score", "top", "total"))
        key = let(first + _ITEM)
        code.emit(ir.Declare("score", _LEAST))
        with code.when(key < self.keys):
            self._score(row, key)
        found = let(greatest(top, self._folded("max", score)))
        shift = let(select(found.equals(_LEAST), number(float32, 0), found))
        scale, share = let(apply("exp", top - shift)), let(apply("exp", score - shift))
        code.emit(ir.Store("shares", _ITEM, share))
        more = self._folded("add", share)
        code.emit(ir.Assign("total", fma(total, scale, more)))
        code.emit(ir.Assign("top", found))
        for j in self.shares:
            self._weighted(row, j, scale, first)
        code.emit(ir.Barrier())

    def _score(self, row: Elements, key: ir.Value) -> None:
        """The score of a key: a product over the depth, and what follows it."""
        form, code, name, raw = self.form, self.code, self.form.key.name, ir.Get(_FLOAT, "raw")
        code.emit(ir.Declare("raw", number(float32, 0)))
        with code.range(0, self.work.sizes.value(form.depth.extent)) as at:
            inner = row.inner({name: key, form.depth.name: at})
            a, b = (self._load(inner, f.tensor, f.address) for f in (form.queries, form.keys))
            code.take([*inner.steps, ir.Assign("raw", fma(a, b, raw))])
        product = code.let(raw)

        def done(read: Read) -> ir.Value | None:
            return product if read.tensor == form.raw else None

        after = row.inner({name: key}, local=done, answers=frozenset((form.raw,)))
        value = after.value(form.score, float32)
        code.take([*after.steps, ir.Assign("score", value)])

    def _load(self, scope: Elements, tensor: str, address: Affine) -> ir.Value:
        kind = ir.Type(self.work.types[tensor].dtype)
        held = scope.name(ir.Load(kind, self.work.buffers[tensor], scope.offset(address)))
        return scope.name(convert(held, float32))

    def _folded(self, function: str, value: ir.Value) -> ir.Value:
        """A value of all items combined, which every item then has."""
        self.code.take(self.work.folded(function, value, "shared", self.items))
        found = self.code.let(ir.Load(_FLOAT, "shared", constant(0)))
        self.code.emit(ir.Barrier())
        return found

    def _weighted(self, row: Elements, j: int, scale: ir.Value, first: ir.Value) -> None:
        """An element of the row: what it was, corrected, and the values of the block."""
        form, code, total = self.form, self.code, ir.Get(_FLOAT, f"sum{j}")
        column = _ITEM + j * self.items
        with code.when(column < self.width):
            code.emit(ir.Assign(total.name, total * scale))
            with code.range(0, least(self.keys - first, self.items)) as k:
                inner = row.inner({form.key.name: first + k, form.width.name: column})
                value = self._load(inner, form.values.tensor, form.values.address)
                add = fma(ir.Load(_FLOAT, "shares", k), value, total)
                code.take([*inner.steps, ir.Assign(total.name, add)])

    def _finish(self, row: Elements) -> None:
        """The row, divided by the sum of all shares; 0 where there are no keys."""
        code, none, output = self.code, self.keys.equals(0), self.form.output
        for j in self.shares:
            column = _ITEM + j * self.items
            with code.when(column < self.width):
                inner = row.inner({self.form.width.name: column})
                place = inner.offset(output.address)
                share = ir.Get(_FLOAT, f"sum{j}") / ir.Get(_FLOAT, "total")
                value = select(none, number(float32, 0), share)
                buffer = self.work.buffers[output.tensor]
                code.take([*inner.steps, ir.Store(buffer, place, value)])
