"""What a target is: one record that says how kernels become code for a kind of machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from anydim.kernels.ir import Kernel
from anydim.kernels.launch import Machine


class Code(Protocol):
    """Loaded code: where its exported functions start, until it is closed."""

    def address(self, symbol: str) -> int: ...

    def close(self) -> None: ...


class Load(Protocol):
    """Links objects and finds `symbols`; `imports` gives addresses that no object defines."""

    def __call__(
        self,
        objects: Iterable[bytes],
        symbols: Iterable[str],
        imports: Mapping[str, int] | None = None,
    ) -> Code: ...


@dataclass(frozen=True)
class Source:
    """The text of a module, written only when no compiled object of its identity is at hand.

    Texts of one `identity` are equal; a text may be its own.
    """

    identity: str
    text: Callable[[], str]

    @staticmethod
    def of(text: str) -> Source:
        return Source(text, lambda: text)


@dataclass(frozen=True)
class Objects:
    """Object code by module name, and the names of those that were compiled now."""

    code: Mapping[str, bytes]
    compiled: tuple[str, ...]


@dataclass(frozen=True)
class Target:
    """A kind of machine that kernels are compiled for.

    `machine` tells templates about vectors and caches. `sources` gives the modules of kernels and
    of the libraries they use, by name, each once. `compile` makes objects of modules, on so many
    threads (0: as the settings say). `load` makes objects callable.
    """

    name: str
    machine: Callable[[], Machine]
    sources: Callable[[Iterable[Kernel], Machine], dict[str, Source]]
    compile: Callable[[Mapping[str, Source], int], Objects]
    load: Load
