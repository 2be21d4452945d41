"""A subgraph -> an ONNX model with dynamic sizes, and its inputs and outputs.

Values get short names in order of first use: equal subgraphs give equal models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.passes.delegate.onnx_operators import ROWS
from anydim.compiler.passes.delegate.onnx_writer import (
    CODES,
    OPSET,
    Call,
    Refused,
    Writer,
    tensor,
)
from anydim.lang.tree import TensorType
from anydim.runtime.delegated import Port
from anydim.sizes import Size

IR_VERSION = 10
_MAX_BYTES = (1 << 31) - (1 << 20)  # limit of an ONNX model


@dataclass(frozen=True)
class Exported:
    """An ONNX model, the ports of the graph's inputs and outputs, and its size vectors."""

    model: bytes
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    vectors: tuple[tuple[str, tuple[Size, ...]], ...]


def export_model(graph: Graph, named: bool = True) -> Exported:
    """Export a subgraph. Raises Refused for a node that ONNX cannot express, OptionError for too
    many weights. `named`: nodes have their names, for the errors of engines."""
    names = {name: f"v{number}" for number, name in enumerate(_values(graph))}
    writer = Writer(graph, names)
    for node in graph.nodes:
        first = len(writer.nodes)
        _row(node)(Call(writer, node))
        for number, made in enumerate(writer.nodes[first:] if named else ()):
            made.name = f"{node.outputs[0]}: {node.source}{f' {number}' if number else ''}"
    held = {name: graph.constants[name] for name in graph.constants if name in names}
    bytes = sum(constant.nbytes for constant in held.values())
    if bytes > _MAX_BYTES:
        raise OptionError(
            f"{graph.name}: a part for an engine has {bytes} bytes of weights, and an ONNX model"
            f" at most {_MAX_BYTES}",
            "delegate fewer nodes at a time",
        )
    onnx = writer.onnx
    kept = [tensor(onnx, names[name], constant.array) for name, constant in held.items()]
    inputs = [_value(onnx, names[name], graph.types[name]) for name in graph.inputs]
    inputs += [_vector(onnx, name, len(sizes)) for sizes, name in writer.vectors.items()]
    outputs = [_value(onnx, names[name], graph.types[name]) for name in graph.outputs]
    made = onnx.helper.make_graph(
        writer.nodes, "part", inputs, outputs, [*kept, *writer.constants.values()]
    )
    model = onnx.helper.make_model(
        made, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    return Exported(
        model.SerializeToString(deterministic=True), ports(graph, graph.inputs, names),
        ports(graph, graph.outputs, names), tuple((n, s) for s, n in writer.vectors.items()),
    )  # fmt: skip


def ports(graph: Graph, values: Iterable[str], names: Mapping[str, str]) -> tuple[Port, ...]:
    """The ports of some values of a graph."""
    kinds = graph.types
    return tuple(Port(names[name], kinds[name].dtype, kinds[name].rank) for name in values)


def _row(node: Node) -> Any:
    if node.operator == FUSED:
        raise Refused("user definitions have no ONNX operator")
    if node.operator not in ROWS:
        raise Refused(f"there is no ONNX operator for '{node.operator}'")
    return ROWS[node.operator]


def _values(graph: Graph) -> list[str]:
    """The values in order of first use."""
    read = (name for node in graph.nodes for name in (*node.given, *node.outputs))
    return list(dict.fromkeys((*graph.inputs, *read)))


def _value(onnx: Any, name: str, kind: TensorType) -> Any:
    if kind.dtype.name not in CODES or (kind.dtype.stored and kind.dtype.bits < 8):
        raise Refused(f"a value of type {kind.dtype} is an input or output")
    shape: Sequence[Any] = [_size(size) for size in kind.shape]
    return onnx.helper.make_tensor_value_info(name, CODES[kind.dtype.name], shape)


def _size(size: Size) -> int | str | None:
    """The declaration of a size: a number, the name of a dim, or None for any."""
    if size.constant is not None:
        return size.constant
    text = str(size)
    return text if size.symbols == {text} else None


def _vector(onnx: Any, name: str, count: int) -> Any:
    return onnx.helper.make_tensor_value_info(name, CODES["int64"], [count])
