"""Kernel names: a prefix and a hash of the kernel's text, so that equal kernels are shared."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from anydim.compiler.kernels.ir import Function, Kernel, Library, Local, Operand

NUMBERED = re.compile(r"p\d+")  # generated names of sizes


def named_kernel(
    prefix: str, operands: Iterable[Operand], sizes: Iterable[str], functions: Iterable[Function],
    libraries: Iterable[Library] = (), group: int = 0, locals: Iterable[Local] = (),
) -> Kernel:  # fmt: skip
    """A kernel named `prefix_<hash of its contents>`."""
    parts = (tuple(operands), tuple(sizes), tuple(functions), tuple(libraries))
    names = [
        library.name for library in parts[3]
    ]  # its calls refer to their functions by name only
    shared = tuple(locals)
    grouped = (group, shared) if group else ()
    hashed = hashlib.sha256(f"({parts[0]!r}, {parts[1]!r}, (".encode())
    for number, function in enumerate(parts[2]):
        hashed.update(b", " if number else b"")
        hashed.update(_text(_Itself(function)))
    end = "".join(f", {each!r}" for each in (names, *grouped))
    hashed.update(f"{',' if len(parts[2]) == 1 else ''}){end})".encode())  # a tuple of tuples
    identity = hashed.hexdigest()
    return Kernel(f"{prefix}_{identity[:12]}", *parts, identity, group, shared)


def shared_library(function: Function, portable: bool) -> Library:
    """A library of one function, named by the function and a hash of its text: compiled once for
    all kernels that call it."""
    digest = hashlib.sha256(_text(_Itself(function))).hexdigest()
    name = f"{function.name}_{digest[:24]}"
    return Library(name, (replace(function, name=name, public=True),), name, portable)


class _Itself:
    """Compares a function by identity; comparing contents would take as long as printing them."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def __hash__(self) -> int:
        return id(self.function)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.function is other.function


@lru_cache(maxsize=16)
def _text(function: _Itself) -> bytes:
    """Cached: several kernels share functions (variants of one kernel, kernels of equal layers)."""
    return repr(function.function).encode()
