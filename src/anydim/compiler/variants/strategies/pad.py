"""The strategy `pad`: loops run to padded sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, ClassVar

from anydim.base.errors import OptionError
from anydim.base.frozen import FrozenMapping
from anydim.base.records import dataclass
from anydim.base.user_values import short_repr
from anydim.compiler.variants.strategies.strategy import Strategy, print_value, whole
from anydim.sizes.padded import BOUND, POWER

if TYPE_CHECKING:
    from anydim.compiler.passes.program_form import Form

_LARGEST = 1 << 20  # of a multiple


@dataclass(frozen=True)
class Pad(Strategy):
    """Loops over dims run to padded sizes; for `compile` only.

    Sums and results keep their true sizes. `explain` shows what is padded.

    Attributes:
        pads: By dim: a multiple, `"pow2"` (the next power of 2) or `"bound"` (the upper bound).
    """

    formed: ClassVar[bool] = True

    pads: Mapping[str, int | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.pads:
            raise OptionError("pad of no dim", "name one: pad(seq=16)")
        held = FrozenMapping({name: _rule(name, given) for name, given in self.pads.items()})
        object.__setattr__(self, "pads", held)

    def form(self) -> Form:
        form: Form = import_module("anydim.compiler.passes.program_form").Form(pads=self.pads)
        return form

    def __str__(self) -> str:
        plain = all(name.isidentifier() and not iskeyword(name) for name in self.pads)
        form, around = ("{}={}", "{}") if plain else ('"{}": {}', "{{{}}}")
        rows = (form.format(name, print_value(rule)) for name, rule in self.pads.items())
        return f"pad({around.format(', '.join(rows))})"


def _rule(name: str, given: Any) -> int | str:
    if isinstance(given, str) and given not in (POWER, BOUND):
        hint = f'give a number, "{POWER}" or "{BOUND}"'
        raise OptionError(f"the pad of '{name}' is {short_repr(given)}", hint)
    return given if isinstance(given, str) else whole(f"the pad of '{name}'", given, 1, _LARGEST)


def pad(pads: Mapping[str, Any] | None = None, /, **more: Any) -> Pad:
    """Pads of dims by name; `pads` has those whose names are not Python identifiers."""
    return Pad({**(pads or {}), **more})
