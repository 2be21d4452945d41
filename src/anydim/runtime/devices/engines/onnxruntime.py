"""onnxruntime's CPU provider as an engine: inputs and results are bound in place."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from anydim.base import settings
from anydim.base.dtypes import DType
from anydim.base.peer import peer_module
from anydim.base.records import dataclass
from anydim.runtime.delegated import Port
from anydim.runtime.devices.engines.engine import Engine, EnginePart, EngineResult, Tensor

_PROVIDERS = ["CPUExecutionProvider"]
_QUIET = 4  # fatal only: errors are raised, and need not be logged
_CODES = {"bfloat16": 16, "float8_e4m3fn": 17, "float8_e4m3fnuz": 18, "float8_e5m2": 19,
          "float8_e5m2fnuz": 20}  # fmt: skip
"""Of types that numpy lacks, the numbers that ONNX has for them."""


_NAMES = {
    "float": "float32", "double": "float64", "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz", "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
}  # fmt: skip
"""Element types that it calls otherwise."""


_CRASHING = frozenset((
    "Conv", "ConvInteger", "ConvTranspose", "QLinearConv", "DeformConv", "MaxPool", "AveragePool",
    "LpPool", "MaxUnpool", "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool", "RNN", "GRU",
    "LSTM", "Resize", "RoiAlign", "MaxRoiPool", "GridSample", "STFT", "DFT",
))  # fmt: skip


def may_crash(operator: str) -> bool:
    """Whether an operator may abort the process on an empty tensor.

    Unknown, hence True, for operators outside the standard, 'domain.name'.
    """
    return "." in operator or operator in _CRASHING


class OnnxRuntime(Engine):
    """The installed onnxruntime."""

    name = "onnxruntime"

    def __init__(self) -> None:
        """Raises MissingError if it is not installed."""
        self.module: ModuleType = peer_module()

    def version(self) -> str:
        """The installed version."""
        return str(self.module.__version__)

    def holds(self, dtype: DType) -> bool:
        """All types with elements of whole bytes, except for the narrowest floats."""
        return dtype.is_native or dtype.name in _CODES

    def session(self, model: bytes, threads: int, optimised: bool = True) -> Any:
        """Return a session for a model; exceptions of onnxruntime propagate."""
        options = self.module.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _QUIET
        if not optimised:
            level = self.module.GraphOptimizationLevel
            options.graph_optimization_level = level.ORT_DISABLE_ALL
        for library in filter(None, settings.onnxruntime_libraries.split(":")):
            options.register_custom_ops_library(library)
        return self.module.InferenceSession(model, options, providers=_PROVIDERS)

    def _check(self, model: bytes) -> None:
        self.session(model, 1, optimised=False)

    def _load(
        self, model: bytes, inputs: Sequence[Port], outputs: Sequence[Port], threads: int
    ) -> EnginePart:
        return _Session(self.session(model, threads), inputs, outputs)

    def results(self, model: bytes) -> list[InferredResult]:
        """Return its inferred results of a model; raises DeviceError if it rejects the model."""
        session = self.converting_errors("check", lambda: self.session(model, 1, optimised=False))
        return [InferredResult.of(result.type, result.shape) for result in session.get_outputs()]


@dataclass(frozen=True)
class InferredResult:
    """A result as inferred by onnxruntime before a run: its type, and a number, a name or None per
    size.

    Scalars and unknown results have no sizes. `dtype` is '' unless it is a tensor of numbers.
    """

    text: str
    dtype: str
    shape: tuple[int | str | None, ...]

    @staticmethod
    def of(text: str, shape: Any) -> InferredResult:
        """Parse onnxruntime's description: 'tensor(float)', ['n', 4]."""
        inner = text.removeprefix("tensor(").removesuffix(")")
        dtype = _NAMES.get(inner, inner) if text.startswith("tensor(") else ""
        return InferredResult(text, dtype, tuple(shape or ()))


class _Session(EnginePart):
    """A session with a binding per thread."""

    def __init__(self, session: Any, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
        self._session = session
        self._inputs = [(port.name, element(port.dtype)) for port in inputs]
        self._outputs = [(port.name, element(port.dtype)) for port in outputs]
        self._own = threading.local()

    def run(
        self, inputs: Sequence[Tensor], outputs: Sequence[Tensor | None]
    ) -> Sequence[EngineResult | None]:
        """Run it on bound memory, without copies."""
        binding = self._binding()
        for (name, kind), tensor in zip(self._inputs, inputs):
            binding.bind_input(name, "cpu", 0, kind, tensor.shape, tensor.address)
        for (name, kind), wanted in zip(self._outputs, outputs):
            if wanted is None:
                binding.bind_output(name, "cpu")
            else:
                binding.bind_output(name, "cpu", 0, kind, wanted.shape, wanted.address)
        try:
            self._session.run_with_iobinding(binding)
        except BaseException:
            self._own.binding = None  # its contents are from a failed run
            raise
        if all(outputs):
            return [None] * len(outputs)
        made = [
            None
            if wanted is not None
            else EngineResult(value.data_ptr(), tuple(value.shape()), value)
            for wanted, value in zip(outputs, binding.get_outputs())
        ]
        binding.clear_binding_outputs()
        return made

    def _binding(self) -> Any:
        found = getattr(self._own, "binding", None)
        if found is None:
            found = self._own.binding = self._session.io_binding()
        return found


def element(dtype: DType) -> Any:
    """Return onnxruntime's name of an element type."""
    return _CODES.get(dtype.name, dtype.numpy.type)
