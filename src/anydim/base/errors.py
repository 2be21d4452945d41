"""The two kinds of failure: user errors (UserError and subclasses) and bugs (InternalError).

A user error says where, what was expected, what was given, and what to do.
"""

from __future__ import annotations


class AnydimError(Exception):
    """The base class of the exceptions that anydim raises on purpose.

    `problem` is one line with location and cause; `hint` says what to do, on a separate line.
    """

    def __init__(self, problem: str, hint: str = "") -> None:
        self.problem = problem
        self.hint = hint
        super().__init__(f"{problem}\n  {hint}" if hint else problem)


class UserError(AnydimError):
    """An error that the caller can fix: an input, a model, a program text, an option."""


class InputError(UserError):
    """An argument of a call does not fit: missing, extra, wrong dtype, wrong rank."""


class DimError(InputError):
    """A size is outside its bounds, or two inputs disagree on a dim."""


class OutOfMemoryError(InputError, MemoryError):
    """The system lacks the memory that a call needs at its sizes. Other calls continue."""


class DeviceError(UserError):
    """A device failed, or there is none of that name; includes the driver's text."""


class DeviceMemoryError(DeviceError, OutOfMemoryError):
    """A device lacks the memory that a call needs at its sizes."""


class TimeLimitError(UserError, TimeoutError):
    """A call exceeded its time limit. Later calls work."""


class BusyError(UserError):
    """All arenas are in use, and no call ended in time."""


class ModelError(UserError):
    """A model file cannot be read, is invalid, or needs an unsupported feature."""


class ArtefactError(ModelError):
    """A saved model cannot be read or run here: damaged, of another version, for other machines."""


class LanguageError(UserError):
    """A program text is wrong; the message points at line and column."""


class GraphError(UserError):
    """A graph built by hand is not well formed."""


class OptionError(UserError):
    """An option has a value that cannot be used."""


class ArgumentError(OptionError, TypeError):
    """A call has an unknown, a missing, or too many arguments."""


class MemoryLimitError(UserError):
    """A model, or a call at its sizes, needs more memory than its limit."""


class MissingError(UserError, ImportError):
    """A required package is not installed."""


class InternalError(AnydimError):
    """A bug of anydim. The hint says what a bug report needs (`reports.py`)."""
