"""Nodes that hold graphs: branches, loops and calls; and dims with data-dependent values.

    sizes    (v)                     v, int64 [n] or a scalar, holds the values of dims
    branch   (condition?, given...)  one of two graphs
    loop     (condition?, carried..., initial..., given...)   a graph, iteration after iteration
    call     (given...)              a graph
    part     (x)                     contiguous elements of x, which are not copied
    foreign  (given...)              an ONNX model that an engine runs

The node's attribute 'region' is one of the records below; a node's inputs and outputs correspond to
those of the held graph by position. In a held graph, a dim with the name of a dim known at the node
is that dim. Its other dims are determined by the shapes of its inputs, or by its nodes.

A dim in the type of a result that is not known before is determined by the result's shape; known
sizes must match the declaration. A stacked result without iterations does not determine the sizes
of its slices: they are the lower bounds of their dims.

A sequence of tensors is not a type of its own but two values, its concatenated elements and their
shapes; `Graph.lists` names the inputs and outputs that users see as sequences.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from anydim.base.records import dataclass
from anydim.sizes import Size
from anydim.sizes.guard import Guard

if TYPE_CHECKING:  # nodes hold regions, and regions graphs of nodes
    from anydim.compiler.graph.nodes import Graph

SIZES, BRANCH, LOOP, CALL = "sizes", "branch", "loop", "call"
PART, FOREIGN = "part", "foreign"
FALLBACK = "onnxruntime"  # the engine for nodes that cannot be imported, if the user allows it
REGION = "region"  # name of the attribute


@dataclass(frozen=True)
class Sizes:
    """Dims that take the elements of the node's one input as values.

    With `row`, the input is a table, int64 [rows, n], and they take those of this row. They are
    dims of the graph's box: bounds and constraints on them are checked when the node runs; a value
    out of bounds raises an InputError that names the node.
    """

    dims: tuple[str, ...]
    row: Size | None = None

    @property
    def held(self) -> Mapping[str, Graph]:
        """The graphs that this record holds, by field name."""
        return {}


@dataclass(frozen=True)
class PartRegion:
    """The elements of the result: those of the node's input from row-major index `first` on.

    The result is another view of the same memory: a loop that makes a part of a stacked result from
    the same part of its earlier contents can write it in place (`passes/in_place.py`).
    """

    first: Size

    @property
    def held(self) -> Mapping[str, Graph]:
        """It holds no graphs."""
        return {}


@dataclass(frozen=True)
class BranchRegion:
    """`then` or `otherwise`; both take the given inputs and make the node's results.

    The condition is the node's first input, a bool scalar, or a relation between sizes.
    """

    then: Graph
    otherwise: Graph
    condition: Guard | None = None

    @property
    def held(self) -> Mapping[str, Graph]:
        return {"then": self.then, "otherwise": self.otherwise}


@dataclass(frozen=True)
class Scan:
    """How a result of every iteration is stored: as one slice of a tensor along a new first axis.

    Iteration number `counter` writes slice `position`, a size expression over the counter. `extent`
    is the number of slices; None: one per iteration, in order. With `history`, the body reads the
    current tensor: one of its inputs is the whole of it, [extent, slice...]; slices that are not
    written yet are undefined. With `initial`, an input of the node, after the carried values, holds
    the tensor's contents before the first iteration.

    With `joined`, a result is not one slice but a tensor of any length, stored from index
    `position` of the first axis on: results are concatenated, or replace parts of what `initial`
    holds. `position` may use the dims of the body; `extent` is the total length.
    """

    position: Size
    extent: Size | None = None
    history: bool = False
    initial: bool = False
    joined: bool = False


@dataclass(frozen=True)
class LoopRegion:
    """A graph that runs in iterations.

    Inputs of the body: `carried` values, then the histories of scans that have one, then the
    loop-invariant inputs. Its results: the condition for a next iteration (a bool scalar) when
    `conditional`, the carried values for it, then a slice for each of `scans`. `counter` is a dim
    of the body: 0, 1, 2, ... `trips` is the maximum number of iterations (negative: none); None: no
    limit. A `conditional` node has the condition for the first iteration as its first input.
    Carried values may change sizes between iterations, where their types in the body have dims of
    their own. Results of the node: the carried values after the last iteration, then the scans.
    """

    body: Graph
    counter: str
    trips: Size | None
    conditional: bool
    carried: int
    scans: tuple[Scan, ...] = ()

    @property
    def held(self) -> Mapping[str, Graph]:
        return {"body": self.body}

    @property
    def initials(self) -> int:
        """Number of node inputs with initial contents of stacked results."""
        return sum(scan.initial for scan in self.scans)

    @property
    def histories(self) -> int:
        """Number of body inputs that are current stacked results."""
        return sum(scan.history for scan in self.scans)


@dataclass(frozen=True)
class CallRegion:
    """A graph used as a function; equal ones are compiled once."""

    body: Graph

    @property
    def held(self) -> Mapping[str, Graph]:
        return {"body": self.body}


@dataclass(frozen=True)
class Foreign:
    """A node for another engine: an ONNX model, with names for the node's inputs and results.

    `operator` is its operator there, with a domain unless that is the standard one, and `why` the
    reason that it is not a native node.
    """

    engine: str
    model: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operator: str = ""
    why: str = ""

    @property
    def held(self) -> Mapping[str, Graph]:
        """It holds no graphs."""
        return {}

    def __repr__(self) -> str:
        return f"Foreign({self.engine}: {self.operator}, {len(self.model)} bytes)"


Region: TypeAlias = Sizes | PartRegion | BranchRegion | LoopRegion | CallRegion | Foreign
