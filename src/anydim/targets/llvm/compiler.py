"""Module texts to object code for this machine, in parallel, with a cache on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from anydim.base import settings
from anydim.base.cache import key_of, user_cache
from anydim.base.errors import InternalError
from anydim.targets.llvm.host import Host, host
from anydim.targets.llvm.library import OPTIONS, emit
from anydim.targets.target import Objects, Source

ABI_VERSION = "1"  # of what generated code and its callers agree on

def compile_modules(modules: Mapping[str, Source], threads: int = 0) -> Objects:
    """Object code of each module, from the cache or compiled now.

    `threads` 0 takes `settings.compile_threads`. Raises InternalError for a text LLVM refuses.
    """
    cache, machine = user_cache(), host()
    keys = {name: _key(module, machine) for name, module in modules.items()}
    objects: dict[str, bytes] = {}
    if cache is not None:
        found = {name: cache.get(key) for name, key in keys.items()}
        objects = {name: data for name, data in found.items() if data is not None}
    missing = tuple(name for name in modules if name not in objects)
    for name, data in zip(missing, _compile_all([modules[n] for n in missing], threads)):
        objects[name] = data
        if cache is not None:
            cache.put(keys[name], data)
    if missing and cache is not None:
        cache.tidy()
    return Objects({name: objects[name] for name in modules}, missing)


def assembly(text: str) -> str:
    """The machine code of a module as text, to look at."""
    return _emitted(text, as_object=False).decode()


def _key(module: Source, machine: Host) -> str:
    return key_of(
        ABI_VERSION, *OPTIONS, machine.llvm, machine.triple, machine.cpu, machine.features,
        module.identity,
    )  # fmt: skip


def _compile_all(modules: list[Source], threads: int) -> list[bytes]:
    """Objects in order; the next text is written while threads compile those before it."""
    workers = threads or settings.compile_threads or os.cpu_count() or 1
    if len(modules) < 2 or workers == 1:
        return [_compile(module.text()) for module in modules]
    with ThreadPoolExecutor(min(workers, len(modules))) as pool:
        started = [pool.submit(_compile, module.text()) for module in modules]
        return [future.result() for future in started]


def _compile(text: str) -> bytes:
    return _emitted(text, as_object=True)


def _emitted(text: str, as_object: bool) -> bytes:
    machine = host()
    try:
        return emit(text, machine.triple, machine.cpu, machine.features, as_object)
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses generated code: {error}\n\n{text}") from None
