"""Program -> executable: compile what is not on disk, link it with the host code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy

from anydim.base.errors import InternalError
from anydim.native.blocks import CLEAR, LEAVE, TRIM, blocks_text
from anydim.native.emit import BIND, RUN, Host, emit, emit_segment
from anydim.native.region_emit import MAIN, RegionHost, emit_regions, segment_name
from anydim.native.threads import STOP, WORKER, threads_text
from anydim.program.region import RegionProgram
from anydim.program.region_layout import Place, RegionLayout, SegmentPlace
from anydim.program.steps import Program
from anydim.runtime.executable import Executable, Native
from anydim.runtime.layout import CODE, CONSTANTS
from anydim.runtime.region import RegionExecutable, RegionNative, RegionTables
from anydim.runtime.threads import PoolCode
from anydim.targets.target import Code, Objects, Source, Target


@dataclass(frozen=True)
class Built:
    """A program that can be called, and how many of its modules were compiled and found on disk."""

    executable: Executable | RegionExecutable
    compiled: int
    cached: int


def build(
    program: Program | RegionProgram, target: Target, compile_threads: int = 0
) -> Built:
    """Compile and load a program; `compile_threads` 0 takes the setting.

    Raises GraphError when the inputs do not tell every needed dim.
    """
    if isinstance(program, RegionProgram):
        return _build_regions(program, target, compile_threads)
    host = emit(program)
    objects = target.compile(
        _sources(program, host, target), target.processor, compile_threads
    )
    loaded = _loaded(target, objects, (BIND, RUN, WORKER, STOP, *_kernels(program)))
    native = Native(
        bind=loaded.address(BIND),
        run=loaded.address(RUN),
        worker=loaded.address(WORKER),
        stop=loaded.address(STOP),
        entries=_entries(program, loaded),
        keep=loaded,
    )
    executable = Executable(
        program.signature, native, host.layout, host.checks,
        tuple(program.constants.values()), program.threads, program.positions,
    )  # fmt: skip
    return _built(executable, objects)


def module_texts(program: Program | RegionProgram, target: Target) -> dict[str, str]:
    """The text of every module of a program, by name."""
    if isinstance(program, RegionProgram):
        sources = _region_sources(program, emit_regions(program), target)
    else:
        sources = _sources(program, emit(program), target)
    return {name: source.text() for name, source in sources.items()}


def _built(executable: Executable | RegionExecutable, objects: Objects) -> Built:
    compiled = len(objects.compiled)
    return Built(executable, compiled, len(objects.code) - compiled)


def _loaded(target: Target, objects: Objects, symbols: tuple[str, ...]) -> Code:
    if target.load is None or target.launch != "range":
        raise InternalError(f"code of {target.name} for {target.processor.name} cannot run here")
    return target.load(objects.code.values(), symbols)


def _sources(program: Program, host: Host, target: Target) -> dict[str, Source]:
    threads = threads_text(target.processor.architecture)
    around = {"host": Source.of(host.text), "threads": Source.of(threads)}
    return {**target.sources(program.kernels, target.processor), **around}


def _kernels(program: Program) -> Iterator[str]:
    """The symbols that the launches of a program start at."""
    return (kernel.name for kernel in program.kernels)


def _entries(program: Program, loaded: Code) -> tuple[int, ...]:
    """Where the kernel of each launch begins."""
    return tuple(loaded.address(step.kernel) for step in program.steps)


# ---- regions -----------------------------------------------------------------------------------


def _build_regions(program: RegionProgram, target: Target, compile_threads: int) -> Built:
    host = emit_regions(program)
    objects = target.compile(
        _region_sources(program, host, target), target.processor, compile_threads
    )
    functions = (MAIN, CLEAR, TRIM, LEAVE, WORKER, STOP)
    kernels = (symbol for part in program.segments for symbol in _kernels(part))
    loaded = _loaded(target, objects, (*functions, *kernels))
    pool = PoolCode(loaded.address(WORKER), loaded.address(STOP), loaded)
    run, clear, trim, leave = (loaded.address(name) for name in functions[:4])
    native = RegionNative(run, clear, trim, leave, pool)
    tables = _tables(program, host.layout, loaded)
    executable = RegionExecutable(
        program.signature, native, tables, host.failures, program.threads
    )
    return _built(executable, objects)


def _region_sources(program: RegionProgram, host: RegionHost, target: Target) -> dict[str, Source]:
    kernels = {kernel.name: kernel for part in program.segments for kernel in part.kernels}
    segments = {
        f"segment {number}": Source.of(emit_segment(part, segment_name(number)).text)
        for number, part in enumerate(program.segments)
    }
    return {
        **target.sources(kernels.values(), target.processor),
        **segments,
        "regions": Source.of(host.text),
        "blocks": Source.of(blocks_text()),
        "threads": Source.of(threads_text(target.processor.architecture)),
    }


def _tables(program: RegionProgram, layout: RegionLayout, loaded: Code) -> RegionTables:
    """Where the runtime finds the inputs and results of the outermost region, and constants."""
    main, places = program.regions[-1], layout.regions[-1]
    inputs = [places.values[spec.name] for spec in main.signature.inputs]
    start = inputs[0] if inputs else Place(0, 0, 0)
    return RegionTables(
        words=layout.words,
        inputs=start.data,
        shapes=start.shape,
        results=tuple((place.data, place.owner, place.shape) for place in places.results),
        constants=tuple(_constants(program, layout)),
        tables=tuple(_constant_tables(program, layout)),
        entries=tuple(_code_tables(program, layout, loaded)),
        numbers=tuple(_constant_sizes(program, layout)),
    )


def _constants(
    program: RegionProgram, layout: RegionLayout
) -> Iterator[tuple[int, numpy.ndarray]]:
    for region, places in zip(program.regions, layout.regions):
        for name, array in region.constants.items():
            yield places.values[name].data, array


def _constant_sizes(program: RegionProgram, layout: RegionLayout) -> Iterator[tuple[int, int]]:
    for region, places in zip(program.regions, layout.regions):
        for name, array in region.constants.items():
            for axis, size in enumerate(array.shape):
                yield places.values[name].shape + axis, size


def _constant_tables(
    program: RegionProgram, layout: RegionLayout
) -> Iterator[tuple[int, tuple[numpy.ndarray, ...]]]:
    for part, place in _segments(program, layout):
        yield place.base + CONSTANTS, tuple(part.constants.values())


def _code_tables(
    program: RegionProgram, layout: RegionLayout, loaded: Code
) -> Iterator[tuple[int, tuple[int, ...]]]:
    for part, place in _segments(program, layout):
        yield place.base + CODE, _entries(part, loaded)


def _segments(
    program: RegionProgram, layout: RegionLayout
) -> Iterator[tuple[Program, SegmentPlace]]:
    places = (place for region in layout.regions for place in region.segments.values())
    return zip(program.segments, places)
