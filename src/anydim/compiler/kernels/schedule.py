"""Schedules as text: `rows(lanes=16, unroll=4)` prints from and parses back to a dataclass.

A schedule is a frozen dataclass whose fields are ints, bools and names, with defaults for the
options that a text may omit. Each template registers its own (`template.py`).
"""

from __future__ import annotations

import re
import warnings
from dataclasses import Field, field, fields
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.records import SHOWN_IF_SET
from anydim.base.reports import caller_level
from anydim.base.text import article, quote_list

_SCHEDULES: dict[str, type] = {}
FORMER_NAMES = {
    "bytes": "int8", "narrow": "weight_only_quant", "nest": "loop_nest", "ranges": "concat",
    "sliding": "window_reduction", "transposition": "transpose",
}  # fmt: skip
ANY = "any"  # the version of a schedule that leaves the choice to the sizes
_TEXT = re.compile(r"\s*([a-z_]\w*)\s*\((.*)\)\s*", re.DOTALL)
_OPTION = re.compile(r"\s*([a-z_]\w*)\s*=\s*(-?\d+|[A-Za-z_]\w*)\s*")


def any_version() -> Any:
    """A field of a schedule: the version taken wherever it is right; see `versions.py`."""
    return field(default=ANY, metadata=SHOWN_IF_SET)


def version_of(schedule: Any) -> str:
    """The version that a schedule forces; ANY if none."""
    return str(getattr(schedule, "version", ANY))


def register(name: str, kind: type) -> None:
    """Register a schedule type under the name it prints with."""
    _SCHEDULES[name] = kind


def print_schedule(schedule: Any) -> str:
    """`name(field=value, ...)`."""
    name = schedule_name(type(schedule))
    given = ((field, getattr(schedule, field.name)) for field in fields(schedule))
    options = (f"{f.name}={_print(value)}" for f, value in given if _is_shown(f, value))
    return f"{name}({', '.join(options)})"


def _is_shown(field: Field[Any], value: Any) -> bool:
    return field.metadata != SHOWN_IF_SET or value != field.default


def by_current_name(text: str) -> str:
    """A text of a schedule that users give, by its current name; warns about a former one."""
    name, bracket, rest = text.partition("(")
    named = FORMER_NAMES.get(name.strip())
    if named is None:
        return text
    said = f"schedule '{name}' is named '{named}'"
    warnings.warn(said, DeprecationWarning, stacklevel=caller_level())
    return f"{named}{bracket}{rest}"


def parse_schedule(text: str) -> Any:
    """The schedule that a text denotes; raises OptionError when the text is not a schedule."""
    kind, options = parse_options(text)
    try:
        return kind(**options)
    except TypeError:
        missing = quote_list(sorted({f.name for f in fields(kind)} - set(options)))
        raise OptionError(f"schedule '{text}' lacks {missing}") from None


def parse_options(text: str) -> tuple[type, dict[str, Any]]:
    """The type of schedule that a text names, and the options it sets; a text may omit options."""
    whole = _TEXT.fullmatch(text)
    if whole is None:
        raise OptionError(f"'{text}' is not a schedule", "write it as rows(lanes=16, unroll=4)")
    name, inside = whole.groups()
    name = FORMER_NAMES.get(name, name)  # of a saved recipe
    if name not in _SCHEDULES:
        raise OptionError(
            f"there is no schedule '{name}'", f"known: {quote_list(sorted(_SCHEDULES))}"
        )
    kind = _SCHEDULES[name]
    known = {f.name for f in fields(kind)}
    options: dict[str, Any] = {}
    for part in inside.split(",") if inside.strip() else ():
        option = _OPTION.fullmatch(part)
        if option is None or option[1] not in known or option[1] in options:
            raise OptionError(
                f"schedule '{name}' cannot read '{part.strip()}'",
                f"its options are {quote_list(sorted(known))}",
            )
        options[option[1]] = _parse(option[2])
    return kind, options


def schedule_name(kind: type) -> str:
    """The name that schedules of a type print with; raises OptionError for other types."""
    for name, known in _SCHEDULES.items():
        if known is kind:
            return name
    raise OptionError(
        f"{article(kind.__name__)} is no schedule", f"there is {quote_list(sorted(_SCHEDULES))}"
    )


def _print(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse(text: str) -> int | bool | str:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdigit() else text
