"""Kernel names: what the kernel is, and a hash of its text, so that equal kernels meet."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from anydim.kernels.ir import Function, Kernel, Library, Local, Operand

NUMBERED = re.compile(r"p\d+")  # names of sizes that say nothing of them


def named_kernel(
    prefix: str, operands: Iterable[Operand], sizes: Iterable[str], functions: Iterable[Function],
    libraries: Iterable[Library] = (), group: int = 0, locals: Iterable[Local] = (),
) -> Kernel:  # fmt: skip
    """A kernel called `prefix_<hash of everything it consists of>`."""
    parts = (tuple(operands), tuple(sizes), tuple(functions), tuple(libraries))
    names = [library.name for library in parts[3]]  # it calls their functions by name only
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
    """A library of one function, called by its name and a hash of its text: it is compiled once
    for all kernels that call it."""
    digest = hashlib.sha256(_text(_Itself(function))).hexdigest()
    name = f"{function.name}_{digest[:24]}"
    return Library(name, (replace(function, name=name, public=True),), name, portable)


class _Itself:
    """A function that equals itself alone: to compare two would take as long as their texts."""

    def __init__(self, function: Function) -> None:
        self.function = function

    def __hash__(self) -> int:
        return id(self.function)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.function is other.function


@lru_cache(maxsize=16)
def _text(function: _Itself) -> bytes:
    """Functions are in several kernels: in those that are either of two, and in those of layers
    that are alike."""
    return repr(function.function).encode()
