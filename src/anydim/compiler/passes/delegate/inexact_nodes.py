"""Nodes on which an engine deviates from the ONNX standard, as found by the operator tests.

OpenVINO's CPU plugin computes int64 as int32, float64 as float32, and 8-bit integers with
saturation: 2^40 + 1 gives 1, and 127 + 1 gives 127. So it gets floats and bools, small integers
that are only moved or converted, and int64 indices.
An index out of bounds gives 0 there: so it gets lookups with constant indices, or where it checks
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anydim.base.dtypes import DType
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.lang.tree import TensorType

_INDEXED = {"gather": (1,), "gather_elements": (1,), "gather_nd": (1,), "scatter_elements": (1,),
            "scatter_nd": (1,), "one_hot": (0,)}  # fmt: skip
"""Positions of index inputs."""
_UNCHECKED = ("gather", "gather_nd", "scatter_elements", "scatter_nd")
_POSITIONS = ("arg_max", "arg_min", "size_tensor")  # their int64 results are small
_BYTES = ("quantize", "dequantize", "matmul_integer", "conv_integer")
_KINDS = ("view", "movement", "index", "source")  # operators that move integers unchanged


def reason_of_deviation(engine: str, graph: Graph, node: Node) -> str:
    """The reason not to delegate a node that the engine would accept; '' if none."""
    return _ENGINES[engine](graph, node) if engine in _ENGINES else ""


def _openvino(graph: Graph, node: Node) -> str:
    if node.operator == FUSED:
        return ""
    indices = _INDEXED.get(node.operator, ())
    if node.operator in _UNCHECKED and any(node.given[n] not in graph.constants for n in indices):
        return "indices out of bounds are not errors there"
    kinds = [graph.types[name] for name in node.given]
    moved = [kind for number, kind in enumerate(kinds) if number not in indices]
    if node.operator not in _POSITIONS:
        moved += [graph.types[name] for name in node.outputs]
    for kind in moved:
        wide = _WIDE.get(kind.dtype.name)
        if wide:
            return f"it computes {kind.dtype} as {wide}"
    if node.operator in _BYTES:
        return ""
    odd = _odd(node, moved)
    return odd or _windows(node)


_WIDE = {"float64": "float32", "int64": "int32", "uint64": "int32", "uint32": "int32"}


def _odd(node: Node, moved: list[TensorType]) -> str:
    """The reason if the node does more with integers than move them; else ''."""
    integers = [kind.dtype for kind in moved if kind.dtype.is_integer]
    if not integers:
        return ""
    if node.operator == "pad" and len(node.given) > 1:
        return "it pads integers with 0 instead of the value"
    if operator(node.operator).kind in _KINDS or _to_float(node):
        return ""
    return f"it deviates from the standard for {integers[0]}"


def _to_float(node: Node) -> bool:
    to = node.attributes.get("to")
    return node.operator in ("cast", "identity") and (not isinstance(to, DType) or to.is_float)


def _windows(node: Node) -> str:
    given = operator(node.operator).complete(node.attributes)
    if given.get("ceil"):
        return "it deviates from the standard for windows past the end"
    return ""


_ENGINES: Mapping[str, Callable[[Graph, Node], str]] = {"openvino": _openvino}
