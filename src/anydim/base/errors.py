"""The two kinds of failure: user errors (UserError and subclasses) and bugs (InternalError).

A user error says where, what was expected, what was given, and what to do.
"""

from __future__ import annotations


class AnydimError(Exception):
    """Base class of all exceptions of anydim.

    Attributes:
        problem: One line with location and problem.
        hint: Advice, on its own line.
    """

    def __init__(self, problem: str, hint: str = "") -> None:
        self.problem = problem
        self.hint = hint
        super().__init__(f"{problem}\n  {hint}" if hint else problem)


class UserError(AnydimError):
    """An invalid input, model, program text or option."""


class InputError(UserError):
    """An argument of a call is missing, unknown, or has a wrong dtype, rank or value."""


class DimError(InputError):
    """A size is out of bounds, or two inputs disagree on a dim."""


class OutOfMemoryError(InputError, MemoryError):
    """The system refuses the memory of a call. Other calls are unaffected."""


class DeviceError(UserError):
    """A device is missing or failed; the text contains its message."""


class DeviceMemoryError(DeviceError, OutOfMemoryError):
    """A device lacks the memory of a call."""


class TimeLimitError(UserError, TimeoutError):
    """A call exceeds its time limit. The next one works."""


class BusyError(UserError):
    """All arenas are in use, and no call ended within the waiting time."""


class ModelError(UserError):
    """A model file is unreadable, invalid, or not supported."""


class ArtefactError(ModelError):
    """A saved model is damaged, of another format, or for other machines."""


class LanguageError(UserError):
    """A program text is invalid; the text gives line and column."""

    bare = ""  # the problem without its location


class GraphError(UserError):
    """A graph built in Python is invalid."""


class UnknownValueError(GraphError, TypeError):
    """Python asks a value of a graph for elements, which only a call of the model has."""


class OptionError(UserError):
    """An option has an invalid value."""


class ArgumentError(OptionError, TypeError):
    """An argument of a function is unknown, missing or superfluous."""


class MemoryLimitError(UserError):
    """A model, or a call at its sizes, needs more memory than the limit."""


class MissingError(UserError, ImportError):
    """A required package or library is not installed."""


class InternalError(AnydimError):
    """A bug of anydim. The hint says what to report (`reports.py`)."""
