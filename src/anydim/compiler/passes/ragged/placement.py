"""Where each node of a graph over rows runs: over all rows or tokens, or in a loop over rows.

    shared   depends on no row: as it is
    row      no ragged axis: for all rows at once, as in the original graph
    token    computes each index of a ragged axis alone: over the rows of all, concatenated
    inside   all others: in a loop over rows, at the sizes of one row

Loops are numbered by stages: what runs before the first loop is stage 0, the first loop stage 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from anydim.base.errors import ModelError, OptionError
from anydim.base.records import dataclass
from anydim.base.text import count_of
from anydim.compiler.graph.dims import symbols_of
from anydim.compiler.graph.evaluate import group_of
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.passes.ragged.groups import Unsuited, at_one_row, over_tokens, record_of
from anydim.compiler.passes.ragged.independence import Mixed, check_independent, marks_of, unit_of
from anydim.compiler.passes.ragged.loop_costs import LoopCosts, family
from anydim.compiler.passes.ragged.row_checks import NodeChecks
from anydim.compiler.passes.ragged.size_values import SizeValues
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Size, as_size, product

SHARED, ROW, TOKEN, INSIDE = "shared", "row", "token", "inside"
_VIEWS = ("reshape", "transpose", "squeeze", "unsqueeze", "flatten", "split", "slice", "identity")
_PRODUCTS = ("contraction", "window")  # faster over all tokens than row by row
_OTHER_MASKS = ("pad", "global", "special", "loss", "label")  # of masks that mark other things
ONE = as_size(1)


@dataclass(frozen=True)
class Form:
    """How a value that crosses into or out of a loop over rows is stored.

    `unit` and `count`: its ragged axis has `unit * count` indices. A `token` value has all rows
    along `axis`; a `block` value has all elements in one axis; a `row` value has the rows of the
    batch, `count` times, along `axis`.
    """

    kind: str  # 'shared', 'row', 'token', 'block'
    axis: int = 0
    count: Size = ONE
    unit: Size = ONE


class Placement:
    """`table` are dims whose size in each row no input has: the caller gives them."""

    def __init__(
        self, graph: Graph, rows: str, dims: tuple[str, ...], table: Set[str] = frozenset()
    ) -> None:
        self.table = table
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

    def run(self) -> Placement:
        """Decide; raises ModelError for a graph whose rows depend on each other."""
        self.check()
        self.one = at_one_row(self.graph, self.rows)
        self.updates = dict(self._updates())
        self._classify()
        self._stages()
        self._demands()
        return self

    def notes(self) -> Iterator[str]:
        """Yield what became of nodes."""
        kinds = list(self.kinds.values())
        loops = sum(stage % 2 for stage in self.exports)
        yield (
            f"{count_of(kinds.count(TOKEN), 'node')} over all rows at once, "
            f"{kinds.count(INSIDE)} in {count_of(loops, 'loop')} over rows"
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
        graph = self.graph
        for what, names in (("input", graph.inputs), ("result", graph.outputs)):
            for name in names:
                self._check_axes(what, name)
        axes = {size for name in graph.inputs for size in graph.types[name].shape}
        for dim in self.dims:
            if Size.symbol(dim) not in axes and dim not in self.table:
                raise OptionError(f"ragged: no input of '{graph.name}' has an axis '{dim}'")
        known = SizeValues(graph, self.masks)
        try:
            self.relative = NodeChecks(self.rows).graph(graph, known)
        except Mixed as reason:
            raise self._refusal(str(reason)) from None
        self.graph = known.fill()

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

    def _refusal(self, reason: str) -> ModelError:
        return ModelError(
            f"{reason}, so rows of '{self.rows}' are not independent of each other, and "
            f"'{self.graph.name}' has no ragged form", "compile the model without ragged",
        )  # fmt: skip

    # ---- forms ---------------------------------------------------------------------------------

    def form(self, name: str) -> Form:
        """How a value is stored outside of loops over rows."""
        found = self.forms.get(name)
        if found is None:
            found = self.forms[name] = self._form(name)
        return found

    def _form(self, name: str) -> Form:
        kind = self.one.types[name]
        axes = [axis for axis, size in enumerate(kind.shape) if size.symbols & self.ragged]
        if not axes:
            batched = self.graph.types[name]
            found = [a for a, size in enumerate(batched.shape) if self.rows in size.symbols]
            if not found:
                return Form(SHARED)
            count = batched.shape[found[0]].divide_exactly(self.batch)
            return Form(ROW, found[0], ONE if count is None else count)
        unit, count = unit_of(kind.shape[axes[0]], self.ragged)
        plain = len(axes) == 1 and name not in (*self.updates, *self.updates.values())
        if name in (*self.given.inputs, *self.given.outputs):  # a row's part is contiguous
            plain = plain and bool(self.row_shape(name)[0].symbols & self.ragged)
        if plain:
            return Form(TOKEN, axes[0], count, unit)
        unit, count = unit_of(product(kind.shape), self.ragged)
        return Form("block", 0, count, unit)

    def _classify(self) -> None:
        """Choose a form for each node of the graph of one row."""
        one, graph = self.one, self.graph
        self.forms: dict[str, Form] = {}
        self.independent: dict[tuple[Group, Size], bool] = {}
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
        self._move()

    def _move(self) -> None:
        """Move nodes over tokens and rows into loops where this is estimated to be faster."""
        one = self.one
        moving = frozenset(
            name for name in one.types if name not in self.alone and self.form(name).kind != SHARED
        )
        kinds = {
            number: kind for number, kind in self.kinds.items()
            if not self.alone.issuperset(one.nodes[number].given)
        }  # fmt: skip
        fixed = frozenset(number for number, kind in kinds.items() if kind == INSIDE)
        free = [number for number, kind in kinds.items() if kind in (TOKEN, ROW)]
        found = LoopCosts(one, self.ragged, moving).moved(fixed, free)
        if found != fixed:
            self.kinds.update(dict.fromkeys(found, INSIDE))
            self._sink({
                name for number, kind in self.kinds.items() if kind == INSIDE
                for name in one.nodes[number].outputs
            })  # fmt: skip

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
        if not self._is_independent(group_of(self.one, node), unit):
            return INSIDE
        try:
            over_tokens(node, unit, as_size(1), self.ragged)
        except (Mixed, Unsuited):
            return INSIDE
        record = record_of(node)
        return INSIDE if record is not None and record.routine is not None else TOKEN

    def _is_independent(self, group: Group, unit: Size) -> bool:
        """Whether a group computes each index of tokens alone; equal layers have equal groups."""
        if (group, unit) not in self.independent:
            marks = marks_of(unit, self.ragged)
            try:
                check_independent(group, marks, self.ragged, self.one.box)
                self.independent[group, unit] = True
            except Mixed:
                self.independent[group, unit] = False
        return self.independent[group, unit]

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
            if number in between and family(node) == "elementwise":
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
            if self.kinds[number] != TOKEN or family(node) in _PRODUCTS:
                continue
            if self._reads(node) <= known:
                found.add(number)
                known.update(node.outputs)
        return found

    def _scales(self, node: Node) -> bool:
        """Whether a node does element work on one tensor and scalars."""
        if family(node) != "elementwise":
            return False
        others = [n for n in node.given if n not in self.alone]
        scalars = [product(self.one.types[n].shape).constant == 1 for n in node.given
                   if n in self.alone]  # fmt: skip
        return len(others) == 1 and all(scalars)

    def _updates(self) -> Iterator[tuple[str, str]]:
        """Yield results that replace a part of an input, and that input, of sizes of the table.

        A row is a block of both, and what lies between blocks stays as it is.
        """
        for node in self.one.nodes:
            if node.operator == "put" and node.given[0] in self.one.inputs:
                own = symbols_of([self.one.types[node.given[0]]]) & self.table
                if own and node.outputs[0] in self.one.outputs:
                    yield node.outputs[0], node.given[0]

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


# ---- nodes ---------------------------------------------------------------------------------------


def _symbols(node: Node) -> frozenset[str]:
    """The dims in a node's attributes, graphs that it holds included."""
    found = set(symbols_of(node.attributes.values()))
    for held in node.region.held.values() if node.region else ():
        found |= symbols_of(held.types.values())
        found |= set().union(*map(_symbols, held.nodes))
    return frozenset(found)


def mask_inputs(graph: Graph, rows: str, ragged: frozenset[str]) -> frozenset[str]:
    """The inputs [rows, ragged] that mark what is no padding, by their names."""
    found = set()
    for name in graph.inputs:
        kind, plain = graph.types[name], name.lower().rstrip("0123456789._:")
        shaped = kind.rank == 2 and kind.shape[0] == Size.symbol(rows)
        if shaped and plain.endswith("mask") and set() < kind.shape[1].symbols <= ragged:
            if not any(word in plain for word in _OTHER_MASKS):
                found.add(name)
    return frozenset(found)
