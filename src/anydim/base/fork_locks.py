"""Locks that a forked child finds free.

A fork copies the locks of a process, but only the thread that forks: a lock that another thread
held would stay locked in the child for ever. The child gets new ones. What a lock guards must be
valid between any two steps of a holder, which does not continue in the child.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any

_known: dict[tuple[int, str], tuple[weakref.ref[Any], Callable[[], Any]]] = {}


def fork_lock(owner: Any, attribute: str, make: Callable[[], Any] = threading.Lock) -> Any:
    """A new lock for an attribute of an object or module, which is set to another one in children.

    Use it as `with owner.attribute`: a block that forks leaves the lock that it entered. An owner
    with a method `after_fork` has it called in the child, behind.
    """
    key = id(owner), attribute
    _known[key] = weakref.ref(owner, lambda _: _known.pop(key, None)), make
    return make()


def _renew() -> None:
    for (_, attribute), (reference, make) in list(_known.items()):
        owner = reference()
        if owner is not None:
            setattr(owner, attribute, make())
            getattr(owner, "after_fork", lambda: None)()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
