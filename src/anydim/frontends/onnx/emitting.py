"""The graph while it is being imported: values, their known contents, and the nodes made so far.

Small integer tensors that come from shapes and constants are *known*: their contents are held as
arrays of sizes, and no tensor is made for them unless a node needs one as data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy

from anydim.base.dtypes import DType, from_numpy, int64
from anydim.base.frozen import FrozenMapping, freeze_value
from anydim.frontends.onnx.contents import Undecided, known_results
from anydim.graph.nodes import Constant, Node
from anydim.graph.operator import operator
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Size, as_size

MOST_KNOWN = 256


@dataclass(frozen=True)
class Known:
    """The contents of a value: numbers, or an object array with sizes among them."""

    array: numpy.ndarray
    dtype: DType

    @staticmethod
    def of(array: numpy.ndarray) -> Known:
        return Known(array, from_numpy(array.dtype))

    @staticmethod
    def sizes(sizes: Iterable[Size | int], dtype: DType = int64) -> Known:
        """A vector of sizes; plain numbers when all are constant."""
        return Known(_plain(numpy.array([*map(as_size, sizes), None], object)[:-1], dtype), dtype)

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, tuple(as_size(size) for size in self.array.shape))


def _plain(array: numpy.ndarray, dtype: DType) -> numpy.ndarray:
    """Numbers instead of sizes where all are constant."""
    constants = [size.constant for size in array.flat]
    if any(constant is None for constant in constants):
        return array
    return numpy.array(constants, dtype.numpy).reshape(array.shape)


@dataclass
class Emitter:
    """Collects the nodes of one graph."""

    box: Box
    types: dict[str, TensorType] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    virtual: dict[str, str] = field(default_factory=dict)  # known, not yet a tensor -> its source
    taken: set[str] = field(default_factory=set)

    def resolve(self, name: str) -> str:
        """The value behind a name that another operator only passed on."""
        return self.aliases.get(name, name)

    def fresh(self, stem: str) -> str:
        """A name that no value has."""
        name, number = stem, 1
        while name in self.taken:
            number += 1
            name = f"{stem}_{number}"
        self.taken.add(name)
        return name

    def add_constant(self, name: str, array: numpy.ndarray) -> None:
        """A constant of the graph; small ones are known too."""
        self.taken.add(name)
        if array.size <= MOST_KNOWN:
            self.add_known(name, Known.of(array), name)
            return
        constant = Constant(array)
        self.constants[name] = constant
        self.types[name] = constant.type

    def add_known(self, name: str, known: Known, source: str) -> None:
        """A value of which only the contents are held so far."""
        self.taken.add(name)
        self.known[name] = known
        self.types[name] = known.type
        self.virtual[name] = source

    def node(
        self, name: str, inputs: tuple[str | None, ...], outputs: tuple[str, ...],
        attributes: Mapping[str, Any], source: str,
    ) -> Node:  # fmt: skip
        """A node whose results have their types; it is not yet part of the graph."""
        values = FrozenMapping({key: freeze_value(value) for key, value in attributes.items()})
        given = [self.types[value] for value in inputs if value is not None]
        kinds = operator(name).infer(given, values, self.box)
        self.types.update(zip(outputs, kinds))
        return Node(name, inputs, outputs, values, source)

    def commit(self, nodes: Iterable[Node]) -> None:
        """Make nodes part of the graph, and tensors of the known values that they read."""
        for node in nodes:
            for name in node.given:
                self.materialise(name)
            self.nodes.append(node)

    def materialise(self, name: str) -> None:
        """Make a tensor of a value of which only the contents were held."""
        source = self.virtual.pop(name, None)
        if source is None:
            return
        known = self.known[name]
        if known.array.dtype != object:
            self.constants[name] = Constant(known.array)
            return
        flat = name if known.array.ndim <= 1 else self.fresh(f"{name}/flat")
        values = tuple(as_size(size) for size in known.array.flat)
        attributes = {"values": values, "dtype": known.dtype, "scalar": known.array.ndim == 0}
        self.nodes.append(self.node("size_tensor", (), (flat,), attributes, source))
        if flat != name:
            shape = {"shape": known.array.shape}
            self.nodes.append(self.node("reshape", (flat,), (name,), shape, source))

    def fold(self, nodes: Iterable[Node]) -> dict[str, Known] | None:
        """The contents of the results of nodes that read known values only; None when they
        cannot be told, or are too many."""
        found = dict(self.known)
        made: dict[str, Known] = {}
        for node in nodes:
            if any(_count(self.types[name]) > MOST_KNOWN for name in node.outputs):
                return None
            inputs = [found[name].array for name in node.given]
            kinds = [self.types[name] for name in node.given]
            try:
                arrays = known_results(node, kinds, inputs, self.box)
            except Undecided:
                return None
            for name, array in zip(node.outputs, arrays):
                found[name] = made[name] = Known(array, self.types[name].dtype)
        return made


def _count(kind: TensorType) -> int:
    """How many elements, or more than any limit when that is not known."""
    count = 1
    for size in kind.shape:
        if size.constant is None:
            return MOST_KNOWN + 1
        count *= size.constant
    return count
