"""Rewrites a graph over padded rows as one over ragged rows.

    x[batch, seq, width]              x[total, width], lengths[batch, 1]
    y = gelu(x @ w + b)        ->     y = gelu(x[1, total, width] @ w + b)
    z = softmax(y, axis=1)            z = for each row r: softmax(y[:, start(r) : start(r) + seq])

The result of a row is that of the original graph for a batch of this row alone, without padding.
Each node of the graph for one row (batch = 1) is placed in one of these forms:

    shared   depends on no row: as it is
    row      no ragged axis: for all rows at once, as in the original graph
    token    computes each index of a ragged axis alone: over the rows of all, concatenated
    inside   all others: in a loop over rows, at the sizes of one row

Views of the results of other forms go inside, where kernels read through them. A node that depends
on sizes and constants alone is repeated wherever it is needed. Inputs that mark padding are ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from functools import partial
from typing import Any

from anydim.base.dtypes import int64
from anydim.base.errors import ModelError, OptionError
from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.base.text import counted, listed, suggestion
from anydim.graph.dims import symbols_of
from anydim.graph.evaluate import group_of
from anydim.graph.nodes import FUSED, Constant, Graph, Node
from anydim.graph.operator import operator
from anydim.graph.regions import (
    LOOP,
    REGION,
    SIZES,
    BranchRegion,
    CallRegion,
    Foreign,
    LoopRegion,
    Scan,
    Sizes,
)
from anydim.lang.tree import Group, TensorType
from anydim.passes.flow import unused
from anydim.passes.ragged.groups import group_at, group_with, record_of, split, with_values
from anydim.passes.ragged.independence import Marked, Mixed, check_independent, marks_of, unit_of
from anydim.passes.ragged.size_values import SizeValues
from anydim.runtime.lists import RaggedPort, RowTable
from anydim.sizes import Box, Dim, Guard, Size, as_size, product

SHARED, ROW, TOKEN, INSIDE = "shared", "row", "token", "inside"
_VIEWS = ("reshape", "transpose", "squeeze", "unsqueeze", "flatten", "split", "slice", "identity")
_PRODUCTS = ("contraction", "window")  # faster over all tokens than row by row
_OTHER_MASKS = ("pad", "global", "special", "loss", "label")  # of masks that mark other things
_ONE = as_size(1)


@dataclass(frozen=True)
class RaggedRows:
    """The rewrite; `dims` maps each ragged dim to the dim of its rows, "auto" finds them."""

    dims: Mapping[str, str] | str

    def run(self, graph: Graph) -> tuple[Graph, tuple[str, ...]]:
        """Return the graph over ragged rows, and notes on it.

        Raises OptionError for unknown dims, and ModelError for a graph whose rows depend on each
        other.
        """
        found = auto_dims(graph) if self.dims == "auto" else known_dims(graph, self.dims)
        (rows,) = set(found.values())
        work = _Rewrite(split(graph), rows, tuple(found))
        return work.run(), tuple(work.notes())


def known_dims(graph: Graph, dims: Any) -> dict[str, str]:
    """Check the dims that a user names."""
    hint = 'give the dim of rows for each ragged dim, {"seq": "batch"}, or "auto"'
    if not isinstance(dims, Mapping) or not dims:
        raise OptionError(f"ragged is {dims!r}", hint)
    for name in (*dims, *dims.values()):
        if name not in graph.box.names:
            known = graph.box.names
            raise OptionError(
                f"ragged: '{name}' is not a dim of '{graph.name}'",
                suggestion(str(name), known) or f"the dims are {listed(known)}",
            )
    if len(set(dims.values())) > 1 or set(dims) & set(dims.values()):
        raise OptionError("ragged: all ragged dims belong to one dim of rows", hint)
    return dict(dims)


def auto_dims(graph: Graph) -> dict[str, str]:
    """Find the dims: rows are the first axis of every input with free sizes, others are ragged."""
    kinds = [graph.types[name] for name in graph.inputs]
    free = [kind for kind in kinds if any(size.symbols for size in kind.shape)]
    first = {str(kind.shape[0]) for kind in free if kind.shape[0].symbols}
    rows = next(iter(first), "")
    if len(first) != 1 or rows not in graph.box.names:
        raise OptionError(
            f"ragged: '{graph.name}' has no dim that is the first axis of all its inputs",
            'name the dims: ragged={"seq": "batch"}',
        )
    sizes = dict.fromkeys(str(size) for kind in free for size in kind.shape[1:])
    names = [name for name in sizes if name in graph.box.names and name != rows]
    if not names:
        raise OptionError(f"ragged: the rows of '{graph.name}' have no free sizes")
    return dict.fromkeys(names, rows)


@dataclass(frozen=True)
class _Form:
    """How a value that crosses into or out of a loop over rows is stored.

    `unit` and `count`: its ragged axis has `unit * count` indices. A `token` value has all rows
    along `axis`; a `block` value has all elements in one axis; a `row` value has the rows of the
    batch, `count` times, along `axis`.
    """

    kind: str  # 'shared', 'row', 'token', 'block'
    axis: int = 0
    count: Size = _ONE
    unit: Size = _ONE


class _Unsuited(Exception):
    """A size that has no meaning over all tokens."""


class _Rewrite:
    def __init__(self, graph: Graph, rows: str, dims: tuple[str, ...]) -> None:
        self.given = self.graph = graph
        self.rows, self.dims = rows, dims
        self.ragged = frozenset(dims)
        self.batch = Size.symbol(rows)
        self.masks = mask_inputs(graph, rows, self.ragged)
        self.taken = {*graph.box.names, *graph.types}
        self.totals: dict[Size, str] = {}  # by unit: the dim of all of them
        self.starts: dict[Size, str] = {}  # by unit: the dim of a row's first one
        self.longest = {name: self.name(f"{name}.longest") for name in dims}
        self.counter = self.name("row")

    def run(self) -> Graph:
        self.check()
        self.one = at_one_row(self.graph, self.rows)
        self._classify()
        self._stages()
        self._demands()
        return _Emit(self).run()

    def notes(self) -> Iterator[str]:
        """Yield what became of dims, masks and nodes."""
        kinds = list(self.kinds.values())
        loops = sum(stage % 2 for stage in self.exports)
        yield f"{listed(self.dims)} of each row of '{self.rows}', without padding"
        if self.masks:
            yield f"no padding to mark: {listed(sorted(self.masks))} all ones"
        yield (
            f"{counted(kinds.count(TOKEN), 'node')} over all rows at once, "
            f"{kinds.count(INSIDE)} in {counted(loops, 'loop')} over rows"
        )

    def name(self, stem: str) -> str:
        made, number = stem, 1
        while made in self.taken:
            made, number = f"{stem}_{number}", number + 1
        self.taken.add(made)
        return made

    # ---- independence of rows ------------------------------------------------------------------

    def check(self) -> None:
        """Raise ModelError unless each row is computed from that row alone."""
        graph, rows = self.graph, frozenset((self.rows,))
        for what, names in (("input", graph.inputs), ("result", graph.outputs)):
            for name in names:
                self._check_axes(what, name)
        axes = {size for name in graph.inputs for size in graph.types[name].shape}
        for dim in self.dims:
            if Size.symbol(dim) not in axes:
                raise OptionError(f"ragged: no input of '{graph.name}' has an axis '{dim}'")
        known = SizeValues(graph, self.masks)
        self.relative = self._check_nodes(graph, rows, known)
        self.graph = known.filled()

    def _check_axes(self, what: str, name: str) -> None:
        """Raise ModelError for an input or result with free axes, but not one of rows."""
        kind = self.graph.types[name]
        varying = [size for size in kind.shape if size.symbols & self._varying]
        batched = [size for size in kind.shape if self.rows in size.symbols]
        if varying and batched != [self.batch]:
            raise ModelError(
                f"ragged: {what} '{name}' of '{self.graph.name}' is {kind}: "
                f"it needs one axis '{self.rows}'"
            )

    def row_shape(self, name: str) -> tuple[Size, ...]:
        """The shape of a row of an input or output, without the axis of the batch."""
        kind = self.given.types[name]
        axis = self._batch_axis(kind)
        return tuple(
            size.substitute({self.rows: 1})
            for position, size in enumerate(kind.shape) if position != axis
        )  # fmt: skip

    def _batch_axis(self, kind: TensorType) -> int | None:
        axes = [axis for axis, size in enumerate(kind.shape) if size == self.batch]
        return axes[0] if axes else None

    def _check_nodes(self, graph: Graph, rows: frozenset[str], known: SizeValues) -> set[str]:
        """Check the nodes of a graph.

        Returns values that depend on the place of a row in the batch, so that loops compute them:
        numbers of rows, and values whose rows do not lie in one part of an axis.
        """
        marks = marks_of(self.batch, rows)
        apart: dict[str, Marked] = {}
        mixed: dict[str, str] = {}  # values of sizes that are not independent
        for node in graph.nodes:
            for held in node.region.held.values() if node.region else ():
                self._check_nodes(held, rows, SizeValues(held))
            try:
                _check_node(graph, node, known, mixed.keys(), marks, rows, apart)
            except Mixed as reason:
                problem = f"{node.source or node.where()}: {reason}"
                problem = next((mixed[name] for name in node.given if name in mixed), problem)
                mixed.update(dict.fromkeys(node.outputs, problem))
                if not known.deferred(node):
                    raise self._refusal(problem) from None
        for name in graph.outputs:
            if name in mixed:
                raise self._refusal(mixed[name])
            if name in apart:
                raise self._refusal(f"rows of result '{name}' do not lie in one part")
        return {*apart, *mixed}

    def _refusal(self, reason: str) -> ModelError:
        return ModelError(
            f"{reason}, so rows of '{self.rows}' are not independent of each other, and "
            f"'{self.graph.name}' has no ragged form", "compile the model without ragged",
        )  # fmt: skip

    # ---- forms ---------------------------------------------------------------------------------

    def form(self, name: str) -> _Form:
        """How a value is stored outside of loops over rows."""
        found = self.forms.get(name)
        if found is None:
            found = self.forms[name] = self._form(name)
        return found

    def _form(self, name: str) -> _Form:
        kind = self.one.types[name]
        axes = [axis for axis, size in enumerate(kind.shape) if size.symbols & self.ragged]
        if not axes:
            batched = self.graph.types[name]
            found = [a for a, size in enumerate(batched.shape) if self.rows in size.symbols]
            if not found:
                return _Form(SHARED)
            count = batched.shape[found[0]].divide_exactly(self.batch)
            return _Form(ROW, found[0], _ONE if count is None else count)
        unit, count = unit_of(kind.shape[axes[0]], self.ragged)
        plain = len(axes) == 1
        if name in (*self.given.inputs, *self.given.outputs):  # a row's part is contiguous
            plain = plain and bool(self.row_shape(name)[0].symbols & self.ragged)
        if plain:
            return _Form(TOKEN, axes[0], count, unit)
        unit, count = unit_of(product(kind.shape), self.ragged)
        return _Form("block", 0, count, unit)

    def _classify(self) -> None:
        """Choose a form for each node of the graph of one row."""
        one, graph = self.one, self.graph
        self.forms: dict[str, _Form] = {}
        self.alone: set[str] = set(one.constants) | self.masks  # no input is needed for them
        self.kinds: dict[int, str] = {}
        self.where: dict[str, int] = {}  # value -> node
        shared = set(one.constants)
        shared |= {n for n in one.inputs if not symbols_of(graph.types[n]) & self._varying}
        inside: set[str] = set()
        for number, (node, whole) in enumerate(zip(one.nodes, graph.nodes)):
            self.where.update(dict.fromkeys(node.outputs, number))
            if all(name in self.alone for name in node.given):
                self.alone.update(node.outputs)
            kind = self._kind(node, whole, shared, inside)
            self.kinds[number] = kind
            if one.origins.found[number] and kind != SHARED:
                raise ModelError(
                    f"{node.source or node.where()}: data decides sizes that differ between rows, "
                    f"so '{graph.name}' has no ragged form",
                    "compile the model without ragged",
                )
            if kind == SHARED:
                shared.update(node.outputs)
            if kind == INSIDE:
                inside.update(node.outputs)
        self._sink(inside)

    @property
    def _varying(self) -> frozenset[str]:
        return self.ragged | {self.rows}

    def _kind(self, node: Node, whole: Node, shared: set[str], inside: set[str]) -> str:
        types = [self.graph.types[name] for name in (*whole.given, *whole.outputs)]
        used = symbols_of(types) | _symbols(whole)
        if not used & self._varying and all(name in shared for name in node.given):
            return SHARED
        if node.region is not None:
            return INSIDE
        forms = [self.form(name) for name in (*node.given, *node.outputs)]
        kinds = {form.kind for form in forms}
        own = symbols_of([self.one.types[n] for n in (*node.given, *node.outputs)])
        if not (own | _symbols(node)) & self.ragged and kinds <= {SHARED, ROW}:
            if not self.relative.isdisjoint((*node.given, *node.outputs)):
                return INSIDE
            fits = all(self.form(n).kind == ROW or n in shared for n in node.given)
            return ROW if fits and all(self.form(n).kind == ROW for n in node.outputs) else INSIDE
        units = {form.unit for form in forms if form.kind == TOKEN}
        if len(units) != 1 or not kinds <= {SHARED, TOKEN}:
            return INSIDE
        if any(self.form(n).kind == SHARED and n not in shared for n in node.given):
            return INSIDE
        if any(self.form(n).kind != TOKEN for n in node.outputs):
            return INSIDE
        (unit,) = units
        if node.operator in _VIEWS and inside and self._reads(node) <= inside:
            return INSIDE  # a view of what is computed inside
        try:
            check_independent(
                group_of(self.one, node), marks_of(unit, self.ragged), self.ragged, self.one.box
            )
            over_tokens(node, unit, as_size(1), self.ragged)
        except (Mixed, _Unsuited):
            return INSIDE
        record = record_of(node)
        return INSIDE if record is not None and record.routine is not None else TOKEN

    def _reads(self, node: Node) -> set[str]:
        """What a node reads beside constants and values of sizes."""
        return {name for name in node.given if name not in self.alone} or {""}

    def _sink(self, inside: set[str]) -> None:
        """Move nodes inside that compute from values of loops: element work, and all but products
        if all that read them are inside. Likewise views, and element work with scalars."""
        consumers: dict[str, list[int]] = {}
        for number, node in enumerate(self.one.nodes):
            for name in node.given:
                consumers.setdefault(name, []).append(number)
        between = self._between(inside)
        for number in reversed(range(len(self.one.nodes))):
            node = self.one.nodes[number]
            if self.kinds[number] != TOKEN or set(node.outputs) & set(self.one.outputs):
                continue
            if number in between and _kind_of(node) == "elementwise":
                self.kinds[number] = INSIDE  # it becomes part of the kernels that make its operands
                continue
            readers = [each for name in node.outputs for each in consumers.get(name, ())]
            if not readers or any(self.kinds[each] != INSIDE for each in readers):
                continue
            if node.operator in _VIEWS or number in between or self._scales(node):
                self.kinds[number] = INSIDE

    def _between(self, inside: set[str]) -> set[int]:
        """The nodes other than products that compute from values of loops alone."""
        found: set[int] = set()
        known = set(inside)
        for number, node in enumerate(self.one.nodes):
            if self.kinds[number] != TOKEN or _kind_of(node) in _PRODUCTS:
                continue
            if self._reads(node) <= known:
                found.add(number)
                known.update(node.outputs)
        return found

    def _scales(self, node: Node) -> bool:
        """Whether a node does element work on one tensor and scalars."""
        if _kind_of(node) != "elementwise":
            return False
        others = [n for n in node.given if n not in self.alone]
        scalars = [product(self.one.types[n].shape).constant == 1 for n in node.given
                   if n in self.alone]  # fmt: skip
        return len(others) == 1 and all(scalars)

    # ---- order ---------------------------------------------------------------------------------

    def inner(self, name: str, stage: int) -> bool:
        """Whether the loop of a stage computes a value itself."""
        if name in self.one.constants or name in self.masks:
            return True
        number = self.where.get(name)
        if number is None:
            return False
        if self.kinds[number] == INSIDE and self.stage[name] == stage:
            return True
        return name in self.alone and self.kinds[number] != SHARED

    def _stages(self) -> None:
        """Number what runs after each other: loops over rows have odd numbers."""
        self.stage: dict[str, int] = dict.fromkeys((*self.one.inputs, *self.one.constants), 0)
        for number, node in enumerate(self.one.nodes):
            found = 0
            is_inside = self.kinds[number] == INSIDE
            for name in node.given:
                stage = self.stage[name]
                if is_inside:
                    repeated = name in self.alone
                    found = max(found, 1 if repeated else stage | 1)
                else:
                    found = max(found, stage + stage % 2)
            found = max(found, 1) if is_inside else found
            self.stage.update(dict.fromkeys(node.outputs, found))

    def _demands(self) -> None:
        """Find the values that are needed outside, and in the loop of each stage."""
        self.outside: set[str] = set(self.one.outputs)
        self.within: dict[int, set[str]] = {}
        self.exports: dict[int, list[str]] = {}
        for number in reversed(range(len(self.one.nodes))):
            self._demand(number, self.one.nodes[number])
        for names in self.within.values():  # inputs of the graph
            self.outside |= {n for n in names if n in self.one.inputs and n not in self.masks}

    def _demand(self, number: int, node: Node) -> None:
        for stage, names in self.within.items():
            for name in node.outputs:
                if name in names and not self.inner(name, stage):
                    self.outside.add(name)
        needed = [name for name in node.outputs if name in self.outside]
        if self.one.origins.found[number]:  # of all rows
            self.outside.update((*node.given, *node.outputs))
        if needed and self.kinds[number] == INSIDE:
            stage = self.stage[node.outputs[0]]
            self.within.setdefault(stage, set()).update(needed)
            self.exports.setdefault(stage, []).extend(needed)
        elif needed:
            self.outside.update(node.given)
        for stage, names in self.within.items():
            if any(name in names and self.inner(name, stage) for name in node.outputs):
                names.update(node.given)


# ---- making the graph --------------------------------------------------------------------------


class _Graph:
    """A graph that is being made: types are inferred."""

    def __init__(self, box: Box, names: Callable[[str], str]) -> None:
        self.box, self.fresh = box, names
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Constant] = {}
        self.nodes: list[Node] = []

    def node(self, node: Node, kinds: Iterable[TensorType]) -> None:
        self.nodes.append(node)
        self.types.update(zip(node.outputs, kinds))

    def emit(self, operator_name: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node with one result; returns the result."""
        name = name or self.fresh(operator_name)
        given = [self.types[each] for each in inputs]
        kinds = operator(operator_name).infer(given, FrozenMapping(attributes), self.box)
        self.node(Node(operator_name, inputs, (name,), FrozenMapping(attributes), "rows"), kinds)
        return name


class _Emit:
    """Emits the graph of ragged rows."""

    def __init__(self, work: _Rewrite) -> None:
        self.work, self.one, self.whole = work, work.one, work.graph
        box = self.whole.box
        own = work.ragged
        kept = [dim for dim in box.dims if dim.name not in own]
        outer = tuple(c for c in box.constraints if not c.symbols & own)
        self.inner_constraints = tuple(
            c.substitute({work.rows: 1}) for c in box.constraints if c.symbols & own
        )
        self.outer = _Graph(Box(tuple(kept), outer), work.name)
        self.inputs: list[str] = []
        self.ports: dict[str, RaggedPort] = {}
        self.made: dict[str, str] = {}  # value -> its name outside
        self.guards_left = [g for g in self.one.guards if symbols_of(g) & own]

    def run(self) -> Graph:
        work, outer = self.work, self.outer
        self.table, self.sums = work.name("rows"), work.name("sums")
        self._units()
        self._inputs()
        self._sizes()
        stages = [s for names in (work.within, self._outer_stages()) for s in names]
        for stage in range(max(stages, default=0) + 1):
            if stage % 2:
                self._loop(stage)
            else:
                self._outer_nodes(stage)
        outputs = [self._output(name) for name in self.whole.outputs]
        guards = tuple(g for g in self.whole.guards if not symbols_of(g) & work.ragged)
        made = Graph(
            self.whole.name, outer.box, FrozenMapping(outer.types), tuple(self.inputs),
            tuple(outputs), FrozenMapping(outer.constants), tuple(outer.nodes), guards,
            FrozenMapping(self.ports),
        )  # fmt: skip
        return made.pruned()

    def _outer_stages(self) -> set[int]:
        work = self.work
        return {work.stage[name] for name in work.outside if name in work.stage}

    # ---- sizes of rows -------------------------------------------------------------------------

    def _units(self) -> None:
        """Declare a total for each unit that values outside are counted in."""
        work = self.work
        crossing = {n for names in work.exports.values() for n in names} | work.outside
        for name in (*self.one.inputs, *self.one.outputs, *sorted(crossing)):
            form = work.form(name)
            if form.kind in (TOKEN, "block") and form.unit not in work.totals:
                stem = str(form.unit) if form.unit in map(Size.symbol, work.dims) else "rows"
                work.totals[form.unit] = work.name(f"{stem}.total")
                work.starts[form.unit] = work.name(f"{stem}.start")
        dims = [Dim(name) for name in work.totals.values()]
        dims += [self.whole.box.dim(name).named(work.longest[name]) for name in work.dims]
        self.outer.box = self.outer.box.also(*dims)
        given = {work.form(name).unit for name in self.one.inputs if name not in work.masks}
        self.row_table = RowTable(
            self.table, self.sums, tuple(self.whole.box.dim(name) for name in work.dims),
            tuple(work.longest.values()), tuple(work.totals), tuple(work.totals.values()),
            tuple(total for unit, total in work.totals.items() if unit not in given),
        )  # fmt: skip

    def _inputs(self) -> None:
        """Declare inputs: ragged ones by all their rows."""
        work, outer = self.work, self.outer
        for name in self.one.inputs:
            kind, form = self.one.types[name], work.form(name)
            row = self.work.row_shape(name)
            if name in work.masks:
                counted = kind.shape[form.axis] if form.kind == TOKEN else product(kind.shape)
                self.ports[name] = self._port(name, row, counted, form.kind != TOKEN, ones=True)
                continue
            if form.kind in (SHARED, ROW):
                self.inputs.append(name)
                outer.types[name] = self.whole.types[name]
                self.made[name] = name
                continue
            total = Size.symbol(work.totals[form.unit]) * form.count
            self.inputs.append(name)
            if form.kind == TOKEN:
                outer.types[name] = TensorType(kind.dtype, (total, *row[1:]))
                shape = (*kind.shape[: form.axis], total, *kind.shape[form.axis + 1 :])
                self.made[name] = outer.emit("reshape", name, shape=shape)
                self.ports[name] = self._port(name, row, kind.shape[form.axis], False)
            else:
                outer.types[name] = TensorType(kind.dtype, (total,))
                self.made[name] = name
                self.ports[name] = self._port(name, row, product(kind.shape), True)

    def _port(
        self, name: str, shape: tuple[Size, ...], counted: Size, flat: bool, ones: bool = False
    ) -> RaggedPort:
        return RaggedPort(name, self.row_table, shape, counted, flat, ones)

    def _sizes(self) -> None:
        """Declare the inputs that describe rows, and find the dims in them."""
        work, outer, table = self.work, self.outer, self.row_table
        columns = as_size(len(table.units) + len(table.dims))
        outer.types[self.table] = TensorType(int64, (work.batch, columns))
        found = (*table.summed, *table.longest)
        outer.types[self.sums] = TensorType(int64, (as_size(len(found)),))
        self.inputs += [self.table, self.sums]
        region = FrozenMapping({REGION: Sizes(found)})
        outer.node(Node(SIZES, (self.sums,), (), region, "rows"), ())

    # ---- nodes outside -------------------------------------------------------------------------

    def _outer_nodes(self, stage: int) -> None:
        work, outer = self.work, self.outer
        for number, node in enumerate(self.one.nodes):
            kind = work.kinds[number]
            found = bool(self.one.origins.found[number])
            needed = found or any(name in work.outside for name in node.outputs)
            own = 0 if found else work.stage[node.outputs[0]]
            if not needed or kind == INSIDE or own != stage:
                continue
            given = tuple(None if n is None else self.outside(n) for n in node.inputs)
            if kind == TOKEN:
                unit = next(work.form(n).unit for n in node.outputs if work.form(n).kind == TOKEN)
                total = Size.symbol(work.totals[unit])
                made = with_values(over_tokens(node, unit, total, work.ragged), given, node.outputs)
                kinds = self._kinds(made)
            else:
                made = with_values(self.whole.nodes[number], given, node.outputs)
                kinds = tuple(self.whole.types[n] for n in node.outputs)
            names = tuple(self._own_name(n) for n in node.outputs)
            outer.node(with_values(made, made.inputs, names), kinds)
            self.made.update(zip(node.outputs, names))

    def _kinds(self, node: Node) -> tuple[TensorType, ...]:
        """The types of a node's results."""
        if node.operator == FUSED:
            return tuple(tensor.type for tensor in node.group.outputs)
        given = [self.outer.types[name] for name in node.given]
        return operator(node.operator).infer(given, node.attributes, self.outer.box)

    def _own_name(self, name: str) -> str:
        return name if name not in self.outer.types else self.work.name(name)

    def outside(self, name: str) -> str:
        """The name outside of a value of the graph of one row."""
        if name in self.made:
            return self.made[name]
        if name in self.one.constants:
            self.outer.types[name] = self.one.types[name]
            self.outer.constants[name] = self.one.constants[name]
            self.made[name] = name
            return name
        if name in self.work.masks:
            form = self.work.form(name)
            total = Size.symbol(self.work.totals[form.unit])
            kind = self.one.types[name]
            shape = tuple(_over(s, form.unit, total, self.work.ragged) for s in kind.shape)
            self.made[name] = self.outer.emit(
                "fill", name=self._own_name(name), shape=shape, value=1.0, dtype=kind.dtype
            )
            return self.made[name]
        raise AssertionError(name)

    # ---- loops over rows -----------------------------------------------------------------------

    def _loop(self, stage: int) -> None:
        exports = list(dict.fromkeys(self.work.exports.get(stage, ())))
        if exports:
            _Body(self, stage, exports).emit()

    # ---- results -------------------------------------------------------------------------------

    def _output(self, name: str) -> str:
        work, outer = self.work, self.outer
        form, held = work.form(name), self.outside(name)
        kind = self.one.types[name]
        if form.kind == TOKEN:
            total = Size.symbol(work.totals[form.unit]) * form.count
            made = outer.emit("reshape", held, shape=(total, *work.row_shape(name)[1:]))
            self.ports[name] = self._port(name, work.row_shape(name), kind.shape[form.axis], False)
        elif form.kind == "block":
            made = held
            self.ports[name] = self._port(name, work.row_shape(name), product(kind.shape), True)
        else:
            made = held
        if made == name:
            return name
        if name in outer.types:  # the name of the value outside, which is another one
            self._rename(name)
            made = self.made.get(name, made) if made == name else made
        return outer.emit("identity", made, name=name)

    def _rename(self, name: str) -> None:
        """Free the name of a value outside for a result."""
        outer, other = self.outer, self.work.name(f"{name}.rows")
        outer.types[other] = outer.types.pop(name)
        outer.nodes = [
            with_values(
                node, [other if n == name else n for n in node.inputs],
                [other if n == name else n for n in node.outputs],
            )
            for node in outer.nodes
        ]  # fmt: skip
        if name in outer.constants:
            outer.constants[other] = outer.constants.pop(name)
        if name in self.inputs:
            raise ModelError(f"ragged: '{name}' is an input and a result")


class _Body:
    """A loop over rows."""

    def __init__(self, emit: _Emit, stage: int, exports: list[str]) -> None:
        self.emit_, self.work, self.one = emit, emit.work, emit.one
        self.stage, self.exports = stage, exports
        work, outer = self.work, emit.outer
        self.counter = work.counter
        ragged = [emit.whole.box.dim(name) for name in work.dims]
        starts = [Dim(name) for name in work.starts.values()]
        box = outer.box.also(Dim(self.counter), *ragged, *starts)
        ends = [
            Size.symbol(work.totals[unit]) - Size.symbol(start) - unit
            for unit, start in work.starts.items()
        ]
        ends += [  # `region_plan.py` counts memory with them
            Size.symbol(work.totals[unit]) - Size.symbol(start)
            for unit, start in work.starts.items()
        ]
        ends += [Size.symbol(most) - Size.symbol(name) for name, most in work.longest.items()]
        ends.append(work.batch - Size.symbol(self.counter) - 1)
        box = box.also(constraints=(*emit.inner_constraints, *ends))
        self.body = _Graph(box, partial(self._fresh))
        self.names: set[str] = set(self.one.types)
        self.given: list[str] = []  # names outside
        self.inputs: list[str] = []
        self.made: dict[str, str] = {}

    def _fresh(self, stem: str) -> str:
        name = unused(stem, self.names)
        self.names.add(name)
        return name

    def capture(self, name: str) -> str:
        """The name inside of a value outside."""
        if name in self.given:
            return self.inputs[self.given.index(name)]
        own = self._fresh(name)
        self.given.append(name)
        self.inputs.append(own)
        self.body.types[own] = self.emit_.outer.types[name]
        return own

    def emit(self) -> None:
        body, work, emit = self.body, self.work, self.emit_
        table = self.capture(emit.table)
        found = Sizes((*work.starts.values(), *work.dims), Size.symbol(self.counter))
        body.node(Node(SIZES, (table,), (), FrozenMapping({REGION: found}), "rows"), ())
        wanted = work.within[self.stage]
        for node in self.one.nodes:
            if not any(n in wanted and work.inner(n, self.stage) for n in node.outputs):
                continue
            given = tuple(None if n is None else self.value(n) for n in node.inputs)
            kinds = [self.one.types[name] for name in node.outputs]
            body.node(with_values(node, given, node.outputs), kinds)
            self.made.update(zip(node.outputs, node.outputs))
        results, scans, kinds = self.results()
        guards = tuple(g for g in self.one.guards if symbols_of(g) & work.ragged)
        inside = Graph(
            f"{emit.whole.name}.rows", body.box, FrozenMapping(body.types), tuple(self.inputs),
            tuple(results), FrozenMapping(body.constants), tuple(body.nodes), guards,
        )  # fmt: skip
        region = LoopRegion(inside, self.counter, work.batch, False, 0, scans)
        names = [work.name(f"{name}.all") for name in self.exports]
        emit.outer.node(
            Node(LOOP, tuple(self.given), tuple(names), FrozenMapping({REGION: region}), "rows"),
            kinds,
        )
        for name, stacked in zip(self.exports, names):
            emit.made[name] = self.outside(name, stacked)

    def value(self, name: str) -> str:
        """The name inside of a value of the graph of one row."""
        if name in self.made:
            return self.made[name]
        body, one, work = self.body, self.one, self.work
        if name in one.constants:
            body.types[name], body.constants[name] = one.types[name], one.constants[name]
            made = name
        elif name in work.masks:
            kind = one.types[name]
            made = body.emit("fill", name=name, shape=kind.shape, value=1.0, dtype=kind.dtype)
        else:
            made = self.imported(name)
        self.made[name] = made
        return made

    def imported(self, name: str) -> str:
        """The part of a value outside that belongs to the row."""
        work, body = self.work, self.body
        form, held = work.form(name), self.capture(self.emit_.outside(name))
        if form.kind == SHARED:
            return held
        if form.kind == ROW:
            first = Size.symbol(self.counter) * form.count
            return body.emit(
                "slice", held, starts=(first,), ends=(first + form.count,), axes=(form.axis,)
            )
        first = Size.symbol(work.starts[form.unit]) * form.count
        last = first + form.unit * form.count
        axis = form.axis if form.kind == TOKEN else 0
        part = body.emit("slice", held, starts=(first,), ends=(last,), axes=(axis,))
        if form.kind == TOKEN:
            return part
        return body.emit("reshape", part, shape=self.one.types[name].shape)

    def results(self) -> tuple[list[str], tuple[Scan, ...], list[TensorType]]:
        """The results of the body, how they are stored, and the types of all rows."""
        results, scans, kinds = [], [], []
        work, body = self.work, self.body
        for name in self.exports:
            form, kind = work.form(name), self.one.types[name]
            held = self.value(name)
            if form.kind not in (TOKEN, "block"):
                results.append(body.emit("identity", held))
                scans.append(Scan(Size.symbol(self.counter), work.batch))
                kinds.append(TensorType(kind.dtype, (work.batch, *kind.shape)))
                continue
            total = Size.symbol(work.totals[form.unit]) * form.count
            first = Size.symbol(work.starts[form.unit]) * form.count
            if form.kind == TOKEN:
                rest = (*kind.shape[: form.axis], *kind.shape[form.axis + 1 :])
                if product(kind.shape[: form.axis]).constant != 1:
                    axes = range(len(kind.shape))
                    perm = (form.axis, *(axis for axis in axes if axis != form.axis))
                    held = body.emit("transpose", held, perm=perm)
                shape = (kind.shape[form.axis], *rest)
            else:
                rest, shape = (), (product(kind.shape),)
            results.append(body.emit("reshape", held, shape=shape))
            scans.append(Scan(first, total, joined=True))
            kinds.append(TensorType(kind.dtype, (total, *rest)))
        return results, tuple(scans), kinds

    def outside(self, name: str, stacked: str) -> str:
        """Emit the outer form of a stacked result."""
        work, outer = self.work, self.emit_.outer
        form, kind = work.form(name), self.one.types[name]
        if form.kind == "block":
            return stacked
        if form.kind == TOKEN:
            before = kind.shape[: form.axis]
            total = Size.symbol(work.totals[form.unit]) * form.count
            if product(before).constant == 1:
                return outer.emit(
                    "reshape", stacked, shape=(*before, total, *kind.shape[form.axis + 1 :])
                )
            perm = (*range(1, form.axis + 1), 0, *range(form.axis + 1, len(kind.shape)))
            return outer.emit("transpose", stacked, perm=perm)
        if form.kind == ROW:
            if form.axis:
                rank = len(kind.shape)
                perm = (*range(1, form.axis + 1), 0, *range(form.axis + 1, rank + 1))
                stacked = outer.emit("transpose", stacked, perm=perm)
            return outer.emit("reshape", stacked, shape=self.emit_.whole.types[name].shape)
        raise ModelError(
            f"ragged: '{name}' of '{self.emit_.whole.name}' differs between rows, "
            f"and has no axis '{work.rows}'"
        )


# ---- substitution ------------------------------------------------------------------------------


def at_one_row(graph: Graph, rows: str) -> Graph:
    """The graph for a batch of one row."""
    return _substituted(graph, {rows: 1}, keep=graph.box.names)


def _substituted(graph: Graph, env: Mapping[str, int], keep: Iterable[str] = ()) -> Graph:
    def value(held: Any) -> Any:
        if isinstance(held, Size):
            return held.substitute(env)
        if isinstance(held, tuple) and type(held) is tuple:
            return tuple(map(value, held))
        if isinstance(held, TensorType):
            return TensorType(held.dtype, value(held.shape))
        if isinstance(held, Guard):
            return replace(held, left=value(held.left), right=value(held.right))
        if isinstance(held, Group):
            return group_at(held, env)
        if isinstance(held, (BranchRegion, CallRegion, LoopRegion)):
            return region(held)
        return held

    def region(held: Any) -> Any:
        if isinstance(held, BranchRegion):
            condition = None if held.condition is None else value(held.condition)
            then, otherwise = (_substituted(each, env) for each in (held.then, held.otherwise))
            return BranchRegion(then, otherwise, condition)
        body = _substituted(held.body, env)
        if isinstance(held, CallRegion):
            return CallRegion(body)
        scans = tuple(
            replace(s, position=value(s.position),
                    extent=None if s.extent is None else value(s.extent))
            for s in held.scans
        )  # fmt: skip
        trips = None if held.trips is None else value(held.trips)
        return replace(held, body=body, trips=trips, scans=scans)

    gone = [name for name in env if name in graph.box.names and name not in keep]
    box = Box(
        tuple(dim for dim in graph.box.dims if dim.name not in gone),
        tuple(map(value, graph.box.constraints)),
    )
    return graph.replace(
        box=box,
        types=FrozenMapping({name: value(kind) for name, kind in graph.types.items()}),
        nodes=tuple(
            replace(node, attributes=FrozenMapping(
                {key: value(each) for key, each in node.attributes.items()}
            ))
            for node in graph.nodes
        ),
        guards=tuple(map(value, graph.guards)),
    )  # fmt: skip


def over_tokens(node: Node, unit: Size, total: Size, dims: frozenset[str]) -> Node:
    """The node over all tokens; raises _Unsuited if an attribute is no multiple of `unit`."""

    def value(held: Any) -> Any:
        if isinstance(held, Size):
            return _over(held, unit, total, dims)
        if isinstance(held, tuple) and type(held) is tuple:
            return tuple(map(value, held))
        if isinstance(held, Group):
            made = group_with(held, value, dims)
            if made is None:
                raise _Unsuited
            return made
        return held

    attributes = {key: value(each) for key, each in node.attributes.items()}
    return replace(node, attributes=FrozenMapping(attributes))


def _over(size: Size, unit: Size, total: Size, dims: frozenset[str]) -> Size:
    if not size.symbols & dims:
        return size
    count = size.divide_exactly(unit)
    if count is None or count.symbols & dims:
        raise _Unsuited
    return total * count


# ---- nodes -------------------------------------------------------------------------------------


def _kind_of(node: Node) -> str:
    """The family of a node's operator."""
    record = record_of(node)
    return "" if record is None else record.kind


def _symbols(node: Node) -> frozenset[str]:
    """The dims in a node's attributes, graphs that it holds included."""
    found = set(symbols_of(node.attributes.values()))
    for held in node.region.held.values() if node.region else ():
        found |= symbols_of(held.types.values())
        found |= set().union(*map(_symbols, held.nodes))
    return frozenset(found)


_ALONG = ("axis",)  # routines that work along one axis


def _check_node(
    graph: Graph, node: Node, known: SizeValues, mixed: Set[str], marks: Any, rows: frozenset[str],
    apart: dict[str, Marked],
) -> None:  # fmt: skip
    """Raise Mixed unless a node computes each row alone; held graphs are checked elsewhere.

    `mixed` are the values that are known, and no node may read but inlined; `apart` are marks of
    axes such as `seq * rows`.
    """
    if isinstance(node.region, Foreign):
        raise Mixed("another engine runs it")
    record = record_of(node)
    routine = record is not None and record.routine is not None
    if node.region is not None or routine:
        if not mixed.isdisjoint(node.given):
            raise Mixed("it reads the numbers of rows")
        if not apart.keys().isdisjoint(node.given):
            raise Mixed("its rows do not lie in one part")
    if node.region is not None:
        return
    given = [marks(graph.types[name]) for name in node.given]
    made = [marks(graph.types[name]) for name in node.outputs]
    if routine:
        if not any(given) and not any(made):
            return
        axis = operator(node.operator).complete(node.attributes).get("axis")
        rank = graph.types[node.given[0]].rank
        found = {mark.axis for mark in (*given, *made) if mark is not None}
        if not isinstance(axis, int) or found == {axis % rank} or len(found) > 1:
            raise Mixed(f"'{node.operator}' has no form for rows")
        if given[0] is None or any(mark is None for mark in made):
            raise Mixed(f"'{node.operator}' has no form for rows")
        return
    group = known.inlined(node, group_of(graph, node))
    if any(tensor.name in mixed for tensor in group.inputs):
        raise Mixed("it reads the numbers of rows")
    check_independent(group, marks, rows, known.box, apart, known.ranges)


def mask_inputs(graph: Graph, rows: str, ragged: frozenset[str]) -> frozenset[str]:
    """The inputs [rows, ragged] that mark what is no padding, by their names."""
    found = set()
    for name in graph.inputs:
        kind, plain = graph.types[name], name.lower().rstrip("0123456789._:")
        shaped = kind.rank == 2 and kind.shape[0] == Size.symbol(rows)
        if shaped and str(kind.shape[1]) in ragged and plain.endswith("mask"):
            if not any(word in plain for word in _OTHER_MASKS):
                found.add(name)
    return frozenset(found)
