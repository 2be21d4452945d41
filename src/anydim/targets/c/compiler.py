"""C files to object code for a processor, in parallel, with a cache on disk."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from anydim.base import settings
from anydim.base.cache import key_of, user_cache
from anydim.base.errors import InternalError
from anydim.targets.c.compilers import Compiler, compiler
from anydim.targets.processor import Processor
from anydim.targets.target import Objects, Source

ABI_VERSION = "1"  # of what generated code and its callers agree on


def compile_files(modules: Mapping[str, Source], processor: Processor, threads: int = 0) -> Objects:
    """Object code of each file for a processor, from the cache or compiled now.

    `threads` 0 takes `settings.compile_threads`. Raises OptionError when there is no compiler, and
    InternalError for a text that it refuses.
    """
    cache, chosen = user_cache(), compiler()
    flags = chosen.flags(processor)
    keys = {
        name: key_of(ABI_VERSION, chosen.identity, *flags, module.identity)
        for name, module in modules.items()
    }
    objects: dict[str, bytes] = {}
    if cache is not None:
        found = {name: cache.get(key) for name, key in keys.items()}
        objects = {name: data for name, data in found.items() if data is not None}
    missing = tuple(name for name in modules if name not in objects)
    workers = threads or settings.compile_threads or os.cpu_count() or 1
    with ThreadPoolExecutor(workers) as pool:
        work = partial(_compiled, chosen, flags)
        for name, data in zip(missing, pool.map(work, [modules[name] for name in missing])):
            objects[name] = data
            if cache is not None:
                cache.put(keys[name], data)
    if missing and cache is not None:
        cache.tidy()
    return Objects({name: objects[name] for name in modules}, missing)


def _compiled(chosen: Compiler, flags: tuple[str, ...], module: Source) -> bytes:
    text = module.text()
    with tempfile.TemporaryDirectory(prefix="anydim-") as folder:
        source, made = Path(folder, "code.c"), Path(folder, "code.o")
        source.write_text(text, "utf-8")
        command = [*chosen.command, *flags, "-c", str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not made.exists():
            raise InternalError(
                f"the C compiler refuses generated code: {' '.join(command)}\n{done.stderr}\n{text}"
            )
        return made.read_bytes()
