"""The two kinds of failure: the user's (UserError and its kinds) and ours (InternalError).

A user error says where, what was expected, what came, and what to do. Build one with `message`
parts rather than by hand so that all of them read alike.
"""

from __future__ import annotations


class AnydimError(Exception):
    """Every exception that anydim raises on purpose.

    `problem` is one line saying where and what; `hint` says what to do and goes on its own line.
    """

    def __init__(self, problem: str, hint: str = "") -> None:
        self.problem = problem
        self.hint = hint
        super().__init__(f"{problem}\n  {hint}" if hint else problem)


class UserError(AnydimError):
    """Something the caller can mend: an input, a model, a program text, an option."""


class InputError(UserError):
    """An argument of a call does not fit: missing, extra, wrong dtype, wrong rank."""


class DimError(InputError):
    """A size is outside its bounds, or two inputs disagree on a dim."""


class OutOfMemoryError(InputError, MemoryError):
    """The system has not the memory that a call needs at its sizes. Other calls go on."""


class DeviceError(UserError):
    """A device failed, or there is none of that name; its own text stands inside."""


class DeviceMemoryError(DeviceError, OutOfMemoryError):
    """A device has not the memory that a call needs at its sizes."""


class TimeLimitError(UserError, TimeoutError):
    """A call takes longer than it may. The next one works."""


class BusyError(UserError):
    """As many calls run as there are arenas, and none ended in time."""


class ModelError(UserError):
    """A model file cannot be read, is not valid, or needs what anydim does not have."""


class ArtefactError(ModelError):
    """A saved model cannot be read or run here: damaged, of another version, for other machines."""


class LanguageError(UserError):
    """A program text is wrong; the message points at line and column."""


class GraphError(UserError):
    """A graph built by hand is not well formed."""


class OptionError(UserError):
    """An option has a value that cannot be used."""


class ArgumentError(OptionError, TypeError):
    """A function has no argument of that name, misses one, or was given too many."""


class MemoryLimitError(UserError):
    """A model, or a call at its sizes, takes more memory than its limit allows."""


class MissingError(UserError, ImportError):
    """Something is asked for that is not installed."""


class InternalError(AnydimError):
    """A bug of anydim. The hint says what to send with a report (`reports.py`)."""
