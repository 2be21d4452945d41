"""Module texts to object code for a processor, in parallel, with a cache on disk."""

from __future__ import annotations

from collections.abc import Mapping

from anydim.base.cache import key_of
from anydim.base.errors import InternalError
from anydim.targets.compilation import Compilation
from anydim.targets.llvm.llvm_api import OPTIONS, emit, version
from anydim.targets.processor import Processor
from anydim.targets.target import Objects, Source

ABI_VERSION = "1"  # of what generated code and its callers agree on


def compile_modules(
    modules: Mapping[str, Source], processor: Processor, threads: int = 0
) -> Objects:
    """Object code of each module for a processor, from the cache or compiled now.

    `threads` 0 takes `settings.compile_threads`. Raises InternalError for a text LLVM refuses.
    """
    with compiling(processor, threads) as work:
        return work.finish(modules)


def compiling(processor: Processor, threads: int = 0) -> Compilation:
    """The same for modules that are begun one by one."""
    return Compilation(
        lambda module: _compile(module.text(), module.processor or processor),
        lambda module: _key(module, processor),
        threads,
    )


def assembly(text: str, processor: Processor) -> str:
    """The machine code of a module as text, to look at."""
    return _emitted(text, processor, as_object=False).decode()


def _key(module: Source, processor: Processor) -> str:
    processor = module.processor or processor
    return key_of(
        ABI_VERSION, *OPTIONS, version(), processor.triple, processor.cpu, processor.features,
        module.identity,
    )  # fmt: skip


def _compile(text: str, processor: Processor) -> bytes:
    return _emitted(text, processor, as_object=True)


def _emitted(text: str, processor: Processor, as_object: bool) -> bytes:
    try:
        return emit(text, processor.triple, processor.cpu, processor.features, as_object)
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses generated code: {error}\n\n{text}") from None
