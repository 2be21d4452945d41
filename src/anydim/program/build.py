"""Program -> executable: compile what is not on disk, link it with the host code."""

from __future__ import annotations

from dataclasses import dataclass

from anydim.program.emit import BIND, RUN, Host, emit
from anydim.program.steps import Program
from anydim.program.threads import STOP, WORKER, threads_text
from anydim.runtime.executable import Executable, Native
from anydim.targets.target import Source, Target


@dataclass(frozen=True)
class Built:
    """A program that can be called, and how many of its modules were compiled and found on disk."""

    executable: Executable
    compiled: int
    cached: int


def build(program: Program, target: Target, compile_threads: int = 0) -> Built:
    """Compile and load a program; `compile_threads` 0 takes the setting.

    Raises GraphError when the inputs do not tell every needed dim.
    """
    host = emit(program)
    objects = target.compile(_sources(program, host, target), compile_threads)
    loaded = target.load(objects.code.values(), (BIND, RUN, WORKER, STOP))
    native = Native(
        bind=loaded.address(BIND),
        run=loaded.address(RUN),
        worker=loaded.address(WORKER),
        stop=loaded.address(STOP),
        keep=loaded,
    )
    executable = Executable(
        program.signature, native, host.layout, host.checks,
        tuple(program.constants.values()), program.threads, program.positions,
    )  # fmt: skip
    compiled = len(objects.compiled)
    return Built(executable, compiled, len(objects.code) - compiled)


def module_texts(program: Program, target: Target) -> dict[str, str]:
    """The text of every module of a program, by name."""
    sources = _sources(program, emit(program), target)
    return {name: source.text() for name, source in sources.items()}


def _sources(program: Program, host: Host, target: Target) -> dict[str, Source]:
    around = {"host": Source.of(host.text), "threads": Source.of(threads_text())}
    return {**target.sources(program.kernels, target.machine()), **around}
