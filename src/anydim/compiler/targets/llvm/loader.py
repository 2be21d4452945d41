"""Loads object code into memory for calls."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from anydim.base.errors import InternalError
from anydim.compiler.targets.llvm.llvm_api import Linked
from anydim.compiler.targets.target import Code

_numbers = itertools.count()


class Loaded(Code):
    """Linked code."""

    def __init__(self, linked: Linked) -> None:
        super().__init__(linked.addresses)
        self._linked = linked

    def close(self) -> None:
        super().close()
        self._linked.close()


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
