"""Nodes that hold graphs: branches, iterations and calls; and dims whose values data decides.

    sizes    (v)                     v, int64 [n] or a scalar, holds the values of dims
    branch   (condition?, given...)  one of two graphs
    loop     (condition?, carried..., initial..., given...)   a graph, iteration after iteration
    call     (given...)              a graph
    foreign  (given...)              an ONNX model that an engine runs

The node's attribute 'region' is one of the records below; a node's inputs and outputs stand for
those of the held graph by position. In a held graph a dim that has the name of a dim known where
the node stands is that dim. Its other dims are told by the shapes of its inputs, or found in it.

A dim in the type of a result that is known nowhere before is told by the shape that comes out;
sizes that are known must come out as declared. A stacked result of no iterations at all has nothing
to tell the sizes of its slices: they are the lower bounds of their dims.

A sequence of tensors is no type of its own but two values, its elements one after another and
their shapes; `Graph.sequences` says which inputs and outputs a user sees as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from anydim.base.records import dataclass
from anydim.sizes import Size
from anydim.sizes.guard import Guard

if TYPE_CHECKING:  # nodes hold regions, and regions graphs of nodes
    from anydim.graph.nodes import Graph

SIZES, BRANCH, LOOP, CALL, FOREIGN = "sizes", "branch", "loop", "call", "foreign"
FALLBACK = "onnxruntime"  # the engine that runs what cannot be imported, where the user allows it
REGION = "region"  # the attribute


@dataclass(frozen=True)
class Sizes:
    """Dims that take the elements of the node's one input as values.

    They are dims of the graph's box: bounds, and constraints that name them, are checked when the
    node runs; a value that does not fit is an InputError that names the node.
    """

    dims: tuple[str, ...]

    @property
    def held(self) -> Mapping[str, Graph]:
        """The graphs that this record holds, by the name of their field."""
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
    """How a result of every iteration is kept: as one slice of a tensor along a new first axis.

    Iteration number `counter` writes slice `position`, a size expression over the counter. `extent`
    is the number of slices; None: as many as there are iterations, each after the one before it.
    With `history`, the body reads the tensor as it stands: one of its inputs is the whole of it,
    [extent, slice...]; slices not yet written hold nothing a body may read. With `initial`, an
    input of the node, after the carried values, is what the tensor holds before the first
    iteration.
    """

    position: Size
    extent: Size | None = None
    history: bool = False
    initial: bool = False


@dataclass(frozen=True)
class LoopRegion:
    """A graph that runs iteration after iteration.

    Inputs of the body: `carried` values, then the histories of scans that have one, then what is
    given from outside, the same in every iteration. Its results: the condition for a next iteration
    (a bool scalar) when `conditional`, the carried values for it, then a slice for each of `scans`.
    `counter` is a dim of the body: 0, 1, 2, ... `trips` is the most iterations (below 0: none);
    None: no limit. A `conditional` node has the condition for the first iteration as its first
    input. Carried values may have other sizes in every iteration, where their types in the body
    have dims of their own. Results of the node: the carried values after the last iteration, then
    the scans.
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
        """How many inputs of the node hold what a stacked result starts from."""
        return sum(scan.initial for scan in self.scans)

    @property
    def histories(self) -> int:
        """How many inputs of the body are stacked results as they stand."""
        return sum(scan.history for scan in self.scans)


@dataclass(frozen=True)
class CallRegion:
    """A graph that stands for a function; equal ones are compiled once."""

    body: Graph

    @property
    def held(self) -> Mapping[str, Graph]:
        return {"body": self.body}


@dataclass(frozen=True)
class Foreign:
    """What another engine runs: an ONNX model, in which the node's inputs and results have names.

    `operator` is what it stands for there, with a domain before it unless that is the standard's,
    and `why` the reason that it is not a node of ours.
    """

    engine: str
    model: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operator: str = ""
    why: str = ""

    @property
    def held(self) -> Mapping[str, Graph]:
        """No graphs of ours."""
        return {}

    def __repr__(self) -> str:
        return f"Foreign({self.engine}: {self.operator}, {len(self.model)} bytes)"


Region: TypeAlias = Sizes | BranchRegion | LoopRegion | CallRegion | Foreign
