"""What all strategies are, and how their options are checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from typing import Any, ClassVar

from anydim.base.errors import OptionError
from anydim.base.user_values import shown, whole_within

MOST = 4096  # bodies of a site
SAME, ANY = "same", "any"  # bits of a body beside the generic one's


_SILENT: dict[str, Any] = {"bits": SAME, "patience": 0}  # options that texts leave out


class Strategy:
    """A frozen record; its text is a call of its kind with all options.

    One that is `formed` says how a program is compiled, and not which bodies there are beside it.
    """

    formed: ClassVar[bool] = False

    @property
    def names(self) -> frozenset[str]:
        """The dims that it speaks of."""
        return frozenset()

    def leaves(self) -> Iterator[Strategy]:
        """The strategies that it is made of."""
        yield self

    def __str__(self) -> str:
        options = ", ".join(
            f"{option.name}={text_of(getattr(self, option.name))}"
            for option in fields(self)  # type: ignore[arg-type]
            if getattr(self, option.name) != _SILENT.get(option.name, option)
        )
        return f"{type(self).__name__.lower()}({options})"


def strategy_of(given: Any) -> Strategy:
    """The strategy that a value or its text is; raises OptionError where it is none."""
    if isinstance(given, Strategy):
        return given
    kinds: Any = import_module("anydim.variants.strategies.kinds")  # what reads texts
    found: Strategy = kinds.strategy_of_text(given)
    return found


def bits_of(given: Any) -> None:
    """Raises OptionError for what is no answer to which bits a body may give."""
    if given not in (SAME, ANY):
        raise OptionError(f"bits is {shown(given)}", 'give "same" or "any"')


def text_of(value: Any) -> str:
    """An option as texts of strategies have it."""
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(text_of, value))}]"
    if isinstance(value, Strategy):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def whole(name: str, value: Any, low: int, high: int) -> int:
    """An option that is a whole number within two; raises OptionError for another one."""
    return whole_within(name, value, low, high, f"give a whole number, {low} or more")
