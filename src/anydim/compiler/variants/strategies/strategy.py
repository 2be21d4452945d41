"""The base class of strategies, and validation of options."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from anydim.base.errors import OptionError
from anydim.base.user_values import short_repr, whole_within

if TYPE_CHECKING:
    from anydim.compiler.passes.program_form import Form

MOST = 4096  # variants of a site
SAME, ANY = "same", "any"  # bits of a variant against the generic kernel's


Cuts = Callable[[str, Collection[str], int], Mapping[str, Any]]
"""(path of a profile, dims with given sizes, most combinations) -> sizes of the other dims."""

_SILENT: dict[str, Any] = {"bits": SAME, "patience": 0}  # default options that texts omit


class Strategy:
    """A frozen record; its text is a call of its kind with all options.

    A `formed` strategy changes how a program is compiled, and has no variants. Under a `blocking`
    one, a call may wait for a variant; a `background` one compiles variants beside calls;
    those of a `prepared` one are compiled with the model.
    """

    formed: ClassVar[bool] = False
    blocking: ClassVar[bool] = False
    background: ClassVar[bool] = False
    prepared: ClassVar[bool] = False

    @property
    def limit(self) -> int:
        """Most variants for single sizes of a launch site; 0: it has none for single sizes."""
        return 0

    @property
    def most(self) -> float | None:
        """Largest share of the generic time at which a variant is kept; None: it is not timed."""
        return None

    @property
    def after(self) -> int:
        """Launches of a size before it gets a variant."""
        return 0

    @property
    def patience(self) -> float:
        """Seconds of service before sizes are counted."""
        return 0.0

    @property
    def profile(self) -> str:
        """The file of recorded sizes that completes it, if any."""
        return ""

    @property
    def makes_variants(self) -> bool:
        return self.blocking or self.background or self.prepared

    @property
    def names(self) -> frozenset[str]:
        """The dims that it refers to."""
        return frozenset()

    def combinations(self) -> Iterator[dict[str, tuple[int, int]]]:
        """The ranges of dims whose variants are compiled with the model."""
        return iter(())

    def at_once(self, limit: int) -> Strategy:
        """The strategy with room for `limit` variants of single sizes, without patience."""
        return self

    def form(self) -> Form:
        """How programs are compiled under it; opens libraries, and raises OptionError without
        them.
        """
        form: Form = import_module("anydim.compiler.passes.program_form").PLAIN_FORM
        return form

    def leaves(self) -> Iterator[Strategy]:
        """The strategies that it combines."""
        yield self

    def conditions(self) -> Iterator[str]:
        """The conditions on sizes by which it chooses, the outermost first."""
        return iter(())

    def choose_leaf(self, holds: Callable[[str], bool]) -> Strategy:
        """The strategy that it combines, taken where `holds` decides each condition."""
        return self

    def fill_buckets(self, cuts: Cuts) -> Strategy:
        """The strategy with the sizes of buckets that a profile completes."""
        return self

    def __str__(self) -> str:
        options = ", ".join(
            f"{option.name}={print_value(getattr(self, option.name))}"
            for option in fields(self)  # type: ignore[arg-type]
            if getattr(self, option.name) != _SILENT.get(option.name, option)
        )
        return f"{type(self).__name__.lower()}({options})"


def bits_of(given: Any) -> None:
    """Raise OptionError for an invalid option `bits`."""
    if given not in (SAME, ANY):
        raise OptionError(f"bits is {short_repr(given)}", 'give "same" or "any"')


def print_value(value: Any) -> str:
    """The text of an option's value."""
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(print_value, value))}]"
    if isinstance(value, Strategy):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def whole(name: str, value: Any, low: int, high: int) -> int:
    """Validate a whole number within bounds; raises OptionError for other values."""
    return whole_within(name, value, low, high, f"give a whole number, {low} or more")
