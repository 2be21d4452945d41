"""Ensembles of decision trees: every row descends every tree, and leaves contribute to its results.

Nodes are slots of tables, the roots first. At slot k a row continues at `following[k]` if its
element in column `used[features[k]]` is at most `splits[k]`, else at the slot after that one; NaN
goes to `following[k]` if `missing[k]`. A slot that follows itself is a leaf: its split is infinite,
NaN stays, and `features[k]` is its number. Leaf l has the weights `leaf_first[l]:leaf_first[l +
1]`, each for the result in `targets`. Frontends convert other comparisons to this form.

Eight rows descend at once, so that the latencies of their loads overlap, and no branch depends on
the path of a row; remaining rows descend eight trees at once. The used columns are packed
beforehand, one column of eight rows after the other; a tree's nodes stay in the cache while all
rows of a tile descend it. No index is out of bounds, whatever the tables contain: there are 2^n
slots and space for 2^m columns, and indices are masked to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy

from anydim.base.dtypes import DType, boolean, float32, float64, int32, int64, uint64
from anydim.base.errors import GraphError
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer, Variable
from anydim.compiler.kernels.ir import apply, constant, greatest, iota, least, select
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.routines.arguments import at_most
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.routine import (
    Arrays,
    Attributes,
    Dims,
    Results,
    Routine,
    Steps,
    Types,
)
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Guard, Size, as_size

NAME = "tree_ensemble"
VALUE = None  # a table with the dtype of the rows
TABLES: dict[str, DType | None] = {
    "used": int64, "features": int32, "splits": VALUE, "following": int32, "missing": boolean,
    "leaf_first": int64, "targets": int64, "weights": VALUE,
}  # fmt: skip
SLOTS = ("features", "splits", "following", "missing")
JOINS = ("sum", "min", "max")

_SHIFT = 3
LANES = 1 << _SHIFT  # rows that descend at once
_TILE = 16  # maximum groups of rows that descend a tree before the next tree
_PACKED = 1 << 16  # maximum bytes of packed columns of a tile
_LEVELS = 2  # levels between checks whether all rows are at leaves
_UNROLLED = 8  # maximum unrolled weights of a leaf
_SHORT = 1 << 13  # levels descended in less time than it takes to wake a thread


def infer(types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
    """Types: rows [n, columns], then a vector for each of `TABLES`."""
    x, *tables = types
    if x.rank != 2 or x.dtype not in (float32, float64):
        raise GraphError(f"operator '{NAME}': {x} is not a matrix of float32 or float64")
    for (name, wanted), kind in zip(TABLES.items(), tables):
        if kind.rank != 1 or kind.dtype != (wanted or x.dtype):
            expected = f"expected a vector of {wanted or x.dtype}"
            raise GraphError(f"operator '{NAME}': {name} is {kind}, {expected}")
    held = dict(zip(TABLES, tables))
    slots = {held[name].shape[0].constant for name in SLOTS}
    count = slots.pop()
    if slots or not count or count & (count - 1) or count < attributes["trees"]:
        raise GraphError(f"operator '{NAME}': slots are not a power of two, or fewer than trees")
    if held["used"].shape[0].constant is None:
        raise GraphError(f"operator '{NAME}': the number of columns in use is a dim")
    if attributes["join"] not in JOINS:
        raise GraphError(f"operator '{NAME}': join {attributes['join']!r} of {', '.join(JOINS)}")
    return (TensorType(x.dtype, (x.shape[0], as_size(attributes["count"]))),)


def guards(types: Types, attributes: Attributes, box: Box) -> tuple[Guard, ...]:
    """The rows have all columns that the trees use."""
    wanted = as_size(attributes["columns"])
    return at_most(wanted, types[0].shape[1], f"{NAME}: the columns that the trees use", box)


# ---- meaning -----------------------------------------------------------------------------------


def evaluate(arrays: Arrays, attributes: Attributes, sizes: Dims) -> Results:
    x, *given = arrays
    tables = dict(zip(TABLES, given))
    count = as_size(attributes["count"]).evaluate(sizes)
    packed = _used_columns(x, tables["used"])
    result = numpy.full((len(x), count), numpy.nan, x.dtype)
    for tree in range(attributes["trees"]):
        leaves = _leaves(packed, tree, tables, attributes["depth"])
        for row, leaf in enumerate(leaves.tolist()):
            _join(result[row], leaf, tables, attributes)
    return (numpy.where(numpy.isnan(result), x.dtype.type(0), result),)


def _used_columns(x: numpy.ndarray, used: numpy.ndarray) -> numpy.ndarray:
    """The used columns, 0 for missing ones; 2^m of them."""
    inside = (used >= 0) & (used < x.shape[1])
    packed = numpy.zeros((len(x), _power(len(used))), x.dtype)
    packed[:, : len(used)][:, inside] = x[:, used[inside]]
    return packed


def _leaves(
    packed: numpy.ndarray, tree: int, tables: Mapping[str, numpy.ndarray], depth: int
) -> numpy.ndarray:
    """The leaf that each row reaches."""
    rows, slots = numpy.arange(len(packed)), len(tables["splits"])
    node = numpy.full(len(packed), tree)
    for _ in range(-(-depth // _LEVELS) * _LEVELS):
        value = packed[rows, tables["features"][node] & (packed.shape[1] - 1)]
        second = value > tables["splits"][node]
        second |= numpy.isnan(value) & ~tables["missing"][node].astype(bool)
        node = (tables["following"][node] + second) & (slots - 1)
    leaves: numpy.ndarray = tables["features"][node]
    return leaves


def _join(
    own: numpy.ndarray, leaf: int, tables: Mapping[str, numpy.ndarray], attributes: Attributes
) -> None:
    """Combine the weights of a leaf with the results of a row, which start as NaN."""
    first, weights, width = tables["leaf_first"], tables["weights"], attributes["width"]
    if not 0 <= leaf < len(first) - 1:
        return
    low, high = max(int(first[leaf]), 0), min(int(first[leaf + 1]), len(weights))
    if width is not None:
        low, high = leaf * width, leaf * width + width
        high = high if high <= len(weights) else low
    join = {"sum": numpy.add, "min": numpy.fmin, "max": numpy.fmax}[attributes["join"]]
    for position in range(low, high):
        target = tables["targets"][position]
        if 0 <= target < len(own):
            is_unset = attributes["join"] == "sum" and numpy.isnan(own[target])
            own[target] = join(own.dtype.type(0 if is_unset else own[target]), weights[position])


def _power(count: int) -> int:
    """The smallest power of two not below `count`."""
    return 1 << max(0, count - 1).bit_length()


# ---- native code -------------------------------------------------------------------------------


def lower(types: Types, attributes: Attributes, box: Box, machine: Machine) -> Steps:
    code = Code(NAME, machine, box)
    trees = _Trees(code, types, attributes)
    with code.range(code.start, code.stop, trees.tile) as first:
        last = code.let(least(code.stop, first + trees.tile))
        whole = code.let(greatest(first, least(last, trees.rows // LANES)))
        trees.begin(first, last)
        strange = trees.pack(first, last)
        # Only tiles of rows with a NaN pay for its tests.
        for missing in (False, True):
            with code.when(strange if missing else ~strange):
                trees.by_groups(first, whole, missing)
                trees.remaining_rows(first, whole, last, missing)
        trees.end(first, last)
    rows = types[0].shape[0]
    steps = attributes["trees"] * max(1, attributes["depth"])
    groups = (rows + (LANES - 1)) // LANES
    grain = max(1, _SHORT // (LANES * max(1, steps)))
    return Steps((code.launch(groups, rows * steps, grain, "rows descend all trees"),))


class _Trees:
    """The tables, and the packed columns of a tile of rows."""

    def __init__(self, code: Code, types: Types, attributes: Attributes) -> None:
        self.code, self.join = code, attributes["join"]
        self.dtype = types[0].dtype
        self.trees, self.depth = attributes["trees"], attributes["depth"]
        self.width = attributes["width"]
        self.x, self.y = code.input("x0", self.dtype), code.output("y0", self.dtype)
        self.rows, self.columns = (code.size(size) for size in types[0].shape)
        self.count = code.size(as_size(attributes["count"]))
        self.tables = {
            name: code.input(f"x{number}", kind.dtype)
            for number, (name, kind) in enumerate(zip(TABLES, types[1:]), 1)
        }
        self.length = {name: k.shape[0] for name, k in zip(TABLES, types[1:])}
        self.used = _constant(self.length["used"])
        self.slots = _constant(self.length["features"])
        self.packed_columns = _power(self.used)
        fitting = _PACKED // (LANES * self.packed_columns * self.dtype.bytes)
        self.tile = max(1, min(_TILE, fitting))
        self.packed = code.scratch(self.dtype, self.tile * LANES * self.packed_columns)

    def begin(self, first: ir.Value, last: ir.Value) -> None:
        """Initialize results: 0, or NaN for no value yet."""
        start = constant(0.0 if self.join == "sum" else float("nan"), self.dtype)
        self._results(first, last, lambda i: start)

    def end(self, first: ir.Value, last: ir.Value) -> None:
        """Set results without any weight to 0."""
        if self.join != "sum":
            zero = constant(0.0, self.dtype)
            self._results(first, last, lambda i: select(apply("isnan", self.y[i]), zero, self.y[i]))

    def _results(
        self, first: ir.Value, last: ir.Value, value: Callable[[ir.Value], ir.Value]
    ) -> None:
        code = self.code
        stop = code.let(least(last * LANES, self.rows) * self.count)
        with code.range(code.let(first * LANES * self.count), stop) as i:
            self.y[i] = value(i)

    def pack(self, first: ir.Value, last: ir.Value) -> ir.Value:
        """Pack the used columns; returns whether there is a NaN among them."""
        code = self.code
        strange = code.variable(constant(False, boolean, LANES))
        with code.range(first, last) as group:
            rows = least(iota(LANES) + code.let(group * LANES), self.rows - 1)
            starts = code.let(rows * self.columns)
            own = self.packed.part(code.let((group - first) * (LANES * self.packed_columns)))
            with code.range(0, self.used) as column_index:
                column = self.tables["used"][column_index]
                inside = _inside(column, self.columns)
                values = self.x.gather(starts + column, where=inside.spread(LANES))
                own.store(column_index * LANES, values)
                strange.set(strange() | apply("isnan", values))
            with code.range(self.used, self.packed_columns) as column_index:  # unused columns
                own.store(column_index * LANES, constant(0.0, self.dtype, LANES))
        return code.let(strange().any)

    def by_groups(self, first: ir.Value, last: ir.Value, missing: bool) -> None:
        """Whole groups of rows descend one tree after the other."""
        code = self.code
        with code.range(0, self.trees) as tree, code.range(first, last) as group:
            own = self.packed.part(code.let((group - first) * (LANES * self.packed_columns)))
            nodes = [code.variable(tree) for _ in range(LANES)]
            self._walk([own.part(lane) for lane in range(LANES)], nodes, missing)
            row = code.let(group * LANES)
            for lane, node in enumerate(nodes):
                self._add(node(), self.y.part(code.let((row + lane) * self.count)))

    def remaining_rows(self, first: ir.Value, low: ir.Value, high: ir.Value, missing: bool) -> None:
        """Rows of partial groups descend eight trees at once."""
        code = self.code
        stop = code.let(least(high * LANES, self.rows))
        with code.range(code.let(low * LANES), stop) as row:
            group = code.let((row >> _SHIFT) - first)
            lane = code.let(row & (LANES - 1))
            own = self.packed.part(code.let(group * (LANES * self.packed_columns) + lane))
            result = self.y.part(code.let(row * self.count))
            with code.range(0, self.trees, LANES) as tree:
                # One row of a whole forest: 46 -> 16 us.
                starts = [least(tree + n, self.trees - 1) for n in range(LANES)]
                nodes = [code.variable(start) for start in starts]
                self._walk([own] * LANES, nodes, missing)
                for number, node in enumerate(nodes):
                    with code.when(tree + number < self.trees):
                        self._add(node(), result)

    def _walk(self, own: Sequence[Buffer], nodes: Sequence[Variable], missing: bool) -> None:
        """Descend eight times to a leaf; `own` holds the packed row of each."""
        code = self.code
        remaining = code.variable(self.depth)
        with code.loop(lambda: remaining() > 0):
            for _ in range(_LEVELS):
                before = [node() for node in nodes]
                # A branch per two levels: selects wait for each comparison (0.86 -> 1.3).
                for columns, node in zip(own, nodes):
                    self._step(columns, node, missing)
            moved = constant(0)
            for node, previous in zip(nodes, before):
                moved = moved | (node() ^ previous)
            remaining.set(select(moved.equals(0), 0, remaining() - _LEVELS))

    def _step(self, own: Buffer, node: Variable, missing: bool) -> None:
        """One row descends one level; at a leaf it stays."""
        k = node()
        feature = self.tables["features"][k].as_(int64) & (self.packed_columns - 1)
        value = own[feature * LANES]
        second = value > self.tables["splits"][k]
        if missing:
            second = second | (apply("isnan", value) & ~self.tables["missing"][k])
        following = self.tables["following"][k].as_(int64)
        node.set((following + second.as_(int64)) & (self.slots - 1))

    def _add(self, node: ir.Value, result: Buffer) -> None:
        """Combine the weights of a leaf with the results of a row."""
        code = self.code
        leaf = code.let(self.tables["features"][node].as_(int64))
        leaves = code.let(greatest(code.size(self.length["leaf_first"]) - 1, 0))
        if self.width is None:
            first, most = self.tables["leaf_first"], self._weights()
            with code.when(_inside(leaf, leaves)):
                low, high = greatest(first[leaf], 0), least(first[leaf + 1], most)
                with code.range(code.let(low), code.let(high)) as i:
                    self._one(i, result)
            return
        start = code.let(leaf * self.width)
        with code.when(_inside(leaf, leaves) & (start + self.width <= self._weights())):
            if self.width <= _UNROLLED:
                for number in range(self.width):
                    self._one(start + number, result)
            else:
                with code.range(0, self.width) as i:
                    self._one(start + i, result)

    def _weights(self) -> ir.Value:
        """The number of weights."""
        sizes = (self.code.size(self.length[name]) for name in ("targets", "weights"))
        return least(*sizes)

    def _one(self, index: ir.Value, result: Buffer) -> None:
        weight, target = self.tables["weights"][index], self.tables["targets"][index]
        with self.code.when(_inside(target, self.count)):
            before = result[target]
            if self.join == "sum":
                result[target] = before + weight
                return
            better = weight < before if self.join == "min" else weight > before
            result[target] = select(better | apply("isnan", before), weight, before)


def _constant(size: Size) -> int:
    assert size.constant is not None
    return size.constant


def _inside(index: ir.Value, length: ir.Value) -> ir.Value:
    """Whether 0 <= index < length, by one unsigned comparison."""
    return index.bits(uint64) < length.bits(uint64)


TREE_ENSEMBLE = Routine((1 + len(TABLES),) * 2, infer, evaluate, lower, guards)
