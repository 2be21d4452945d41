"""Module texts to object code for a processor, in parallel, with a cache on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from anydim.base import settings
from anydim.base.cache import key_of, user_cache
from anydim.base.errors import InternalError
from anydim.targets.llvm.library import OPTIONS, emit, version
from anydim.targets.processor import Processor
from anydim.targets.target import Objects, Source

ABI_VERSION = "1"  # of what generated code and its callers agree on


def compile_modules(
    modules: Mapping[str, Source], processor: Processor, threads: int = 0
) -> Objects:
    """Object code of each module for a processor, from the cache or compiled now.

    `threads` 0 takes `settings.compile_threads`. Raises InternalError for a text LLVM refuses.
    """
    cache = user_cache()
    keys = {name: _key(module, processor) for name, module in modules.items()}
    objects: dict[str, bytes] = {}
    if cache is not None:
        found = {name: cache.get(key) for name, key in keys.items()}
        objects = {name: data for name, data in found.items() if data is not None}
    missing = tuple(name for name in modules if name not in objects)
    for name, data in zip(missing, _compile_all([modules[n] for n in missing], processor, threads)):
        objects[name] = data
        if cache is not None:
            cache.put(keys[name], data)
    if missing and cache is not None:
        cache.tidy()
    return Objects({name: objects[name] for name in modules}, missing)


def assembly(text: str, processor: Processor) -> str:
    """The machine code of a module as text, to look at."""
    return _emitted(text, processor, as_object=False).decode()


def _key(module: Source, processor: Processor) -> str:
    return key_of(
        ABI_VERSION, *OPTIONS, version(), processor.triple, processor.cpu, processor.features,
        module.identity,
    )  # fmt: skip


def _compile_all(modules: list[Source], processor: Processor, threads: int) -> list[bytes]:
    """Objects in order; the next text is written while threads compile those before it."""
    workers = threads or settings.compile_threads or os.cpu_count() or 1
    if len(modules) < 2 or workers == 1:
        return [_compile(module.text(), processor) for module in modules]
    with ThreadPoolExecutor(min(workers, len(modules))) as pool:
        started = [pool.submit(_compile, module.text(), processor) for module in modules]
        return [future.result() for future in started]


def _compile(text: str, processor: Processor) -> bytes:
    return _emitted(text, processor, as_object=True)


def _emitted(text: str, processor: Processor, as_object: bool) -> bytes:
    try:
        return emit(text, processor.triple, processor.cpu, processor.features, as_object)
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses generated code: {error}\n\n{text}") from None
