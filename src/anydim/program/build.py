"""Program -> executable: render kernels and host code, compile what is not on disk, link."""

from __future__ import annotations

from anydim.program.emit import BIND, RUN, emit
from anydim.program.steps import Program
from anydim.program.threads import STOP, WORKER, threads_text
from anydim.runtime.executable import Executable, Native
from anydim.targets.llvm.compiler import compile_modules
from anydim.targets.llvm.host import machine
from anydim.targets.llvm.loader import load
from anydim.targets.llvm.render import render_kernel, render_library


def modules(program: Program, vector_bytes: int) -> dict[str, str]:
    """The text of every kernel and every library they use, each once, by name."""
    libraries = {library.name: library for k in program.kernels for library in k.libraries}
    texts = {
        f"library {name}": render_library(library, vector_bytes)
        for name, library in libraries.items()
    }
    for kernel in program.kernels:
        texts[f"kernel {kernel.name}"] = render_kernel(kernel, vector_bytes)
    return texts


def build(program: Program, compile_threads: int = 0) -> Executable:
    """Compile and load a program; `compile_threads` 0 takes the setting.

    Raises GraphError when the inputs do not tell every needed dim.
    """
    host = emit(program)
    texts = modules(program, machine().vector_bytes)
    texts |= {"host": host.text, "threads": threads_text()}
    objects = compile_modules(texts, compile_threads)
    loaded = load(objects.values(), (BIND, RUN, WORKER, STOP))
    native = Native(
        bind=loaded.address(BIND),
        run=loaded.address(RUN),
        worker=loaded.address(WORKER),
        stop=loaded.address(STOP),
        keep=loaded,
    )
    constants = tuple(program.constants.values())
    return Executable(
        program.signature, native, host.layout, host.checks, constants, program.threads
    )
