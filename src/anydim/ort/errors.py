"""The exceptions of `onnxruntime.capi.onnxruntime_pybind11_state`, and which of ours becomes which.

Their texts begin as onnxruntime's do, `[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : `, for programs
that look there. What Python code of onnxruntime raises as ValueError, TypeError or RuntimeError is
one here as well.
"""

from __future__ import annotations

from typing import ClassVar

from anydim.base.errors import InputError, OutOfMemoryError, UserError


class OrtError(UserError):
    """What the exceptions of onnxruntime have in common here; there they have nothing."""

    code: ClassVar[int] = 1
    word: ClassVar[str] = "FAIL"

    def __init__(self, problem: str, hint: str = "") -> None:
        begin = f"[ONNXRuntimeError] : {self.code} : {self.word} : "
        self.text = problem.removeprefix(begin)  # as bindings say it
        super().__init__(problem if problem.startswith("[ONNX") else begin + problem, hint)


class Fail(OrtError):
    """Anything that has no exception of its own."""


class InvalidArgument(OrtError):
    """An input does not fit: its name, type, rank or size; or a value that an operator refuses."""

    code, word = 2, "INVALID_ARGUMENT"


class NoSuchFile(OrtError):
    """The path of a model leads nowhere."""

    code, word = 3, "NO_SUCHFILE"


class NoModel(OrtError):
    """There is no model to load."""

    code, word = 4, "NO_MODEL"


class EngineError(OrtError):
    """The engine failed."""

    code, word = 5, "ENGINE_ERROR"


class RuntimeException(OrtError):
    """A run failed for what is no fault of its inputs, such as memory that there is not."""

    code, word = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(OrtError):
    """A file is no ONNX model, or not whole."""

    code, word = 7, "INVALID_PROTOBUF"


class ModelLoaded(OrtError):
    """A model is loaded already."""

    code, word = 8, "MODEL_LOADED"


class Unimplemented(OrtError):
    """A valid model that needs what there is not; called NotImplemented as in onnxruntime."""

    code, word = 9, "NOT_IMPLEMENTED"


Unimplemented.__name__ = Unimplemented.__qualname__ = "NotImplemented"


class InvalidGraph(OrtError):
    """A model that breaks the rules of the standard."""

    code, word = 10, "INVALID_GRAPH"


class EPFail(OrtError):
    """An execution provider failed."""

    code, word = 11, "EP_FAIL"


class ModelLoadCanceled(OrtError):
    """Loading was ended by the program."""

    code, word = 12, "MODEL_LOAD_CANCELED"


class ModelRequiresCompilation(OrtError):
    """A model that an execution provider has to compile first."""

    code, word = 13, "MODEL_REQUIRES_COMPILATION"


class NotFound(OrtError):
    """Something that was asked for by name is not there."""

    code, word = 14, "NOT_FOUND"


class DeviceReset(OrtError):
    """A device was reset."""

    code, word = 15, "DEVICE_RESET"


class ValueRefused(UserError, ValueError):
    """What onnxruntime's Python code says as ValueError."""


class TypeRefused(UserError, TypeError):
    """What onnxruntime's Python code says as TypeError."""


class ObjectRefused(UserError, RuntimeError):
    """What onnxruntime says as RuntimeError: an object that is no tensor, a binding that fails."""


EXCEPTIONS: tuple[type[OrtError], ...] = (
    DeviceReset, EPFail, EngineError, Fail, InvalidArgument, InvalidGraph, InvalidProtobuf,
    ModelLoadCanceled, ModelLoaded, ModelRequiresCompilation, NoModel, NoSuchFile, NotFound,
    RuntimeException, Unimplemented,
)  # fmt: skip
_BY_NAME = {kind.__name__: kind for kind in EXCEPTIONS}


def of_run(error: UserError) -> OrtError:
    """The exception for what a call of a model raises."""
    if isinstance(error, OutOfMemoryError):
        kind: type[OrtError] = RuntimeException
    elif isinstance(error, InputError):
        kind = InvalidArgument
    else:
        kind = Fail
    return kind(error.problem, error.hint)


def of_peer(error: Exception) -> Exception:
    """Our exception of the same name for one of the installed onnxruntime; others as they are."""
    kind = _BY_NAME.get(type(error).__name__)
    return error if kind is None else kind(str(error))
