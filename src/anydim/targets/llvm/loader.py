"""Object code into memory, ready to be called."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from anydim.base.errors import InternalError
from anydim.targets.llvm.compiler import initialise

_numbers = itertools.count()


class Loaded:
    """Linked code and the addresses of its exported functions; valid until `close`."""

    def __init__(self, engine: Any, tracker: Any, addresses: Mapping[str, int]) -> None:
        self._engine = engine
        self._tracker = tracker
        self._addresses = dict(addresses)

    def address(self, symbol: str) -> int:
        """Where an exported function starts; KeyError when it was not asked for."""
        return self._addresses[symbol]

    def close(self) -> None:
        """Free the code. Calling it afterwards is undefined."""
        if self._tracker is not None:
            self._addresses = {}
            self._tracker.close()
            self._engine.close()
            self._tracker = self._engine = None

    def __enter__(self) -> Loaded:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()


def load(
    objects: Iterable[bytes], symbols: Iterable[str], imports: Mapping[str, int] | None = None
) -> Loaded:
    """Link objects with each other and give the addresses of `symbols`.

    `imports` are addresses of symbols that the objects need and none of them defines.
    """
    import llvmlite.binding as llvm

    initialise()
    builder = llvm.JITLibraryBuilder()
    for data in objects:
        builder.add_object_img(data)
    for name, address in (imports or {}).items():
        builder.import_symbol(name, address)
    wanted = list(dict.fromkeys(symbols))
    for name in wanted:
        builder.export_symbol(name)
    engine = llvm.create_lljit_compiler()
    try:
        tracker = builder.link(engine, f"anydim{next(_numbers)}")
    except RuntimeError as error:
        engine.close()
        raise InternalError(f"generated code does not link: {error}") from None
    return Loaded(engine, tracker, {name: tracker[name] for name in wanted})
