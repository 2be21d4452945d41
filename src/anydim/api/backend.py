"""The interface of onnx.backend: `prepare(model).run(inputs)`.

    from anydim.api.backend import Backend

    prepared = Backend.prepare(model, dims="free")      # every size of every input is a dim
    outputs = prepared.run([x, y])
    prepared.fixed                                      # axes that had to keep their size, and why

With `dims="static"` the sizes that the model declares are kept. `device="OPENCL:0"` places all
nodes on a device that supports them (docs/devices.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import onnx
from onnx.backend import base

from anydim.api.entry import compile
from anydim.api.model import Model
from anydim.base.errors import DeviceError, OptionError, UserError
from anydim.compiler.frontends.onnx.file.strings import StringsInside
from anydim.compiler.frontends.onnx.importer import import_model
from anydim.runtime.devices.table import driver_of

Axis = tuple[str, int]  # an input's name and an axis of it


class Prepared(base.BackendRep):
    """A compiled model; `fixed` has the axes of inputs that kept their size, and the reasons."""

    def __init__(self, model: Model, fixed: Mapping[Axis, str]) -> None:
        self.model = model
        self.fixed = fixed

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run with arrays in order, by name, or a single array; return outputs in order."""
        if isinstance(inputs, Mapping):
            inputs = [inputs[spec.name] for spec in self.model.inputs if spec.name in inputs]
        if isinstance(inputs, numpy.ndarray):
            inputs = [inputs]
        return tuple(self.model(*inputs).values())


class Backend(base.Backend):
    """anydim as a backend of the ONNX standard, on the CPU or a device of this machine."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the model can be imported."""
        return cls.supports_device(device) and not _problem(model)

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", *, dims: str = "static", threads: int = 1,
        **kwargs: Any,
    ) -> Prepared:  # fmt: skip
        """Compile a model. `dims` is 'free' or 'static'.

        Raises ModelError, OptionError, and DeviceError if a device does not support its part.
        """
        if not cls.supports_device(device):
            hint = "use 'CPU', or what `anydim devices` lists: 'OPENCL:0'"
            raise OptionError(f"there is no device '{device}'", hint)
        if dims not in ("free", "static"):
            raise OptionError(f"dims is {dims!r}", "give 'free' or 'static'")
        fixed: Mapping[Axis, str] = {}
        if dims == "free":
            model, fixed = free_dims_of_inputs(model)
        placed: dict[str, Any] = {}
        if not _is_host(device):
            placed = {"devices": {"accel": device.lower()}, "placement": {"*": "accel"}}
        return Prepared(compile(model, threads=threads, **placed), fixed)

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """The results of one node; `opset_version` defaults to the newest."""
        arrays = [numpy.asarray(array) for array in inputs]
        names = [name for name in node.input if name]
        declared = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in zip(names, arrays)
        ]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], node.name or node.op_type, declared, results)
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        versions = [onnx.helper.make_opsetid("", opset)]
        if node.domain:
            newest = onnx.helper.make_opsetid(node.domain, _newest(node.domain))
            versions.append(newest)
        model = onnx.helper.make_model(graph, opset_imports=versions)
        return cls.prepare(model, device, **kwargs).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether this machine has the device 'CPU' or, for example, 'OPENCL:1'."""
        if _is_host(device):
            return True
        try:
            driver, number = driver_of(device.lower())
            return number < len(driver.here())
        except DeviceError:
            return False


def _is_host(device: str) -> bool:
    return device.partition(":")[0].upper() == "CPU"


def _newest(domain: str) -> int:
    versions = [s.since_version for s in onnx.defs.get_all_schemas() if s.domain == domain]
    return max(versions, default=1)


prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
is_compatible = Backend.is_compatible
supports_device = Backend.supports_device


# ---- dims --------------------------------------------------------------------------------------


def free_dims_of_inputs(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[Axis, str]]:
    """The model with a separate dim for every axis of every input, as far as it can be imported.

    The second result has the reason for each axis that keeps its size: axes are freed in order, and
    an axis that makes the import fail keeps its declared size.
    """
    axes = [
        (value.name, axis)
        for value in _inputs(model)
        for axis in range(len(value.type.tensor_type.shape.dim))
    ]
    free = _with_dims(model, axes)
    if not axes or not _problem(free):
        return free, {}
    problem = _problem(model)
    if problem:
        return model, dict.fromkeys(axes, problem)
    fixed: dict[Axis, str] = {}
    chosen: list[Axis] = []
    for axis in axes:
        problem = _problem(_with_dims(model, [*chosen, axis]))
        if problem:
            fixed[axis] = problem
        else:
            chosen.append(axis)
    return _with_dims(model, chosen), fixed


def _problem(model: onnx.ModelProto) -> str:
    """The reason why a model cannot be imported; '' if it can."""
    try:
        import_model(model)
    except StringsInside:
        return _problem_of_parts(model)
    except UserError as error:
        return error.problem
    return ""


def _problem_of_parts(model: onnx.ModelProto) -> str:
    """The same for a model with strings, whose parts are only imported by a compilation."""
    try:
        compile(model)
    except UserError as error:
        return error.problem
    return ""


def _inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The tensors passed to a call."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [
        value
        for value in model.graph.input
        if value.name not in constants and value.type.HasField("tensor_type")
    ]


def _with_dims(model: onnx.ModelProto, axes: Sequence[Axis]) -> onnx.ModelProto:
    """A copy of the model in which these axes are dims named after input and axis."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in _inputs(copy):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if (value.name, axis) in axes:
                dim.dim_param = f"{value.name}_{axis}"
    return copy
