"""Compiles C files for a processor, in parallel, with a cache on disk."""

from __future__ import annotations

import subprocess
import tempfile
from functools import partial
from pathlib import Path

from anydim.base.cache import key_of
from anydim.base.errors import InternalError
from anydim.compiler.targets.c.compilers import Compiler, compiler
from anydim.compiler.targets.compilation import Compilation
from anydim.compiler.targets.processor import Processor
from anydim.compiler.targets.target import Source

ABI_VERSION = "1"  # of the interface between generated code and callers


def compiling(processor: Processor, threads: int = 0) -> Compilation:
    """Return a compilation of modules that are begun one by one."""
    chosen = compiler()
    flags = chosen.flags(processor)
    return Compilation(
        partial(_compile, chosen, flags),
        lambda module: key_of(ABI_VERSION, chosen.identity, *flags, module.identity),
        threads,
    )


def _compile(chosen: Compiler, flags: tuple[str, ...], module: Source) -> bytes:
    text = module.text()
    with tempfile.TemporaryDirectory(prefix="anydim-") as folder:
        source, made = Path(folder, "code.c"), Path(folder, "code.o")
        source.write_text(text, "utf-8")
        command = [*chosen.command, *flags, "-c", str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not made.exists():
            raise InternalError(
                f"the C compiler rejects generated code: {' '.join(command)}\n{done.stderr}\n{text}"
            )
        return made.read_bytes()
