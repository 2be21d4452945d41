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
class Target:
    """A kind of machine that kernels are compiled for.

    `machine` tells templates about vectors and caches. `render` gives the module texts of kernels
    and of the libraries they use, by module name, each once. `compile` turns texts into objects
    on so many threads (0: as the settings say). `load` makes objects callable.
    """

    name: str
    machine: Callable[[], Machine]
    render: Callable[[Iterable[Kernel]], dict[str, str]]
    compile: Callable[[Mapping[str, str], int], dict[str, bytes]]
    load: Load
