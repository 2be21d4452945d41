"""Attention with a running softmax: a group makes one row of the result, keys pass by in blocks.

An item has the score of one key of the block, and one element of the row in `items`. The largest
score so far and the sum of shares are corrected when a block has a larger one (Milakov and
Gimelshein, Online normalizer calculation for softmax, 2018), so scores are nowhere kept.
"""

from __future__ import annotations

from functools import lru_cache

from anydim.base.dtypes import float32
from anydim.base.errors import InternalError
from anydim.base.records import dataclass
from anydim.kernels import ir
from anydim.kernels.attention.form import AttentionForm, attention_form
from anydim.kernels.grouped.places import Work, plain
from anydim.kernels.launch import Launch, Machine
from anydim.kernels.schedule import print_schedule, register
from anydim.kernels.template import Template
from anydim.kernels.write.arithmetic import compare, constant, least, minus, plus
from anydim.kernels.write.elements import Elements
from anydim.kernels.write.values import convert, number, operate
from anydim.lang.tree import Group, Read, TensorType
from anydim.lang.tree.affine import Affine
from anydim.sizes import Box, product

_START, _ITEM = ir.Var(ir.INDEX, "start"), ir.Item()
_FLOAT = ir.Type(float32)
_LEAST = number(float32, float("-inf"))


@dataclass(frozen=True)
class Running:
    """`items` make a group, and so many keys a block."""

    items: int = 64


register("running", Running)


@lru_cache(maxsize=512)
def _form(group: Group) -> AttentionForm | None:
    form = attention_form(group) if plain(group) else None
    if form is None or form.nan_is_zero or form.width.extent.constant is None:
        return None
    return form if group.type_of(form.output.tensor).dtype == float32 else None


def match(group: Group, box: Box, machine: Machine, constants: frozenset[str]) -> Running | None:
    """A schedule for an attention; None for other groups."""
    return None if _form(group) is None else Running()


def lower(
    group: Group, schedule: Running, box: Box, machine: Machine, constants: frozenset[str]
) -> Launch:
    """The launch of a matched group."""
    form = _form(group)
    if form is None:
        raise InternalError("a group that is no attention reached its lowering")
    writer = _Writer(group, form, schedule.items, machine)
    body = writer.body()
    rows = product(axis.extent for axis in (*form.batch, form.query))
    pairs = rows * form.key.extent
    locals = [ir.Local(name, float32, schedule.items) for name in ("shared", "shares")]
    return writer.work.launch(
        "running", body, schedule.items, locals,
        parallel=rows, flops=2 * pairs * (form.depth.extent + form.width.extent),
        schedule=print_schedule(schedule),
        reason="an attention, a group for each row, with a running softmax",
    )  # fmt: skip


TEMPLATE = Template("running", Running, match, lower, keeps=True, widens=True)


class _Writer:
    """Writes the body of one kernel."""

    def __init__(self, group: Group, form: AttentionForm, items: int, machine: Machine) -> None:
        self.form, self.items = form, items
        self.work = Work(group, machine, {form.raw: TensorType(float32, ())})
        width = form.width.extent.constant
        assert width is not None
        self.width = width
        self.shares = range(-(-width // items))  # elements of the row that an item has

    def body(self) -> list[ir.Step]:
        """The steps of an item."""
        form, places = self.form, list[ir.Step]()
        outside = Elements(self.work.context)
        row = outside.inner(self.work.indices(_START, (*form.batch, form.query), places))
        zero = number(float32, 0)
        block = self._block(row)
        keys = self.work.sizes.value(form.key.extent)
        loop = ir.For("k0", constant(0), keys, constant(self.items), tuple(block))
        steps: list[ir.Step] = [ir.Declare("top", _LEAST), ir.Declare("total", zero)]
        steps += [ir.Declare(f"sum{j}", zero) for j in self.shares]
        finish = [loop, *self._finish(row)]
        return [*outside.steps, *places, *row.steps, *steps, *finish]

    def _block(self, row: Elements) -> list[ir.Step]:
        """Scores of a block of keys, their shares, and what they add to the row."""
        key = ir.Var(ir.INDEX, "key")
        inside = compare("less", key, self.work.sizes.value(self.form.key.extent))
        score, top, total = (ir.Get(_FLOAT, name) for name in ("score", "top", "total"))
        steps: list[ir.Step] = [
            ir.Let("key", plus(ir.Var(ir.INDEX, "k0"), _ITEM)),
            ir.Declare("score", _LEAST),
            ir.If(inside, tuple(self._score(row, key))),
        ]
        largest = self._folded("max", score, steps)
        found = self._named(operate("max", top, largest), steps)
        nothing = operate("equal", found, _LEAST)
        shift = self._named(operate("select", nothing, number(float32, 0), found), steps)
        scale = self._named(operate("exp", operate("sub", top, shift)), steps)
        share = self._named(operate("exp", operate("sub", score, shift)), steps)
        steps.append(ir.Store("shares", _ITEM, share))
        more = self._folded("add", share, steps)
        steps += [
            ir.Assign("total", operate("fma", total, scale, more)),
            ir.Assign("top", found),
        ]
        for j in self.shares:
            steps += self._weighted(row, j, scale)
        return [*steps, ir.Barrier()]

    def _named(self, value: ir.Value, steps: list[ir.Step]) -> ir.Var:
        return self.work.let(value, steps)

    def _score(self, row: Elements, key: ir.Var) -> list[ir.Step]:
        """The score of a key: a product over the depth, and what follows it."""
        form, name = self.form, self.form.key.name
        at = ir.Var(ir.INDEX, "d")
        inner = row.inner({name: key, form.depth.name: at})
        a, b = (self._load(inner, f.tensor, f.address) for f in (form.queries, form.keys))
        raw = ir.Get(_FLOAT, "raw")
        add = ir.Assign("raw", operate("fma", a, b, raw))
        depth = self.work.sizes.value(form.depth.extent)
        steps: list[ir.Step] = [
            ir.Declare("raw", number(float32, 0)),
            ir.For("d", constant(0), depth, constant(1), (*inner.steps, add)),
        ]
        product = self._named(raw, steps)

        def done(read: Read) -> ir.Value | None:
            return product if read.tensor == form.raw else None

        after = row.inner({name: key}, local=done, answers=frozenset((form.raw,)))
        value = after.value(form.score, float32)
        return [*steps, *after.steps, ir.Assign("score", value)]

    def _load(self, scope: Elements, tensor: str, address: Affine) -> ir.Value:
        kind = ir.Type(self.work.types[tensor].dtype)
        held = scope.name(ir.Load(kind, self.work.buffers[tensor], scope.offset(address)))
        return scope.name(convert(held, float32))

    def _folded(self, function: str, value: ir.Value, steps: list[ir.Step]) -> ir.Var:
        """A value of all items combined, which every item then has."""
        steps += self.work.folded(function, value, "shared", self.items)
        found = self._named(ir.Load(_FLOAT, "shared", constant(0)), steps)
        steps.append(ir.Barrier())
        return found

    def _weighted(self, row: Elements, j: int, scale: ir.Value) -> list[ir.Step]:
        """An element of the row: what it was, corrected, and the values of the block."""
        form, total = self.form, ir.Get(_FLOAT, f"sum{j}")
        column, k = plus(_ITEM, j * self.items), ir.Var(ir.INDEX, f"k{j + 1}")
        at = plus(ir.Var(ir.INDEX, "k0"), k)
        inner = row.inner({form.key.name: at, form.width.name: column})
        value = self._load(inner, form.values.tensor, form.values.address)
        add = operate("fma", ir.Load(_FLOAT, "shares", k), value, total)
        left = minus(self.work.sizes.value(form.key.extent), ir.Var(ir.INDEX, "k0"))
        loop = ir.For(
            k.name, constant(0), least(left, self.items), constant(1),
            (*inner.steps, ir.Assign(total.name, add)),
        )  # fmt: skip
        then = (ir.Assign(total.name, operate("mul", total, scale)), loop)
        return [ir.If(compare("less", column, self.width), then)]

    def _finish(self, row: Elements) -> list[ir.Step]:
        """The row, divided by the sum of all shares; 0 where there are no keys."""
        none = compare("equal", self.work.sizes.value(self.form.key.extent), 0)
        made: list[ir.Step] = []
        for j in self.shares:
            column = plus(_ITEM, j * self.items)
            inner = row.inner({self.form.width.name: column})
            place = inner.offset(self.form.output.address)
            share = operate("div", ir.Get(_FLOAT, f"sum{j}"), ir.Get(_FLOAT, "total"))
            value = operate("select", none, number(float32, 0), share)
            store = ir.Store(self.work.buffers[self.form.output.tensor], place, value)
            then = (*inner.steps, store)
            made.append(ir.If(compare("less", column, self.width), then))
        return made
