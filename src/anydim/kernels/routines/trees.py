"""Ensembles of decision trees: every row walks down every tree, leaves add up in its results.

Nodes are tables. Node k compares element `features[k]` of the row with `splits[k]` as `modes[k]`
says and goes on to `yes[k]` or `no[k]`; a number below 0 is a leaf, -1 the first. NaN goes to `yes`
where `missing[k]`. Mode MEMBER asks for one of `members[member_first[k]:member_first[k + 1]]`.
With the attribute `mode` all nodes have that one. A leaf holds the weights
`leaf_first[l]:leaf_first[l + 1]`, each for the result in `targets`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy

from anydim.base.dtypes import DType, boolean, float32, float64, int64, uint64
from anydim.base.errors import GraphError
from anydim.kernels.launch import Machine
from anydim.kernels.routines.arguments import expect_inputs
from anydim.kernels.routines.code import Buffer, Code
from anydim.kernels.routines.record import Arrays, Attributes, Routine, Steps, Types
from anydim.kernels.write.term import Term, apply, constant, larger, smaller
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Size, as_size

NAME = "tree_ensemble"
LE, LT, GE, GT, EQ, NE, MEMBER = range(7)
VALUE = None  # of a table of the type of the rows
TABLES: dict[str, DType | None] = {
    "roots": int64, "features": int64, "modes": int64, "splits": VALUE, "yes": int64,
    "no": int64, "missing": boolean, "member_first": int64, "members": VALUE,
    "leaf_first": int64, "targets": int64, "weights": VALUE,
}  # fmt: skip
JOINS = {"sum": ("add", numpy.add), "min": ("min", numpy.minimum), "max": ("max", numpy.maximum)}


def infer(types: Types, attributes: Attributes, box: Box) -> tuple[TensorType, ...]:
    """Types: rows [n, features], then a vector for each of `TABLES`."""
    expect_inputs(NAME, types, 1 + len(TABLES), 1 + len(TABLES))
    x, *tables = types
    if x.rank != 2 or x.dtype not in (float32, float64):
        raise GraphError(f"operator '{NAME}': {x} is no matrix of float32 or float64")
    for (name, wanted), kind in zip(TABLES.items(), tables):
        if kind.rank != 1 or kind.dtype != (wanted or x.dtype):
            expected = f"expected a vector of {wanted or x.dtype}"
            raise GraphError(f"operator '{NAME}': {name} is {kind}, {expected}")
    if attributes["join"] not in JOINS:
        raise GraphError(f"operator '{NAME}': join {attributes['join']!r} of {', '.join(JOINS)}")
    return (TensorType(x.dtype, (x.shape[0], as_size(attributes["count"]))),)


def _first(join: str, dtype: DType) -> float:
    """What results start from."""
    limits = numpy.finfo(dtype.numpy)
    return {"sum": 0.0, "min": float(limits.max), "max": float(limits.min)}[join]


# ---- meaning -----------------------------------------------------------------------------------


def evaluate(
    arrays: Arrays, attributes: Attributes, sizes: Mapping[str, int]
) -> tuple[numpy.ndarray, ...]:
    x, *given = arrays
    tables = dict(zip(TABLES, given))
    count = as_size(attributes["count"]).evaluate(sizes)
    join = JOINS[attributes["join"]][1]
    first = _first(attributes["join"], float64 if x.dtype == numpy.float64 else float32)
    result = numpy.full((len(x), count), first, x.dtype)
    if attributes["mode"] is not None:
        tables["modes"] = numpy.full_like(tables["modes"], attributes["mode"])
    for row, own in zip(x, result):
        for root in tables["roots"].tolist():
            leaf = -1 - _leaf(row, root, tables)
            if not 0 <= leaf < len(tables["leaf_first"]) - 1:
                continue
            low, high = tables["leaf_first"][leaf : leaf + 2].tolist()
            for place in range(max(low, 0), min(high, len(tables["weights"]))):
                target = tables["targets"][place]
                if 0 <= target < count:
                    own[target] = join(own[target], tables["weights"][place])
    return (result,)


def _leaf(row: numpy.ndarray, node: int, tables: Mapping[str, numpy.ndarray]) -> int:
    """Where a walk from a node ends: below 0, unless it goes round in circles."""
    for _ in range(len(tables["modes"])):
        if not 0 <= node < len(tables["modes"]):
            break
        feature = tables["features"][node]
        value = row[feature] if 0 <= feature < len(row) else row.dtype.type(0)
        holds = _holds(value, node, tables) or (numpy.isnan(value) and tables["missing"][node])
        node = int(tables["yes" if holds else "no"][node])
    return node


def _holds(value: numpy.floating, node: int, tables: Mapping[str, numpy.ndarray]) -> bool:
    split, mode = tables["splits"][node], tables["modes"][node]
    low, high = tables["member_first"][node : node + 2].tolist()
    relations = [
        value <= split, value < split, value >= split, value > split, value == split,
        value != split, value in tables["members"][max(low, 0) : max(high, 0)],
    ]  # fmt: skip
    return bool(relations[mode]) if 0 <= mode < len(relations) else False


# ---- native code -------------------------------------------------------------------------------


def lower(types: Types, attributes: Attributes, box: Box, machine: Machine) -> Steps:
    code, dtype = Code(NAME, machine, box), types[0].dtype
    x, y = code.input("x0", dtype), code.output("y0", dtype)
    rows, features = types[0].shape
    count, join = as_size(attributes["count"]), attributes["join"]
    trees = _Trees(code, types, features, attributes["mode"])
    with code.range(code.start, code.stop) as row:
        own = x.part(code.let(row * code.size(features)))
        result = y.part(code.let(row * code.size(count)))
        with code.range(0, code.size(count)) as i:
            result[i] = _first(join, dtype)
        with code.range(0, trees.length["roots"]) as tree:
            leaf = trees.walk(own, trees.tables["roots"][tree])
            trees.add(leaf, result, code.size(count), JOINS[join][0])
    work = rows * types[1].shape[0]
    return Steps((code.launch(rows, work, reason="rows walk down all trees"),))


class _Trees:
    """The tables, whatever they hold: no index leaves them, no walk is endless."""

    def __init__(self, code: Code, types: Types, features: Size, mode: int | None) -> None:
        self.code = code
        self.mode = mode
        self.features = code.size(features)
        self.tables = {
            name: code.input(f"x{number}", kind.dtype)
            for number, (name, kind) in enumerate(zip(TABLES, types[1:]), 1)
        }
        self.length = {name: code.size(k.shape[0]) for name, k in zip(TABLES, types[1:])}
        nodes = self.length["features"]
        for name in ("modes", "splits", "yes", "no", "missing"):
            nodes = smaller(nodes, self.length[name])
        nodes = smaller(nodes, self.length["member_first"] - 1)
        self.nodes = code.let(larger(nodes, constant(0)))

    def walk(self, row: Buffer, root: Term) -> Term:
        """The leaf that a row comes to, as a node below 0."""
        code = self.code
        node, steps = code.variable(root), code.variable(self.nodes)
        with code.loop(lambda: _inside(node(), self.nodes) & (steps() > 0)):
            k = node()
            feature = self.tables["features"][k]
            value = row.load(feature, where=_inside(feature, self.features))
            missing = self.tables["missing"][k] & apply("isnan", value)
            holds = self._holds(k, value) | missing
            with code.when(holds):  # a branch: the processor goes on before it knows
                node.set(self.tables["yes"][k])
            with code.otherwise():
                node.set(self.tables["no"][k])
            steps.set(steps() - 1)
        return node()

    def _holds(self, k: Term, value: Term) -> Term:
        code, split = self.code, self.tables["splits"][k]
        relations = {
            LE: value <= split, LT: value < split, GE: value >= split, GT: value > split,
            EQ: value.equals(split), NE: value.differs(split),
        }  # fmt: skip
        if self.mode in relations:
            return relations[self.mode]
        mode = self.tables["modes"][k] if self.mode is None else constant(self.mode)
        found = code.variable(False)
        for number, holds in relations.items():
            with code.when(mode.equals(number)):
                found.set(holds)
        with code.when(mode.equals(MEMBER)):
            low, high = self._bounds("member_first", k, self.length["members"])
            with code.range(low, high) as i:
                found.set(found() | value.equals(self.tables["members"][i]))
        return found()

    def _bounds(self, name: str, k: Term, most: Term) -> tuple[Term, Term]:
        """Elements k and k + 1 of a table, kept inside 0 ... most."""
        low = larger(self.tables[name][k], constant(0))
        return self.code.let(low), self.code.let(smaller(self.tables[name][k + 1], most))

    def add(self, node: Term, result: Buffer, count: Term, join: str) -> None:
        """What a leaf holds joins the results."""
        code = self.code
        leaf = code.let(constant(-1) - node)
        most = code.let(smaller(self.length["targets"], self.length["weights"]))
        with code.when((leaf >= 0) & (leaf < self.length["leaf_first"] - 1)):
            low, high = self._bounds("leaf_first", leaf, most)
            with code.range(low, high) as i:
                target = self.tables["targets"][i]
                with code.when((target >= 0) & (target < count)):
                    result[target] = apply(join, result[target], self.tables["weights"][i])


def _inside(index: Term, length: Term) -> Term:
    """Whether 0 <= index < length, by one comparison: below 0 is far above as unsigned."""
    return index.bits(uint64) < length.bits(uint64)


TREE_ENSEMBLE = Routine(infer, evaluate, lower)
