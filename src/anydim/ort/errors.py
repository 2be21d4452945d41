"""The exceptions of `onnxruntime.capi.onnxruntime_pybind11_state`, and the mapping from ours.

Messages begin as onnxruntime's do, `[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : `, for programs
that parse them. Errors that onnxruntime's Python code raises as ValueError, TypeError or
RuntimeError are of these types here as well.
"""

from __future__ import annotations

from typing import ClassVar

from anydim.base.errors import InputError, OutOfMemoryError, UserError


class OrtError(UserError):
    """The base class of the exceptions; onnxruntime has none."""

    code: ClassVar[int] = 1
    status: ClassVar[str] = "FAIL"

    def __init__(self, problem: str, hint: str = "") -> None:
        begin = f"[ONNXRuntimeError] : {self.code} : {self.status} : "
        self.text = problem.removeprefix(begin)  # the message without the prefix, for bindings
        super().__init__(problem if problem.startswith("[ONNX") else begin + problem, hint)


class Fail(OrtError):
    """Any error without an exception of its own."""


class InvalidArgument(OrtError):
    """An input does not fit (name, type, rank or size), or an operator rejects a value."""

    code, status = 2, "INVALID_ARGUMENT"


class NoSuchFile(OrtError):
    """The path of a model does not exist."""

    code, status = 3, "NO_SUCHFILE"


class NoModel(OrtError):
    """There is no model to load."""

    code, status = 4, "NO_MODEL"


class EngineError(OrtError):
    """The engine failed."""

    code, status = 5, "ENGINE_ERROR"


class RuntimeException(OrtError):
    """A run failed for a reason other than its inputs, such as lack of memory."""

    code, status = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(OrtError):
    """A file is no ONNX model, or is truncated."""

    code, status = 7, "INVALID_PROTOBUF"


class ModelLoaded(OrtError):
    """A model is loaded already."""

    code, status = 8, "MODEL_LOADED"


class Unimplemented(OrtError):
    """A valid model needs an unsupported feature; named NotImplemented as in onnxruntime."""

    code, status = 9, "NOT_IMPLEMENTED"


Unimplemented.__name__ = Unimplemented.__qualname__ = "NotImplemented"


class InvalidGraph(OrtError):
    """A model violates the standard."""

    code, status = 10, "INVALID_GRAPH"


class EPFail(OrtError):
    """An execution provider failed."""

    code, status = 11, "EP_FAIL"


class ModelLoadCanceled(OrtError):
    """The program canceled loading."""

    code, status = 12, "MODEL_LOAD_CANCELED"


class ModelRequiresCompilation(OrtError):
    """A model needs to be compiled by an execution provider first."""

    code, status = 13, "MODEL_REQUIRES_COMPILATION"


class NotFound(OrtError):
    """A requested name does not exist."""

    code, status = 14, "NOT_FOUND"


class DeviceReset(OrtError):
    """A device was reset."""

    code, status = 15, "DEVICE_RESET"


class ValueRefused(UserError, ValueError):
    """An error that onnxruntime's Python code raises as ValueError."""


class TypeRefused(UserError, TypeError):
    """An error that onnxruntime's Python code raises as TypeError."""


class ObjectRefused(UserError, RuntimeError):
    """An error that onnxruntime raises as RuntimeError, as for an object that is no tensor."""


EXCEPTIONS: tuple[type[OrtError], ...] = (
    DeviceReset, EPFail, EngineError, Fail, InvalidArgument, InvalidGraph, InvalidProtobuf,
    ModelLoadCanceled, ModelLoaded, ModelRequiresCompilation, NoModel, NoSuchFile, NotFound,
    RuntimeException, Unimplemented,
)  # fmt: skip
_BY_NAME = {kind.__name__: kind for kind in EXCEPTIONS}


def of_run(error: UserError) -> OrtError:
    """The exception for an error of a model's call."""
    if isinstance(error, OutOfMemoryError):
        kind: type[OrtError] = RuntimeException
    elif isinstance(error, InputError):
        kind = InvalidArgument
    else:
        kind = Fail
    return kind(error.problem, error.hint)


def of_peer(error: Exception) -> Exception:
    """Our exception of the same name for one of the installed onnxruntime; others are unchanged."""
    kind = _BY_NAME.get(type(error).__name__)
    return error if kind is None else kind(str(error))
