"""Bodies for some sizes of some dims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from itertools import product
from keyword import iskeyword
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.variants.strategies.strategy import MOST, Strategy, text_of, whole


@dataclass(frozen=True)
class Buckets(Strategy):
    """Bodies for some sizes of some dims, all combinations of them, made with the model."""

    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        held = {}
        for name, values in self.sizes.items():
            some = values if isinstance(values, (list, tuple, range)) else (values,)
            held[name] = tuple(whole(f"a size of '{name}'", value, 0, 1 << 62) for value in some)
        object.__setattr__(self, "sizes", held)
        count = sum(1 for _, _ in zip(self.combinations(), range(MOST + 1)))
        if not self.sizes or count > MOST:
            raise OptionError(
                f"buckets of {len(self.sizes)} dims, {count} combinations",
                f"name dims and some sizes of each, {MOST} combinations at most",
            )

    def combinations(self) -> list[dict[str, int]]:
        """The sizes of all named dims, one after another."""
        return [dict(zip(self.sizes, values)) for values in product(*self.sizes.values())]

    def __str__(self) -> str:
        plain = all(name.isidentifier() and not iskeyword(name) for name in self.sizes)
        form, around = ("{}={}", "{}") if plain else ('"{}": {}', "{{{}}}")
        rows = (form.format(name, text_of(cuts)) for name, cuts in self.sizes.items())
        return f"buckets({around.format(', '.join(rows))})"


def buckets(sizes: Mapping[str, Any] | None = None, /, **more: Any) -> Buckets:
    """Buckets of dims by name; `sizes` has those whose names are no words of Python."""
    return Buckets({**(sizes or {}), **more})
