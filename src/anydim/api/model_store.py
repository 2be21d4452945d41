"""Compiled models that outlive the process, stored by their dependencies.

A compiled model is saved next to the compiler's objects, under the hash of everything that it
depends on: the caller's parts, settings, the processor, tuning results, and the code of anydim.
Models with strings, or with weights too large for the cache, are compiled every time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable
from functools import partial

from anydim.api.model import Model
from anydim.base import settings
from anydim.base.cache import DiskCache, disk_cache, key_of, package_version
from anydim.base.cache_folder import is_there, keep, limits_text, saved_to, used
from anydim.base.errors import UserError
from anydim.compiler.variants.records import tuned_state
from anydim.deploy.load import load
from anydim.runtime.cpu import this_level
from anydim.runtime.program.callable_program import CallableProgram

_SETTINGS = ("winograd", "layout", "target", "c_compiler", "vector_bits", "most_nodes")


def kept(parts: Iterable[str | memoryview], make: Callable[[], Model]) -> CallableProgram:
    """Load the model made of these parts before, or else call `make()`, whose errors propagate.

    `parts` are all dependencies besides anydim and the machine; only read if there is a cache.
    """
    return kept_at(cache_path(parts), make)


def cache_path(parts: Iterable[str | memoryview]) -> str | None:
    """The cache file of a model made of these parts; None without a cache."""
    folder = disk_cache("models")
    if folder is None:
        return None
    try:
        return folder.path(_key(parts))
    except OSError:  # the files of the package cannot be listed
        return None


def kept_at(path: str | None, make: Callable[[], Model]) -> CallableProgram:
    """Load the model at a path from `cache_path`, or else call `make()` and store its result."""
    if path is None:
        return make()
    if is_there(path):
        with contextlib.suppress(UserError, OSError):
            found = load(path, verify="checksums")  # a damaged or exchanged file is replaced
            if found.about.get("key") == _key_at(path):
                used(path)
                return found
    made, folder = make(), disk_cache("models")
    if folder is not None:
        _keep(made, path, folder)
    return made


def _key(parts: Iterable[str | memoryview]) -> str:
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    level = this_level()
    return key_of(
        state.hexdigest(), level.architecture, *sorted(level.flags),
        *(f"{name}={settings.get(name)}" for name in _SETTINGS), package_version(), tuned_state(),
        limits_text(),
    )  # fmt: skip


def _keep(made: Model, path: str, folder: DiskCache) -> None:
    """Save a model; errors of the folder are ignored."""
    if made.on_strings:
        return
    if not folder.admits(made.executable.constant_bytes):
        return
    with contextlib.suppress(UserError):
        save = partial(made._write, facts={"key": _key_at(path)})
        keep(folder.root, path, lambda name: saved_to(name, save))
        folder.tidy()


def _key_at(path: str) -> str:
    """The key of the file at a path of a cache."""
    return "".join(path.split(os.sep)[-2:])
