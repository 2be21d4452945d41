"""The report of a compilation."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import field
from typing import Any

from anydim.base.records import dataclass


@dataclass(frozen=True)
class CompileReport:
    """How a model was compiled.

    `seconds` is the time of each pass in order, or "load" for a program found on disk, or "weights"
    for one that was made from the program of a model with other weights. `stages`
    prints stages on request; `notes` are lines on fusion and on eliminated shape arithmetic;
    `compiled` and `cached` count native modules compiled now and found on disk; `kernels` are the
    kernels of its sites, by name (loop IR).
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    stages: Mapping[str, Callable[[], str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    compiled: int = 0
    cached: int = 0
    chosen: tuple[Chosen, ...] = ()
    kernels: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelTexts:
    """A stage that has a text for each kernel and library, by name.

    Called, it is all of them, or the `choice` where there is one: what can be chosen.
    """

    texts: Callable[[], Mapping[str, Callable[[], str]]]
    choice: Callable[[], str] | None = None

    def __call__(self) -> str:
        return self.only(self.texts()) if self.choice is None else self.choice()

    def only(self, names: Container[str]) -> str:
        """The texts of these names alone."""
        return "\n".join(text() for name, text in self.texts().items() if name in names)


@dataclass(frozen=True)
class Chosen:
    """The schedule of a kernel, its results, and the reason for the schedule."""

    results: tuple[str, ...]
    schedule: str
    reason: str


class Deferred(Mapping[str, Any]):
    """A mapping that is computed on first access."""

    def __init__(self, make: Callable[[], Mapping[str, Any]]) -> None:
        self._make = make

    def __getitem__(self, name: str) -> Any:
        return self._make()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._make())

    def __len__(self) -> int:
        return len(self._make())
