"""Objects linked by the C compiler into a shared library, and that into this process."""

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
from anydim.targets.c.compilers import Compiler, compiler


class Loaded:
    """A shared library in memory and where its functions start; valid until `close`."""

    def __init__(self, library: ctypes.CDLL, addresses: Mapping[str, int]) -> None:
        self._library: ctypes.CDLL | None = library
        self._addresses = dict(addresses)

    def address(self, symbol: str) -> int:
        """Where an exported function starts; KeyError when it was not asked for."""
        return self._addresses[symbol]

    def close(self) -> None:
        """Free the code. Calling it afterwards is undefined."""
        if self._library is not None:
            _ctypes.dlclose(self._library._handle)
        self._library, self._addresses = None, {}

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not finalizing():  # kept: the module's own names may be gone by then
            self.close()

    def __enter__(self) -> Loaded:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def load(
    objects: Iterable[bytes], symbols: Iterable[str], imports: Mapping[str, int] | None = None
) -> Loaded:
    """Link objects with each other and give the addresses of `symbols`.

    Raises InternalError where a symbol is missing, or where there are `imports`: a shared library
    finds what it lacks in the process, by name.
    """
    if imports:
        raise InternalError(f"a shared library cannot be given {', '.join(imports)}")
    data = _library(tuple(objects), compiler())
    with tempfile.TemporaryDirectory(prefix="anydim-") as folder:
        path = Path(folder, "code.so")
        path.write_bytes(data)
        library = ctypes.CDLL(str(path))  # stays mapped when the file is gone
    try:
        addresses = {symbol: _address(library, symbol) for symbol in symbols}
    except AttributeError as error:
        raise InternalError(f"generated code does not link: {error}") from None
    return Loaded(library, addresses)


def _address(library: ctypes.CDLL, symbol: str) -> int:
    return ctypes.cast(library[symbol], ctypes.c_void_p).value or 0


def _library(objects: tuple[bytes, ...], chosen: Compiler) -> bytes:
    """A shared library of objects, from the cache or linked now."""
    cache = user_cache()
    digests = (hashlib.sha256(data).hexdigest() for data in objects)
    key = key_of("shared library", chosen.identity, *digests)
    found = cache.get(key) if cache is not None else None
    if found is not None:
        return found
    data = _linked(objects, chosen)
    if cache is not None:
        cache.put(key, data)
    return data


def _linked(objects: tuple[bytes, ...], chosen: Compiler) -> bytes:
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
