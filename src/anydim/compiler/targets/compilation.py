"""Concurrent compilation of modules, begun one by one while others are still being made.

Cached modules are loaded; threads generate and compile the others. Settings apply as they were when
a module was begun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context

from anydim.base import settings
from anydim.base.cache import user_cache
from anydim.compiler.targets.target import Objects, Source
from anydim.runtime.cores import available_cores


class Compilation:
    """Compiles with `compiled` and caches objects by `key`; `threads` 0 uses the setting.

    With one thread nothing runs before `finish`. At the end of a `with` block no thread is running.
    """

    def __init__(
        self, compiled: Callable[[Source], bytes], key: Callable[[Source], str], threads: int = 0
    ) -> None:
        workers = threads or settings.compile_threads or available_cores()
        self._compiled, self._key = compiled, key
        self._cache = user_cache()
        self._pool = ThreadPoolExecutor(workers) if workers > 1 else None
        self._found: dict[str, bytes] = {}  # by the source's identity
        self._begun: dict[str, Future[bytes]] = {}
        self._beside: list[Future[None]] = []

    def begin(self, modules: Mapping[str, Source]) -> None:
        """Start compiling these modules, except for cached and started ones."""
        for source in modules.values():
            identity = source.identity
            if self._pool is None or identity in self._begun or identity in self._found:
                continue
            if not self._is_kept(source):
                run = copy_context().run
                self._begun[identity] = self._pool.submit(run, self._compile_and_cache, source)

    def beside(self, work: Callable[[], None]) -> None:
        """Run work concurrently that does not hold the interpreter's lock for long."""
        if self._pool is None:
            work()
        else:
            self._beside.append(self._pool.submit(copy_context().run, work))

    def finish(self, modules: Mapping[str, Source]) -> Objects:
        """Return the objects of these modules, begun or not; all other work is done."""
        self.begin(modules)
        code, compiled = {}, []
        for name, source in modules.items():
            identity = source.identity
            if identity not in self._begun and identity not in self._found:
                if not self._is_kept(source):
                    self._begun[identity] = Future()
                    self._begun[identity].set_result(self._compile_and_cache(source))
            if identity in self._begun:
                compiled.append(name)
                code[name] = self._begun[identity].result()
            else:
                code[name] = self._found[identity]
        for work in self._beside:
            work.result()
        if compiled and self._cache is not None:
            self._cache.tidy()
        return Objects(code, tuple(compiled))

    def _is_kept(self, source: Source) -> bool:
        """Whether the cache has the object, which is then loaded."""
        data = None if self._cache is None else self._cache.get(self._key(source))
        if data is not None:
            self._found[source.identity] = data
        return data is not None

    def _compile_and_cache(self, source: Source) -> bytes:
        data = self._compiled(source)
        if self._cache is not None:
            self._cache.put(self._key(source), data)
        return data

    def __enter__(self) -> Compilation:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
