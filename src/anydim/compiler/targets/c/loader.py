"""Links objects with the C compiler to a shared library and loads it into this process."""

from __future__ import annotations

import _ctypes
import ctypes
import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from anydim.base.cache import key_of, user_cache
from anydim.base.errors import InternalError
from anydim.compiler.targets.c.compilers import Compiler, compiler
from anydim.compiler.targets.target import Code


class Loaded(Code):
    """A loaded shared library."""

    def __init__(self, library: ctypes.CDLL, addresses: Mapping[str, int]) -> None:
        super().__init__(addresses)
        self._library: ctypes.CDLL | None = library

    def close(self) -> None:
        super().close()
        if self._library is not None:
            _ctypes.dlclose(self._library._handle)
        self._library = None

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not finalizing():  # at interpreter exit, the module's globals may be cleared
            self.close()


def load(
    objects: Iterable[bytes], symbols: Iterable[str], imports: Mapping[str, int] | None = None
) -> Loaded:
    """Link objects and resolve `symbols`.

    Raises InternalError for a missing symbol, or if there are `imports`: a shared library resolves
    its imports in the process, by name.
    """
    if imports:
        raise InternalError(f"a shared library cannot import {', '.join(imports)}")
    data = _library(tuple(objects), compiler())
    with tempfile.TemporaryDirectory(prefix="anydim-") as folder:
        path = Path(folder, "code.so")
        path.write_bytes(data)
        library = ctypes.CDLL(str(path))  # stays mapped after the file is deleted
    try:
        addresses = {symbol: _address(library, symbol) for symbol in symbols}
    except AttributeError as error:
        raise InternalError(f"generated code does not link: {error}") from None
    return Loaded(library, addresses)


def _address(library: ctypes.CDLL, symbol: str) -> int:
    return ctypes.cast(library[symbol], ctypes.c_void_p).value or 0


def _library(objects: tuple[bytes, ...], chosen: Compiler) -> bytes:
    """Return the shared library of objects, cached or linked now."""
    cache = user_cache()
    digests = (hashlib.sha256(data).hexdigest() for data in objects)
    key = key_of("shared library", chosen.identity, *digests)
    found = cache.get(key) if cache is not None else None
    if found is not None:
        return found
    data = _link(objects, chosen)
    if cache is not None:
        cache.put(key, data)
    return data


def _link(objects: tuple[bytes, ...], chosen: Compiler) -> bytes:
    with tempfile.TemporaryDirectory(prefix="anydim-") as folder:
        paths = [Path(folder, f"{number}.o") for number in range(len(objects))]
        for path, data in zip(paths, objects):
            path.write_bytes(data)
        made = Path(folder, "code.so")
        command = [*chosen.command, "-shared", "-o", str(made), *map(str, paths), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not made.exists():
            raise InternalError(f"generated code does not link: {done.stderr}")
        return made.read_bytes()
