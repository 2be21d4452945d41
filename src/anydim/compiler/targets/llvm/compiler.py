"""Compiles module texts for a processor, in parallel, with a cache on disk."""

from __future__ import annotations

import re
from collections.abc import Mapping

from anydim.base.cache import key_of
from anydim.base.errors import InternalError
from anydim.compiler.kernels.ir import Kernel, Library
from anydim.compiler.targets.compilation import Compilation
from anydim.compiler.targets.llvm.llvm_api import OPTIONS, emit, version
from anydim.compiler.targets.llvm.render import is_quick, level_of, render
from anydim.compiler.targets.processor import Processor
from anydim.compiler.targets.target import Objects, Source

_FOR = re.compile(r"%b\d+\.for\.(\w+)$", re.MULTILINE)  # ends the comment on a block
_WHILE = re.compile(r"%b\d+\.while$", re.MULTILINE)
ABI_VERSION = "1"  # of the interface between generated code and callers


def compile_modules(
    modules: Mapping[str, Source], processor: Processor, threads: int = 0
) -> Objects:
    """Return the object code of each module for a processor, cached or compiled now.

    `threads` 0 uses `settings.compile_threads`. Raises InternalError for a text that LLVM rejects.
    """
    with compiling(processor, threads) as work:
        return work.finish(modules)


def compiling(processor: Processor, threads: int = 0) -> Compilation:
    """Return a compilation of modules that are begun one by one."""
    return Compilation(
        lambda module: _compile(module.text(), module.processor or processor),
        lambda module: _key(module, processor),
        threads,
    )


def assembly(text: str, processor: Processor, comments: bool = False) -> str:
    """Return the assembly of a module, for inspection; `comments` name its blocks and loops."""
    return _emit(text, processor, False, comments).decode()


def machine_code(code: Kernel | Library, processor: Processor) -> str:
    """Return the assembly of a kernel or library; each loop begins with the name of its
    variable."""
    level = level_of(code, processor)
    text = assembly(render(code, level, names=True), level, comments=True)
    return _WHILE.sub("while", _FOR.sub(r"for \1", text)).expandtabs()


def _key(module: Source, processor: Processor) -> str:
    processor = module.processor or processor
    return key_of(
        ABI_VERSION, *OPTIONS, version(), processor.triple, processor.cpu, processor.features,
        module.identity,
    )  # fmt: skip


def _compile(text: str, processor: Processor) -> bytes:
    return _emit(text, processor, as_object=True)


def _emit(text: str, processor: Processor, as_object: bool, comments: bool = False) -> bytes:
    known = (processor.triple, processor.cpu, processor.features, 0 if is_quick(text) else 2)
    try:
        return emit(text, *known, as_object, comments)
    except RuntimeError as error:
        raise InternalError(f"LLVM rejects generated code: {error}\n\n{text}") from None
