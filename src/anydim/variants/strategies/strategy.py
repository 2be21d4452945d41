"""What all strategies are, and how their options are checked."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar

from anydim.base.given import whole_within

MOST = 4096  # bodies of a site


class Strategy:
    """A frozen record; its text is a call of its kind with all options.

    One that is `formed` says how a program is compiled, and not which bodies there are beside it.
    """

    formed: ClassVar[bool] = False

    def __str__(self) -> str:
        options = ", ".join(
            f"{option.name}={text_of(getattr(self, option.name))}"
            for option in fields(self)  # type: ignore[arg-type]
        )
        return f"{type(self).__name__.lower()}({options})"


def text_of(value: Any) -> str:
    """An option as texts of strategies have it."""
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(text_of, value))}]"
    if isinstance(value, Strategy):
        return str(value)
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if _float(value) else str(value)


def whole(name: str, value: Any, low: int, high: int) -> int:
    """An option that is a whole number within two; raises OptionError for another one."""
    return whole_within(name, value, low, high, f"give a whole number, {low} or more")


def _float(value: Any) -> bool:
    return isinstance(value, float)
