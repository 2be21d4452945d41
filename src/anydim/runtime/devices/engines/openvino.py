"""OpenVINO's CPU plugin as an engine: its tensors wrap the memory of the program."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy

from anydim.base.dtypes import DType
from anydim.base.errors import DeviceError, MissingError
from anydim.runtime.delegated import Port
from anydim.runtime.devices.engines.engine import Engine, EnginePart, EngineResult, Tensor, view

_CONFIG = {
    "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1,
    "INFERENCE_PRECISION_HINT": "f32",  # the default is bfloat16 on machines that have it
}  # fmt: skip
_TYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "int64": "i64",
    "int32": "i32", "int16": "i16", "int8": "i8", "uint64": "u64", "uint32": "u32",
    "uint16": "u16", "uint8": "u8", "bool": "boolean", "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2",
}  # fmt: skip


class OpenVino(Engine):
    """The installed OpenVINO."""

    name = "openvino"

    def __init__(self) -> None:
        """Raises MissingError if it is not installed."""
        try:
            self.module = importlib.import_module("openvino")
        except ImportError as error:
            raise MissingError(
                f"engine 'openvino' is not installed: {error}", "pip install anydim[openvino]"
            ) from None
        self._core = self.module.Core()

    def version(self) -> str:
        """The installed version."""
        return str(self.module.__version__)

    def holds(self, dtype: DType) -> bool:
        """The types that it has a name for."""
        return dtype.name in _TYPES

    def _check(self, model: bytes) -> None:
        read = self._core.read_model(model)
        taken = self._core.query_model(read, "CPU")
        missing = [each for each in read.get_ops() if each.get_friendly_name() not in taken]
        if missing:
            kinds = ", ".join(sorted({each.get_type_name() for each in missing}))
            raise RuntimeError(f"its CPU plugin has no {kinds}")

    def _load(
        self, model: bytes, inputs: Sequence[Port], outputs: Sequence[Port], threads: int
    ) -> EnginePart:
        read = self._core.read_model(model)
        compiled = self._core.compile_model(
            read, "CPU", {**_CONFIG, "INFERENCE_NUM_THREADS": threads}
        )
        return _Compiled(self.module, compiled, inputs, outputs)


class _Compiled(EnginePart):
    """A compiled model, with one request per concurrent run."""

    def __init__(
        self, module: Any, compiled: Any, inputs: Sequence[Port], outputs: Sequence[Port]
    ) -> None:
        self._module, self._compiled = module, compiled
        self._inputs = _port_numbers(compiled.inputs, inputs)
        self._outputs = [port.name for port in outputs]
        if len(compiled.outputs) != len(outputs):
            raise RuntimeError(f"{len(compiled.outputs)} outputs for {len(outputs)}")
        self._idle: list[Any] = []

    def run(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor | None]
    ) -> Sequence[EngineResult | None]:
        """Run it on tensors that wrap the program's memory."""
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._compiled.create_infer_request()
        for port, tensor in zip(self._inputs, inputs):
            if port is not None:
                request.set_input_tensor(port, self._tensor(tensor))
        for port, wanted in enumerate(outputs):
            if wanted is not None:
                request.set_output_tensor(port, self._tensor(wanted))
        request.infer()
        made = [self._result_of(request, port, wanted) for port, wanted in enumerate(outputs)]
        if all(outputs):
            self._idle.append(request)  # a request with referenced results is not reused
        return made

    def _result_of(self, request: Any, port: int, wanted: Tensor | None) -> EngineResult | None:
        tensor = request.get_output_tensor(port)
        shape = tuple(tensor.shape)
        if wanted is None:
            return EngineResult(tensor.data.ctypes.data, shape, (request, tensor))
        if shape in ((), (1,)) and wanted.shape in ((), (1,)):  # it may confuse these two
            if wanted.address != tensor.data.ctypes.data:
                view(wanted)[:] = tensor.data.reshape(-1).view(numpy.uint8)
            return None
        if shape != wanted.shape:
            raise DeviceError(
                f"output '{self._outputs[port]}' has shape {shape}, expected {wanted.shape}"
            )
        return None

    def _tensor(self, tensor: Tensor) -> Any:
        kind = getattr(self._module.Type, _TYPES[tensor.dtype.name])
        shape = self._module.Shape(list(tensor.shape))
        if tensor.bytes:
            return self._module.Tensor(view(tensor).view(_native(tensor)), shape, kind)
        return self._module.Tensor(kind, shape)


def _native(tensor: Tensor) -> numpy.dtype:
    """Return a numpy type with the same bytes that OpenVINO supports."""
    return tensor.dtype.numpy if tensor.dtype.is_native else numpy.dtype(f"u{tensor.dtype.bytes}")


def _port_numbers(known: Sequence[Any], ports: Sequence[Port]) -> list[int | None]:
    """Return the port numbers of a model's inputs by name; None for one that it does not read."""
    found = {name: port for port, each in enumerate(known) for name in each.get_names()}
    return [found.get(port.name) for port in ports]
