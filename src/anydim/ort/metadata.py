"""A session's description of its model: names, types and shapes as onnxruntime writes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Any

from anydim.base.onnx_notation import ELEMENT_TYPES, type_name, type_text
from anydim.base.records import dataclass
from anydim.runtime.lists import Listed
from anydim.runtime.program.callable_program import CallableProgram
from anydim.runtime.signature import TensorSpec

Axis = int | str | None
_LATEST = 9223372036854775807  # onnxruntime's version of a model that declares none


@dataclass(frozen=True)
class NodeArg:
    """An input or output: `type` such as 'tensor(float)'; `shape` of numbers, names and None.

    The shape is empty for a scalar, and if the file declares none.
    """

    name: str
    type: str
    shape: list[Axis]

    def __repr__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"

    __str__ = __repr__


@dataclass(frozen=True)
class ModelMetadata:
    """The metadata that the producer of a file wrote."""

    custom_metadata_map: dict[str, str] = field(default_factory=dict)
    description: str = ""
    domain: str = ""
    graph_description: str = ""
    graph_name: str = ""
    producer_name: str = ""
    version: int = _LATEST


def metadata_of(proto: Any) -> ModelMetadata:
    """The metadata of a ModelProto."""
    return ModelMetadata(
        {entry.key: entry.value for entry in proto.metadata_props}, proto.doc_string, proto.domain,
        proto.graph.doc_string, proto.graph.name, proto.producer_name,
        proto.model_version if proto.HasField("model_version") else _LATEST,
    )  # fmt: skip


def arg_of(value: Any) -> NodeArg:
    """An input or output of a file, from its ValueInfoProto."""
    return NodeArg(value.name, type_text(value.type), _shape(value.type))


def _shape(kind: Any) -> list[Axis]:
    return [
        axis.dim_value if axis.HasField("dim_value") and axis.dim_value >= 0
        else axis.dim_param or None
        for axis in kind.tensor_type.shape.dim
    ]  # fmt: skip


def args_of(model: CallableProgram, specs: Iterable[TensorSpec]) -> list[NodeArg]:
    """The inputs or outputs of a compiled model; a list that takes two values counts as one."""
    lists = {name: each for name, each in model.lists.items() if isinstance(each, Listed)}
    of = {parts.elements: name for name, parts in lists.items()}
    hidden = {parts.shapes for parts in lists.values()}
    args = []
    for spec in specs:
        if spec.key in of:
            parts, kind = lists[of[spec.key]], f"tensor({_name(spec)})"
            if not parts.single:
                kind = f"{'optional' if parts.optional else 'seq'}({kind})"
            args.append(NodeArg(of[spec.key], kind, []))
        elif spec.key not in hidden:
            args.append(_arg_of_spec(spec))
    return args


def _name(spec: TensorSpec) -> str:
    return type_name(element_of_spec(spec))


def element_of_spec(spec: TensorSpec) -> int:
    """The number of an element type in ONNX."""
    return next(number for number, dtype in ELEMENT_TYPES.items() if dtype == spec.dtype)


def _arg_of_spec(spec: TensorSpec) -> NodeArg:
    shape: list[Axis] = []
    for size in spec.shape:
        name = str(size) if size.symbols == {str(size)} else None
        shape.append(name if size.constant is None else size.constant)
    return NodeArg(spec.key, f"tensor({_name(spec)})", shape)


def complete_outputs(declared: Iterable[NodeArg], model: CallableProgram | None) -> list[NodeArg]:
    """Outputs as the file declares them; missing parts come from the compiled model."""
    found = {} if model is None else {arg.name: arg for arg in args_of(model, model.outputs)}
    return [found.get(arg.name, arg) if not arg.type or not arg.shape else arg for arg in declared]
