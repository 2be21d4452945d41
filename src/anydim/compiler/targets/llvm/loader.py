"""Loads object code into memory for calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from anydim.base.errors import InternalError
from anydim.compiler.targets.llvm.llvm_api import Linked

_numbers = itertools.count()


class Loaded:
    """Linked code and the addresses of its exported functions; valid until `close`."""

    def __init__(self, linked: Linked) -> None:
        self._linked = linked
        self._addresses = linked.addresses

    def address(self, symbol: str) -> int:
        """Return the address of an exported function; raises KeyError if it was not requested."""
        return self._addresses[symbol]

    def close(self) -> None:
        """Free the code. Calling it afterwards is undefined."""
        self._addresses = {}
        self._linked.close()

    def __enter__(self) -> Loaded:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def load(
    objects: Iterable[bytes], symbols: Iterable[str], imports: Mapping[str, int] | None = None
) -> Loaded:
    """Link objects and resolve `symbols`.

    `imports` are addresses of symbols that the objects import and none of them defines.
    """
    name = f"anydim{next(_numbers)}"
    try:
        return Loaded(Linked(name, [*objects], [*dict.fromkeys(symbols)], imports or {}))
    except RuntimeError as error:
        raise InternalError(f"generated code does not link: {error}") from None
