"""Module texts to object code for this machine, in parallel, with a cache on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

from anydim.base import settings
from anydim.base.cache import key_of, user_cache
from anydim.base.errors import InternalError
from anydim.targets.llvm.host import Host, host
from anydim.targets.target import Objects, Source

ABI_VERSION = "1"  # of what generated code and its callers agree on

# Of LLVM in this whole process. Loop strength reduction rewrites the addresses of a register tile
# into more pointers than there are registers (9 x 3 x 16 lanes: 102 instead of 236 GFLOP/s), and
# takes a third of the compile time; the text hoists what it would hoist.
OPTIONS = ("-disable-lsr",)


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
    for name, data in zip(missing, _compile_all([modules[n].text() for n in missing], threads)):
        objects[name] = data
        if cache is not None:
            cache.put(keys[name], data)
    if missing and cache is not None:
        cache.trim()
    return Objects({name: objects[name] for name in modules}, missing)


def assembly(text: str) -> str:
    """The machine code of a module as text, to look at."""
    return str(_target_machine(host()).emit_assembly(_parse(text)))


def _key(module: Source, machine: Host) -> str:
    return key_of(
        ABI_VERSION, *OPTIONS, machine.llvm, machine.triple, machine.cpu, machine.features,
        module.identity,
    )  # fmt: skip


def _compile_all(texts: list[str], threads: int) -> list[bytes]:
    workers = threads or settings.compile_threads or os.cpu_count() or 1
    if len(texts) < 2 or workers == 1:
        return [_compile(text) for text in texts]
    longest_first = sorted(range(len(texts)), key=lambda n: -len(texts[n]))
    with ThreadPoolExecutor(min(workers, len(texts))) as pool:
        futures = {n: pool.submit(_compile, texts[n]) for n in longest_first}
        return [futures[n].result() for n in range(len(texts))]


def _compile(text: str) -> bytes:
    return bytes(_target_machine(host()).emit_object(_parse(text)))


def _parse(text: str) -> Any:
    """The module, in a context of its own so that threads do not meet."""
    import llvmlite.binding as llvm

    initialise()
    try:
        module = llvm.parse_assembly(text, context=llvm.create_context())
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses generated code: {error}\n\n{text}") from None
    return module


def _target_machine(machine: Host) -> Any:
    import llvmlite.binding as llvm

    initialise()
    target = llvm.Target.from_triple(machine.triple)
    return target.create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=2, reloc="pic", codemodel="default"
    )


@lru_cache(maxsize=1)
def initialise() -> None:
    """Make LLVM ready for this machine, once."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for option in OPTIONS:
        llvm.set_option("anydim", option)
