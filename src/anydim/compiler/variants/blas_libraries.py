"""External BLAS libraries: addresses of their functions, and single-threaded use.

`openblas` is the library of the package scipy-openblas32, whose symbols begin with `scipy_`; a path
is any shared library with the C interface of the Reference BLAS. Libraries stay open.

The model's own threads share a product. Threads of the library would spin next to them: with other
work on the cores, a small product took 25 ms with two threads of each.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from anydim.base.errors import OptionError
from anydim.base.records import dataclass
from anydim.compiler.kernels.matmul.blas.blas_template import FUNCTIONS

KNOWN = {"openblas": ("scipy_openblas32", "pip install 'anydim[openblas]'")}
_NAMES = ("{}", "scipy_{}", "{}64_", "scipy_{}64_")  # symbol names in different builds
_THREADS = (
    "openblas_set_num_threads", "MKL_Set_Num_Threads", "bli_thread_set_num_threads",
)  # fmt: skip


@dataclass(frozen=True)
class Foreign:
    """An open library: the addresses of its matrix products, in the order of `FUNCTIONS`."""

    addresses: tuple[int, ...]
    _library: Any

    def use_one_thread(self) -> bool:
        """Make the library single-threaded in this process; return whether it supports that."""
        for function in filter(None, (_find_function(self._library, name) for name in _THREADS)):
            function.argtypes, function.restype = (ctypes.c_int64,), None
            function(1)
            return True
        return False


@cache
def open_library(name: str) -> Foreign:
    """Open the library of a name in `KNOWN` or a path; raises OptionError if missing."""
    path = _find_package_library(name) if name in KNOWN else Path(name)
    try:
        library = ctypes.CDLL(os.fspath(path))
    except (OSError, ValueError) as error:
        raise OptionError(
            f"library '{name}' cannot be opened: {error}",
            f"give {' or '.join(KNOWN)}, or the path of a shared library with the cblas interface",
        ) from None
    found = [_find_function(library, function) for function in FUNCTIONS.values()]
    if None in found:
        missing = next(n for n, function in zip(FUNCTIONS.values(), found) if function is None)
        hint = "give a library with the cblas interface"
        raise OptionError(f"library '{name}' has no function {missing}", hint)
    addresses = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in found)
    return Foreign(tuple(addresses), library)


def _find_package_library(name: str) -> Path:
    """The path of the shared library in a package."""
    package, remedy = KNOWN[name]
    try:
        found: Any = import_module(package)
    except ImportError:
        raise OptionError(f"library '{name}' is not installed", remedy) from None
    folder = Path(found.get_lib_dir())
    return next(_shared_libraries(folder, found.get_library()), folder)


def _shared_libraries(folder: Path, stem: str) -> Iterator[Path]:
    """Files of the library with a suffix of shared libraries on any system."""
    for path in sorted(folder.glob(f"*{stem}*")):
        if path.suffix in (".so", ".dylib", ".dll"):
            yield path


def _find_function(library: Any, name: str) -> Any:
    """A function under the symbol name of any build, or None."""
    names = (form.format(name) for form in _NAMES)
    return next((f for f in (getattr(library, each, None) for each in names) if f), None)
