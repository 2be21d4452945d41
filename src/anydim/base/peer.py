"""The installed onnxruntime, even if `import onnxruntime` is redirected to anydim."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from types import ModuleType

from anydim.base.errors import MissingError
from anydim.base.fork_locks import fork_lock

NAME = "onnxruntime"
DISPLACED = "__displaced__"  # attribute of the stand-in: the modules it replaces
_LOCK = fork_lock(sys.modules[__name__], "_LOCK")


def modules_of(name: str) -> dict[str, ModuleType]:
    """The imported module of a name and its submodules."""
    return {
        key: module for key, module in sys.modules.items()
        if key == name or key.startswith(f"{name}.")
    }  # fmt: skip


@cache
def peer_module() -> ModuleType:
    """The real onnxruntime; MissingError if it is not installed."""
    with _LOCK:
        ours = modules_of(NAME)
        stand_in = ours.get(NAME)
        displaced = getattr(stand_in, DISPLACED, None)
        if displaced is None:
            return _import_peer()
        for key in ours:
            del sys.modules[key]
        sys.modules.update(displaced)
        try:
            found = _import_peer()
            displaced.update(modules_of(NAME))
        finally:
            for key in modules_of(NAME):
                del sys.modules[key]
            sys.modules.update(ours)
        return found


def _import_peer() -> ModuleType:
    try:
        return importlib.import_module(NAME)
    except ImportError as error:
        raise MissingError(
            f"onnxruntime is not installed: {error}", "pip install anydim[onnxruntime]"
        ) from None
