"""The inputs of a model: types, names of dims, lists and optional inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from anydim.base.dtypes import DType, int64
from anydim.base.errors import ModelError
from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.dims import DimNames, input_shapes
from anydim.compiler.frontends.onnx.file.tensors import Unsupported, element_type
from anydim.compiler.frontends.onnx.graphs.names import Names
from anydim.compiler.frontends.onnx.values.bindings import Binding, Broken, Maybe, Packed
from anydim.lang.tree import TensorType
from anydim.runtime.lists import Listed
from anydim.sizes import Dim, as_size


@dataclass
class Inputs:
    """Reads the inputs: values in order, and the lists among them."""

    names: Names
    values: list[str] = field(default_factory=list)
    lists: dict[str, Listed] = field(default_factory=dict)
    dims: DimNames = field(default_factory=lambda: DimNames(""))

    def read(self, proto: Any, dims: Mapping[str, Dim]) -> None:
        """Bind the inputs of a graph without initializers; creates the box of their dims."""
        constants = {tensor.name for tensor in proto.initializer}
        model = self.names.model.name
        self.dims = DimNames(model, dims)
        self.dims.read(input_shapes(proto))
        for value in proto.input:
            if value.name in constants:
                continue
            where = f"{model}: input '{value.name}'"
            try:
                self.names.held[value.name] = self.bind(value.name, value.type, where)
            except Unsupported as reason:
                self.names.held[value.name] = Broken()
                self.names.fail(value.name, "input", str(reason))
        self.names.emitter.box = self.dims.box()
        self.names.model.dims.update(self.dims.known)

    def bind(self, name: str, kind: Any, where: str) -> Binding:
        if kind.HasField("tensor_type"):
            return self.value(name, self.tensor(kind.tensor_type, name, where))
        if kind.HasField("sequence_type"):
            return self.listing(name, kind.sequence_type.elem_type, where, False)
        if kind.HasField("optional_type"):
            inner = kind.optional_type.elem_type
            if inner.HasField("sequence_type"):
                return Maybe(self.bind(name, inner, where))
            return Maybe(self.listing(name, inner, where, True), single=True)
        raise Unsupported("it is no tensor, sequence or optional")

    def value(self, name: str, kind: TensorType) -> str:
        self.names.emitter.types[name] = kind
        self.names.emitter.taken.add(name)
        self.values.append(name)
        return name

    def listing(self, name: str, kind: Any, where: str, optional: bool) -> Packed:
        """A list of tensors of one rank as two inputs."""
        if not kind.HasField("tensor_type"):
            raise Unsupported("its elements are no tensors")
        tensor = kind.tensor_type
        rank = len(tensor.shape.dim) if tensor.HasField("shape") else None
        total = self.dims.add(f"{name}_elements")
        count = self.dims.add(f"{name}_count", Dim(0, 1) if optional else Dim(0))
        # exporters also declare "no axes" for an unknown rank: the call decides
        axes = as_size(rank) if rank else self.dims.add(f"{name}_axes")
        elements = self.value(f"{name}.elements", TensorType(self.dtype(tensor), (total,)))
        shapes = self.value(f"{name}.shapes", TensorType(int64, (count, axes)))
        self.lists[name] = Listed(elements, shapes, optional)
        return Packed(elements, shapes, rank)

    def tensor(self, tensor: Any, name: str, where: str) -> TensorType:
        if not tensor.HasField("shape"):
            hint = f"give the number of its axes: dims={{'{name}': 3}}, --dim {name}=3"
            raise ModelError(f"{where} has no shape", hint)
        return TensorType(self.dtype(tensor), self.dims.shapes[name])

    def dtype(self, tensor: Any) -> DType:
        return element_type(tensor.elem_type)
