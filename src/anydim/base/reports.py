"""Conversion of unexpected exceptions to InternalErrors with a report.

    @report_unexpected
    def compile(source, progress): ...       # an AssertionError inside: an InternalError

User errors, warnings as errors and MemoryErrors pass unchanged, and so do exceptions of user
functions, which `theirs` marks.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

from anydim.base.errors import AnydimError, InternalError

_PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_MARK = "_anydim_theirs"
_PASSED = (AnydimError, MemoryError, Warning)

Known = TypeVar("Known", bound=Callable[..., Any])


def caller_level() -> int:
    """The `stacklevel` of a warning for the first caller outside of the package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    return level


def report_unexpected(known: Known) -> Known:
    """Wrap a function, or a class's public methods, to convert unexpected exceptions.

    The wrapper raises InternalError with the exception as its cause.
    """
    if not isinstance(known, type):
        return _wrap(known)
    for name, value in list(vars(known).items()):
        if isinstance(value, FunctionType) and not name.startswith("_"):
            setattr(known, name, _wrap(value))
    return known


def user_callback(function: Any) -> Any:
    """Wrap a user function: its exceptions are not bugs of anydim."""
    if not callable(function):
        return function

    @wraps(function)
    def call(*values: Any, **named: Any) -> Any:
        try:
            return function(*values, **named)
        except Exception as error:
            with contextlib.suppress(AttributeError, TypeError):  # it may not accept attributes
                setattr(error, _MARK, True)
            raise

    return call


def internal(error: Exception) -> InternalError:
    """The InternalError for an exception, with a report; raise it `from` the exception."""
    if isinstance(error, InternalError):
        if not error.hint:
            error.__init__(error.problem, _hint())  # type: ignore[misc]
        return error
    first = str(error).strip().split("\n")[0]
    text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return InternalError(f"{text} ({_where(error)})", _hint())


def report(error: Exception, command: str = "") -> str:
    """The content of a bug report: versions, the command if any, all tracebacks."""
    import traceback

    lines = (_versions(), _platform(), command, "", *traceback.format_exception(error))
    return "\n".join(lines)


def _wrap(function: Any) -> Any:
    @wraps(function)
    def call(*values: Any, **named: Any) -> Any:
        try:
            return function(*values, **named)
        except InternalError as error:
            internal(error)
            raise
        except _PASSED:
            raise
        except Exception as error:
            if getattr(error, _MARK, False):
                raise
            raise internal(error) from error

    return call


def _where(error: Exception) -> str:
    """File, line and function of the package that raised the exception."""
    import traceback  # 1 ms, with `platform`, that a process without a bug saves

    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(_PACKAGE + os.sep)]
    if not own:
        return "outside of anydim"
    last = own[-1]
    path = os.path.relpath(last.filename, _PACKAGE).replace(os.sep, "/")
    return f"{path}:{last.lineno}, {last.name}"


def _hint() -> str:
    return (
        f"a bug of anydim: please report it with this text and the model ({_versions()},"
        f" {_platform()}); fallback='onnxruntime' runs an ONNX model meanwhile"
    )


def _versions() -> str:
    package = sys.modules.get("anydim")
    number = getattr(package, "__version__", "of unknown version")
    return f"anydim {number}, Python {'.'.join(map(str, sys.version_info[:3]))}"


def _platform() -> str:
    try:
        import platform

        return platform.platform()
    except OSError:  # no file can be opened, and no process started
        return sys.platform
