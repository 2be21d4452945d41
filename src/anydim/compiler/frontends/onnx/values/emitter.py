"""`Emitter`, a graph during import: values, their known contents, and the nodes added so far.

Small integer tensors that come from shapes and constants are *known*: their contents are held as
arrays of sizes, and no tensor is materialised unless a node needs one as data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy

from anydim.base.dtypes import DType
from anydim.base.frozen import FrozenMapping, freeze_value
from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.values.bindings import Known, KnownWeight
from anydim.compiler.frontends.onnx.values.size_folding import (
    Assumed,
    Assuming,
    Fitted,
    Undecided,
    derived_results,
    known_results,
)
from anydim.compiler.graph.derivations import Weight
from anydim.compiler.graph.nodes import Constant, Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.graph.regions import REGION, SIZES, Region, Sizes
from anydim.lang.tree import TensorType
from anydim.runtime.lists import Listed
from anydim.sizes import Box, Dim, Guard, Size, as_size, bounds

MOST_KNOWN = 256
Relation = tuple[Size, str, Size]  # as in a Guard
UNFOLDED = frozenset(("dequantize",))  # constants that later passes need unfolded
__all__ = ["MOST_KNOWN", "Emitter", "Known", "Relation"]


@dataclass
class Emitter:
    """Collects the nodes of one graph; `outer` collects those of the enclosing graph.

    `reserved` holds the names of all dims of the model, so that no two graphs share one by
    accident.
    """

    box: Box
    types: dict[str, TensorType] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    assumed: dict[str, Assumed] = field(default_factory=dict)  # contents under assumptions
    constants: dict[str, Constant] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    virtual: dict[str, str] = field(default_factory=dict)  # known, not materialised -> its source
    taken: set[str] = field(default_factory=set)
    guards: list[Guard] = field(default_factory=list)
    makers: dict[str, Node] = field(default_factory=dict)
    elements: dict[tuple[str, int], Size] = field(default_factory=dict)  # elements that are dims
    outer: Emitter | None = None
    captured: dict[str, str] = field(default_factory=dict)  # value of `outer` -> own input
    resident: dict[str, str] = field(default_factory=dict)  # the same, without an input
    reserved: set[str] = field(default_factory=set)
    relations: list[Relation] = field(default_factory=list)  # hold in every run of the graph
    is_apart: bool = False  # an If with results of different ranks

    def fresh(self, stem: str) -> str:
        """A unique name for a value."""
        name, number = stem, 1
        while name in self.taken:
            number += 1
            name = f"{stem}_{number}"
        self.taken.add(name)
        return name

    def add_constant(self, name: str, array: numpy.ndarray, weight: Weight | None = None) -> None:
        """Add a constant to the graph, the array of a weight; small ones are known too."""
        self.taken.add(name)
        if array.size <= MOST_KNOWN:
            known = Known.of(array) if weight is None else KnownWeight(Constant(array, weight))
            self.add_known(name, known, name)
            return
        constant = Constant(array, weight)
        self.constants[name] = constant
        self.types[name] = constant.type

    def add_known(self, name: str, known: Known, source: str) -> None:
        """Add a value of which only the contents are held."""
        self.taken.add(name)
        self.known[name] = known
        self.types[name] = known.type
        self.virtual[name] = source

    def node(
        self, name: str, inputs: tuple[str | None, ...], outputs: tuple[str, ...],
        attributes: Mapping[str, Any], source: str,
    ) -> Node:  # fmt: skip
        """Make a node and infer the types of its results; it is not yet part of the graph."""
        values = FrozenMapping({key: freeze_value(value) for key, value in attributes.items()})
        given = [self.types[value] for value in inputs if value is not None]
        kinds = operator(name).infer(given, values, self.box)
        self.types.update(zip(outputs, kinds))
        return Node(name, inputs, outputs, values, source)

    def commit(self, nodes: Iterable[Node]) -> None:
        """Append nodes to the graph; materialises the known values that they read."""
        for node in nodes:
            for name in node.given:
                self.materialise(name)
            self.nodes.append(node)
            self.makers.update(dict.fromkeys(node.outputs, node))

    def materialise(self, name: str) -> None:
        """Add what makes a tensor of a value whose contents alone are known: constant or node."""
        source = self.virtual.pop(name, None)
        if source is None:
            return
        known = self.known[name]
        if not known.has_sizes:
            self.constants[name] = known.constant()
            return
        flat = name if known.array.ndim <= 1 else self.fresh(f"{name}/flat")
        values = tuple(as_size(size) for size in known.array.flat)
        attributes = {"values": values, "dtype": known.dtype, "scalar": known.array.ndim == 0}
        self.nodes.append(self.node("size_tensor", (), (flat,), attributes, source))
        if flat != name:
            shape = {"shape": known.array.shape}
            self.nodes.append(self.node("reshape", (flat,), (name,), shape, source))

    def region(
        self, name: str, inputs: tuple[str, ...], outputs: Mapping[str, TensorType],
        region: Region, source: str,
    ) -> Node:  # fmt: skip
        """Make a node that holds graphs, with typed results; it is not yet part of the graph."""
        self.types.update(outputs)
        attributes: FrozenMapping[str, Any] = FrozenMapping({REGION: region})
        return Node(name, inputs, tuple(outputs), attributes, source)

    # ---- dims ----

    def dim(self, stem: str, low: int = 0, high: int | None = None) -> Size:
        """Add a dim to the graph under a name that is unique in the model."""
        stem = re.sub(r"[^\w.]|\.(?!\w)", "_", stem) or "_"
        stem = f"_{stem}" if stem[0].isdigit() else stem
        name, number = stem, 1
        while name in self.reserved:
            number += 1
            name = f"{stem}_{number}"
        self.reserved.add(name)
        self.box = self.box.also(Dim(name, low, high))
        return Size.symbol(name)

    def constant(self, size: Size) -> int | None:
        """The number that a size is in every call, also by `dims={"k": 3}`; None if it varies."""
        number = size.constant
        return bounds(size, self.box).value if number is None else number

    def constrain(self, *sizes: Size) -> None:
        """Constrain sizes to be at least 0."""
        news = tuple(s for s in sizes if s.constant is None and s not in self.box.constraints)
        self.box = self.box.also(constraints=news)

    def finding(self, value: str, dims: Iterable[Size], source: str) -> Node:
        """Make the node that binds dims to the elements of a value; not yet part of the graph."""
        names = tuple(str(dim) for dim in dims)
        return self.region(SIZES, (value,), {}, Sizes(names), source)

    def mark(self) -> tuple[Box, int, int, int]:
        """The state that `back` restores."""
        return self.box, len(self.guards), len(self.relations), len(self.elements)

    def back(self, mark: tuple[Box, int, int, int]) -> None:
        """Restore dims, guards and relations of a mark."""
        self.box = mark[0]
        del self.guards[mark[1] :]
        del self.relations[mark[2] :]
        for key in [*self.elements][mark[3] :]:
            del self.elements[key]

    # ---- nested graphs ----

    @property
    def apart(self) -> int:
        """The nesting depth of branches with results of different ranks around this graph."""
        return self.is_apart + (0 if self.outer is None else self.outer.apart)

    def capture(self, value: str) -> str:
        """The local name of a value of the enclosing graph; known and constant values stay so."""
        outer = self.outer
        assert outer is not None
        own = self.captured.get(value) or self.resident.get(value)
        if own is not None:
            return own
        own = self.fresh(value)
        self.types[own] = outer.types[value]
        if value in outer.assumed:
            self.assumed[own] = outer.assumed[value]
        if value in outer.known:
            self.add_known(own, outer.known[value], outer.virtual.get(value, value))
        elif value in outer.constants:
            self.constants[own] = outer.constants[value]
        else:
            self.captured[value] = own
            return own
        self.resident[value] = own
        return own

    def graph(
        self, name: str, inputs: Iterable[str], outputs: Iterable[str],
        lists: Mapping[str, Listed] | None = None,
    ) -> Graph:  # fmt: skip
        """The collected graph, pruned."""
        return Graph(
            name, self.box,
            FrozenMapping({n: k for n, k in self.types.items() if n not in self.virtual}),
            tuple(inputs), tuple(outputs), FrozenMapping(self.constants), tuple(self.nodes),
            tuple(self.guards), FrozenMapping(lists or {}),
        ).pruned()  # fmt: skip

    # ---- contents ----

    def is_static(self, name: str) -> bool:
        """Whether the contents of a value are usable as sizes before a run."""
        return name in self.known or (name in self.assumed and self.assumed[name].likely)

    def contents(self, name: str) -> numpy.ndarray:
        """The contents of a value used as sizes; adds the guards of their assumptions."""
        assumed = self.assumed.get(name)
        if assumed is None or not assumed.likely:
            return self.known[name].array
        self.guard(*assumed.guards)
        return assumed.array

    def guard(self, *guards: Guard) -> None:
        """Add guards that must hold when the graph runs."""
        self.guards += [guard for guard in guards if guard not in self.guards]

    def held_in(self, size: Size, dtype: DType, source: str) -> Size | None:
        """The size if an integer type can hold it, by proof or a new guard; None if it may wrap."""
        assuming = Assuming(self.box, source=source)
        try:
            held = assuming(size, dtype)
        except Undecided:
            return None
        if held != size or not assuming.likely:
            return None
        self.guard(*assuming.guards)
        return held

    def fold(self, nodes: Sequence[Node]) -> Folded:
        """Fold nodes that read known values only."""
        if not all(map(self._foldable, nodes)):
            return Folded(None, {})
        given = {name for node in nodes for name in node.given}
        derived = self._derive(nodes, given)
        if derived:
            return Folded(derived, {})
        found = {name: self.known[name].array for name in given if name in self.known}
        assumptions = {name: self.assumed[name] for name in given if name in self.assumed}
        exact = Fitted(self.box)
        made = self._evaluate(nodes, dict(found), exact)
        if not exact.changed and not assumptions:
            return Folded(made, {})
        assuming = Assuming(self.box, source=nodes[0].source)
        found |= {name: assumed.array for name, assumed in assumptions.items()}
        usual = self._evaluate(nodes, found, assuming) or {}
        guards = (*(g for each in assumptions.values() for g in each.guards), *assuming.guards)
        likely = assuming.likely and all(each.likely for each in assumptions.values())
        held = tuple(dict.fromkeys(guards))
        return Folded(made, {n: Assumed(k.array, held, likely) for n, k in usual.items()})

    def _derive(self, nodes: Sequence[Node], given: Iterable[str]) -> dict[str, Known]:
        """The results of nodes that read weights and other numbers, if there are such."""
        known = {name: self.known[name] for name in given if name in self.known}
        if not any(isinstance(each, KnownWeight) for each in known.values()):
            return {}
        if any(each.has_sizes or name in self.assumed for name, each in known.items()):
            return {}
        held = {name: each.constant() for name, each in known.items()}
        made: dict[str, Known] = {}
        try:
            for node in nodes:
                kinds = [self.types[name] for name in node.given]
                inputs = [held[name] for name in node.given]
                results = derived_results(node, kinds, inputs, self.box)
                for name, constant in zip(node.outputs, results):
                    held[name], made[name] = constant, KnownWeight(constant)
        except Undecided:
            return {}
        return made

    def _foldable(self, node: Node) -> bool:
        small = all(_count(self.types[name]) <= MOST_KNOWN for name in node.outputs)
        return small and node.region is None and node.operator not in UNFOLDED

    def _evaluate(
        self, nodes: Sequence[Node], found: dict[str, numpy.ndarray], fitted: Fitted
    ) -> dict[str, Known] | None:
        """The results of nodes from the contents in `found`; None if undecided."""
        made: dict[str, Known] = {}
        for node in nodes:
            if not all(name in found for name in node.given):
                return None
            inputs = [found[name] for name in node.given]
            kinds = [self.types[name] for name in node.given]
            try:
                arrays = known_results(node, kinds, inputs, fitted)
            except Undecided:
                return None
            for name, array in zip(node.outputs, arrays):
                found[name] = array
                made[name] = Known(array, self.types[name].dtype)
        return made


@dataclass(frozen=True)
class Folded:
    """The contents of results: exact (None if undecided), and under assumptions."""

    known: dict[str, Known] | None
    assumed: dict[str, Assumed]


def _count(kind: TensorType) -> int:
    """The element count, or a number above any limit if it is unknown."""
    count = 1
    for size in kind.shape:
        if size.constant is None:
            return MOST_KNOWN + 1
        count *= size.constant
    return count
