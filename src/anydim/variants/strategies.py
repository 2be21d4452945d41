"""Strategies: which bodies of a site there are, and when they are made. Small values with a text.

generic()                     one body for every size; nothing is compiled after `compile`
exact(limit=64)               a body for each size, made when it is first seen, while it waits
adaptive(limit=8, after=16)   the generic body answers; one for a size that came `after` times
                              is made aside, and kept where it is measured to be faster
buckets(seq=[16, 32], batch=[1, 8])
                              bodies for these sizes, made when the model is
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from itertools import product
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.given import shown, whole_within
from anydim.base.records import dataclass
from anydim.base.text import listed, suggestion

MOST = 4096  # bodies of a site
_TEXT = re.compile(r"\s*([a-z]+)\s*(?:\((.*)\))?\s*", re.DOTALL)
_OPTION = re.compile(r"\s*([A-Za-z_][\w.]*)\s*=\s*(\[[\d\s,]*\]|[\d.]+)\s*(?:,|$)")


@dataclass(frozen=True)
class Generic:
    """One body for every size."""

    def __str__(self) -> str:
        return "generic()"


@dataclass(frozen=True)
class Exact:
    """A body for each size that comes, `limit` a site; the least recently used ones go first."""

    limit: int = 64

    def __post_init__(self) -> None:
        _whole("limit", self.limit, 1, MOST)

    def __str__(self) -> str:
        return f"exact(limit={self.limit})"


@dataclass(frozen=True)
class Adaptive:
    """Bodies made aside for sizes that came `after` times, at most `limit` a site.

    One is kept that takes at most `most` of the generic body's time.
    """

    limit: int = 8
    after: int = 16
    most: float = 0.97

    def __post_init__(self) -> None:
        _whole("limit", self.limit, 1, MOST)
        _whole("after", self.after, 1, 1 << 30)
        if not isinstance(self.most, (int, float)) or not 0 < self.most <= 1:
            raise OptionError(f"most is {shown(self.most)}", "give a share of time, 0.97 say")

    def __str__(self) -> str:
        return f"adaptive(limit={self.limit}, after={self.after}, most={self.most:g})"


@dataclass(frozen=True)
class Buckets:
    """Bodies for some sizes of some dims, all combinations of them, made with the model."""

    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        held = {}
        for name, values in self.sizes.items():
            some = values if isinstance(values, (list, tuple, range)) else (values,)
            held[name] = tuple(_whole(f"a size of '{name}'", value, 0, 1 << 62) for value in some)
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
        return f"buckets({', '.join(f'{n}={list(v)}' for n, v in self.sizes.items())})"


Strategy = Generic | Exact | Adaptive | Buckets
GENERIC = Generic()
KINDS: Mapping[str, Callable[..., Strategy]] = {
    "generic": Generic, "exact": Exact, "adaptive": Adaptive, "buckets": Buckets,
}  # fmt: skip


def strategy_of(given: Any) -> Strategy:
    """The strategy that a value or its text is; raises OptionError where it is none."""
    if isinstance(given, (Generic, Exact, Adaptive, Buckets)):
        return given
    if not isinstance(given, str):
        raise OptionError(
            f"strategy is {shown(given)}", f"give one of {listed(KINDS)}, or its text"
        )
    return parse_strategy(given)


def parse_strategy(text: str) -> Strategy:
    """The strategy that a text says, such as `adaptive` or `exact(limit=8)`."""
    whole = _TEXT.fullmatch(text)
    if whole is None or whole[1] not in KINDS:
        name = whole[1] if whole else text
        hint = suggestion(name, KINDS) or f"the strategies are {listed(KINDS)}"
        raise OptionError(f"there is no strategy '{name[:40]}'", hint)
    kind, options = KINDS[whole[1]], _options(whole[2] or "", text)
    if kind is Buckets:
        return Buckets(options)
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    for name in options:
        if name not in known:
            hint = f"its options are {listed(sorted(known))}" if known else "it has no options"
            raise OptionError(f"strategy '{whole[1]}' has no option '{name}'", hint)
    return kind(**options)


def _options(text: str, whole: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    at = 0
    while text[at:].strip():
        option = _OPTION.match(text, at)
        if option is None or option[1] in found:
            rest = text[at:].strip()[:40]
            raise OptionError(
                f"strategy '{whole[:80]}': '{rest}' cannot be read",
                "write options as exact(limit=8) or buckets(seq=[16, 32])",
            )
        found[option[1]] = _value(option[2])
        at = option.end()
    return found


def _value(text: str) -> Any:
    if text.startswith("["):
        return tuple(int(part) for part in text[1:-1].split(",") if part.strip())
    return float(text) if "." in text else int(text)


def _whole(name: str, value: Any, low: int, high: int) -> int:
    return whole_within(name, value, low, high, f"give a whole number, {low} or more")
