"""The graph: typed values with symbolic shapes, and the nodes that make them. All immutable.

A value is a name. Its type is in `Graph.types`; it comes from a graph input, a constant or exactly
one node. A node is an operator of the library with attributes; or 'fused', a group of
comprehensions whose tensor names are graph values; or it holds graphs (`regions.py`).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

import numpy

from anydim.base.dtypes import from_numpy
from anydim.base.frozen import FrozenMapping, freeze, freeze_value
from anydim.base.records import dataclass
from anydim.compiler.graph.derivations import (
    FACTS,
    Derivation,
    Origin,
    Scaled,
    Step,
    Weight,
    sources_of,
)
from anydim.compiler.graph.dims import Origins, origins, pruned
from anydim.compiler.graph.regions import (
    REGION,
    BranchRegion,
    CallRegion,
    Foreign,
    LoopRegion,
    PartRegion,
    Region,
    Sizes,
)
from anydim.lang.tree import Group, TensorType
from anydim.runtime.lists import Lists
from anydim.sizes import Box, as_size
from anydim.sizes.guard import Guard

FUSED = "fused"
_REGIONS = (Sizes, PartRegion, BranchRegion, LoopRegion, CallRegion, Foreign)


class Constant:
    """A read-only array in a graph; equal only to itself, so hashing never reads it.

    `origin` says how it is derived from others, or that it is a weight of the source
    (`derivations.py`). `reads` counts the decisions by its elements, `facts` has the answers that
    were enough for others. Without an array, it is read from a file or computed from its origin at
    each access: weights are large, and most are read once, to be packed.
    """

    def __init__(self, array: numpy.ndarray | None, origin: Origin = None) -> None:
        self.origin = origin
        self.reads = 0
        self.facts: list[tuple[Constant, str, bool]] = []
        self._held: numpy.ndarray | None = None
        self._read: Callable[[], numpy.ndarray] | None = None
        if array is not None:
            self._held = numpy.asarray(array).view()
            self._held.flags.writeable = False
            self.dtype, self.shape = self._held.dtype, self._held.shape

    @staticmethod
    def derive(step: Step, *inputs: Constant) -> Constant:
        """The result of a step. Raises what the step raises."""
        made = step.run(*(each.elements for each in inputs))
        return Constant(made, Derivation(step, inputs))

    def again(self, changed: Callable[[Constant], Constant]) -> Constant:
        """This constant, derived from those that its own are changed to. Raises as `derive`."""
        if not isinstance(self.origin, Derivation):
            return self
        step, inputs = self.origin.step, tuple(map(changed, self.origin.inputs))
        if inputs == self.origin.inputs:
            return self
        if self._held is not None:
            return Constant.derive(step, *inputs)
        return Constant.later(step, self.dtype, self.shape, *inputs)

    @staticmethod
    def later(
        step: Step, dtype: numpy.dtype[Any], shape: Sequence[int], *inputs: Constant,
        run: Callable[[], numpy.ndarray] | None = None,
    ) -> Constant:  # fmt: skip
        """The result of a step, which is computed at each access; by `run`, if given."""
        made = Constant(None, Derivation(step, inputs))
        made._read = run
        made.dtype, made.shape = dtype, tuple(shape)
        return made

    @staticmethod
    def of_reader(
        read: Callable[[], numpy.ndarray], dtype: numpy.dtype[Any], shape: Sequence[int]
    ) -> Constant:
        """An array that is read at each access; threads may call `read` at the same time."""
        made = Constant(None)
        made._read, made.dtype, made.shape = read, dtype, tuple(shape)
        return made

    @staticmethod
    def scale(array: Constant, scale: Constant, shape: tuple[int, ...]) -> Constant:
        """An array times a scale, viewed in a shape that broadcasts; computed at each access."""
        dtype = numpy.result_type(array.dtype, scale.dtype)
        return Constant.later(Scaled(shape), dtype, array.shape, array, scale)

    @property
    def elements(self) -> numpy.ndarray:
        """The elements, for steps and stored constants: nothing is decided by them."""
        if self._held is not None:
            return self._held
        if self._read is not None:
            return self._read()
        assert isinstance(self.origin, Derivation)
        return self.origin.step.run(*(each.elements for each in self.origin.inputs))

    @property
    def array(self) -> numpy.ndarray:
        """The elements, for decisions: weights that they come from belong to the structure."""
        self.mark_read()
        return self.elements

    def mark_read(self) -> None:
        """A decision depends on the elements: their weights belong to the structure."""
        for constant in sources_of([self]):
            constant.reads += 1
            if isinstance(constant.origin, Weight):
                constant.origin.mark_read(constant.elements)

    def are(self, fact: str) -> bool:
        """Whether a fact of `FACTS` holds for the elements."""
        answer = FACTS[fact](self.elements)
        for constant in sources_of([self]):
            constant.facts.append((self, fact, answer))
            if isinstance(constant.origin, Weight):
                constant.origin.facts.append((self, fact, answer))
        return answer

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.dtype.itemsize * math.prod(self.shape)

    @cached_property
    def type(self) -> TensorType:
        return TensorType(from_numpy(self.dtype), tuple(map(as_size, self.shape)))

    @cached_property
    def digest(self) -> str:
        """The first 16 hex digits of `identity`, for texts."""
        return self.identity[:16]

    @cached_property
    def identity(self) -> str:
        """A hash of type and content, SHA-256 as hex digits."""
        content = hashlib.sha256(f"{self.dtype} {self.shape} ".encode())
        flat = numpy.ascontiguousarray(self.array).reshape(-1)
        content.update(
            flat.view(numpy.uint8).data
        )  # narrow types do not support the buffer protocol
        return content.hexdigest()

    def __repr__(self) -> str:
        return f"Constant({self.type})"


@dataclass(frozen=True)
class Node:
    """One operator applied to values; an omitted optional input is None.

    `source` is the node's origin, for errors and reports ('model.onnx: /layer.0/MatMul'). Attribute
    values are numbers, strings, Size, DType, Group, Region, and tuples of these. `device` is the
    program's name of the device it runs on, '' the host; a node that holds graphs is on the host,
    and their nodes have devices of their own.
    """

    operator: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    attributes: FrozenMapping[str, Any] = field(default_factory=FrozenMapping)
    source: str = ""
    device: str = ""

    def __post_init__(self) -> None:
        attributes = self.attributes
        if not isinstance(attributes, FrozenMapping):
            frozen = FrozenMapping({k: freeze_value(v) for k, v in attributes.items()})
            object.__setattr__(self, "attributes", frozen)

    @property
    def given(self) -> tuple[str, ...]:
        """The inputs that are given, in order."""
        return tuple(name for name in self.inputs if name is not None)

    @property
    def group(self) -> Group:
        """The comprehensions of a 'fused' node."""
        group = self.attributes["group"]
        assert isinstance(group, Group)
        return group

    @property
    def region(self) -> Region | None:
        """The record of a node that holds graphs or finds dims; None for the others."""
        region = self.attributes.get(REGION)
        return region if isinstance(region, _REGIONS) else None

    def where(self) -> str:
        """Name of this node in errors."""
        name = self.source or (*self.outputs, *self.given, "")[0]
        return f"node '{name}' ({self.operator})"


@dataclass(frozen=True)
class Graph:
    """A computation: inputs, constants, nodes in definition-before-use order, outputs.

    The dims of the box are determined by the shapes of the inputs or by nodes; in a graph that a
    node holds, also by the enclosing graph. `lists` names the inputs and outputs that users see as
    lists of arrays.
    """

    name: str
    box: Box
    types: FrozenMapping[str, TensorType]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: FrozenMapping[str, Constant] = field(default_factory=FrozenMapping)
    nodes: tuple[Node, ...] = ()
    guards: tuple[Guard, ...] = ()
    lists: Lists = field(default_factory=FrozenMapping)

    def __post_init__(self) -> None:
        object.__setattr__(self, "types", freeze(self.types))
        object.__setattr__(self, "lists", freeze(self.lists))
        object.__setattr__(self, "constants", freeze(self.constants))

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """The node that makes each value; inputs and constants have none."""
        return {output: node for node in self.nodes for output in node.outputs}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes that read each value, in order, each once."""
        readers: dict[str, dict[int, Node]] = {}
        for position, node in enumerate(self.nodes):
            for name in node.given:
                readers.setdefault(name, {})[position] = node
        return {name: tuple(nodes.values()) for name, nodes in readers.items()}

    def replace(self, **changes: Any) -> Graph:
        """This graph with other fields."""
        return replace(self, **changes)

    @cached_property
    def has_regions(self) -> bool:
        """Whether a node holds graphs or finds dims."""
        return any(node.region is not None for node in self.nodes)

    @cached_property
    def origins(self) -> Origins:
        """The origins of the dims that its nodes use."""
        return origins(self)

    def pruned(self, dims: frozenset[str] = frozenset()) -> Graph:
        """Remove the nodes, constants, types and found dims that are not needed.

        Args:
            dims: Found dims that are needed outside of the graph.
        """
        return pruned(self, dims)
