"""Kernel names: what the kernel is, and a hash of its text, so that equal kernels meet."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from anydim.kernels.ir import Function, Kernel, Library, Local, Operand


def named_kernel(
    prefix: str,
    operands: Iterable[Operand],
    sizes: Iterable[str],
    functions: Iterable[Function],
    libraries: Iterable[Library] = (),
    group: int = 0,
    locals: Iterable[Local] = (),
) -> Kernel:
    """A kernel called `prefix_<hash of everything it consists of>`."""
    parts = (tuple(operands), tuple(sizes), tuple(functions), tuple(libraries))
    names = [library.name for library in parts[3]]  # it calls their functions by name only
    shared = tuple(locals)
    grouped = (group, shared) if group else ()
    identity = hashlib.sha256(repr((*parts[:3], names, *grouped)).encode()).hexdigest()
    return Kernel(f"{prefix}_{identity[:12]}", *parts, identity, group, shared)
