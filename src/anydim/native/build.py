"""Program -> executable: compile what is not on disk, link it with the host code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy

from anydim.base.errors import InternalError
from anydim.kernels.ir import Kernel
from anydim.native.blocks import CLEAR, LEAVE, TRIM, blocks_text
from anydim.native.emit import BIND, RUN, emit, emit_segment
from anydim.native.region_emit import MAIN, emit_regions, segment_name
from anydim.native.threads import STOP, WORKER, threads_text
from anydim.program.program import Program
from anydim.program.region_layout import Place, RegionLayout, SegmentPlace
from anydim.program.segment import Segment
from anydim.runtime.executable import Executable, Native
from anydim.runtime.layout import CODE, CONSTANTS
from anydim.runtime.region import RegionExecutable, RegionNative, RegionTables
from anydim.runtime.threads import PoolCode
from anydim.targets.target import Code, Objects, Source, Target


@dataclass(frozen=True)
class Assembled:
    """A program with what stands beside its records, by name: kernels, and arrays of constants."""

    program: Program
    kernels: Mapping[str, Kernel]
    arrays: Mapping[str, numpy.ndarray]


@dataclass(frozen=True)
class Built:
    """A program that can be called, and how many of its modules were compiled and found on disk."""

    executable: Executable | RegionExecutable
    compiled: int
    cached: int


def build(made: Assembled, target: Target, compile_threads: int = 0) -> Built:
    """Compile and load a program; `compile_threads` 0 takes the setting.

    Raises GraphError when the inputs do not tell every needed dim.
    """
    _verify(made)
    segment = made.program.straight
    if segment is None:
        return _build_regions(made, target, compile_threads)
    return _build_straight(made, segment, target, compile_threads)


def module_texts(made: Assembled, target: Target) -> dict[str, str]:
    """The text of every module of a program, by name."""
    segment = made.program.straight
    if segment is None:
        texts = _region_texts(made.program, emit_regions(made.program).text)
    else:
        texts = {"host": emit(segment).text}
    return {name: source.text() for name, source in _sources(made, texts, target).items()}


def _verify(made: Assembled) -> None:
    """Every site has the operands and sizes of its kernel, and speaks of buffers that there are."""
    for segment in made.program.segments:
        if len(segment.buffer) != len(segment.buffers):
            raise InternalError(f"{segment.signature.name}: two buffers have one name")
        for site in segment.sites:
            kernel = made.kernels.get(site.kernel)
            if kernel is None:
                raise InternalError(f"a launch of '{site.kernel}', which the program does not hold")
            operands, sizes = len(kernel.operands), len(kernel.sizes)
            if len(site.operands) != operands or len(site.sizes) != sizes:
                raise InternalError(f"'{site.kernel}' takes {operands} operands and {sizes} sizes")
            for name in site.operands:
                if name not in segment.buffer:
                    raise InternalError(f"'{site.kernel}' is launched on unknown buffer '{name}'")


def _sources(made: Assembled, texts: Mapping[str, str], target: Target) -> dict[str, Source]:
    """The modules of kernels, then those of the host."""
    kernels = [made.kernels[name] for name in _kernels(made.program)]
    around = {**texts, "threads": threads_text(target.processor.architecture)}
    host = {name: Source.of(text) for name, text in around.items()}
    return {**target.sources(kernels, target.processor), **host}


def _kernels(program: Program) -> dict[str, None]:
    """The symbols that the launches of a program start at."""
    return dict.fromkeys(site.kernel for site in program.sites)


def _compiled(
    made: Assembled, texts: Mapping[str, str], target: Target, functions: tuple[str, ...],
    threads: int,
) -> tuple[Code, Objects]:  # fmt: skip
    """Code in which the addresses of kernels and of `functions` are found."""
    if target.load is None or target.launch != "range":
        raise InternalError(f"code of {target.name} for {target.processor.name} cannot run here")
    objects = target.compile(_sources(made, texts, target), target.processor, threads)
    wanted = (*functions, *_kernels(made.program))
    return target.load(objects.code.values(), wanted), objects


def _entries(segment: Segment, loaded: Code) -> tuple[int, ...]:
    """Where the kernel of each launch begins."""
    return tuple(loaded.address(site.kernel) for site in segment.sites)


def _built(executable: Executable | RegionExecutable, objects: Objects) -> Built:
    compiled = len(objects.compiled)
    return Built(executable, compiled, len(objects.code) - compiled)


def _build_straight(made: Assembled, segment: Segment, target: Target, threads: int) -> Built:
    host = emit(segment)
    functions = (BIND, RUN, WORKER, STOP)
    loaded, objects = _compiled(made, {"host": host.text}, target, functions, threads)
    native = Native(
        bind=loaded.address(BIND),
        run=loaded.address(RUN),
        worker=loaded.address(WORKER),
        stop=loaded.address(STOP),
        entries=_entries(segment, loaded),
        keep=loaded,
    )
    executable = Executable(
        segment.signature, native, host.layout, host.checks,
        [made.arrays[name] for name in segment.constants], segment.threads, segment.positions,
    )  # fmt: skip
    return _built(executable, objects)


# ---- regions -----------------------------------------------------------------------------------


def _build_regions(made: Assembled, target: Target, threads: int) -> Built:
    program = made.program
    host = emit_regions(program)
    texts = _region_texts(program, host.text)
    functions = (MAIN, CLEAR, TRIM, LEAVE, WORKER, STOP)
    loaded, objects = _compiled(made, texts, target, functions, threads)
    pool = PoolCode(loaded.address(WORKER), loaded.address(STOP), loaded)
    run, clear, trim, leave = (loaded.address(name) for name in functions[:4])
    native = RegionNative(run, clear, trim, leave, pool)
    tables = _tables(made, host.layout, loaded)
    executable = RegionExecutable(
        program.signature, native, tables, host.failures, program.threads
    )
    return _built(executable, objects)


def _region_texts(program: Program, host: str) -> dict[str, str]:
    segments = {
        f"segment {number}": emit_segment(segment, segment_name(number)).text
        for number, segment in enumerate(program.segments)
    }
    return {**segments, "regions": host, "blocks": blocks_text()}


def _tables(made: Assembled, layout: RegionLayout, loaded: Code) -> RegionTables:
    """Where the runtime finds the inputs and results of the outermost region, and constants."""
    main, places = made.program.regions[-1], layout.regions[-1]
    inputs = [places.values[spec.name] for spec in main.signature.inputs]
    start = inputs[0] if inputs else Place(0, 0, 0)
    held = [(place, made.arrays[name]) for place, name in _constants(made.program, layout)]
    segments = _segments(made.program, layout)
    return RegionTables(
        words=layout.words,
        inputs=start.data,
        shapes=start.shape,
        results=tuple((place.data, place.owner, place.shape) for place in places.results),
        constants=tuple((place.data, array) for place, array in held),
        tables=tuple((place.base + CONSTANTS, tuple(made.arrays[n] for n in segment.constants))
                     for segment, place in segments),
        entries=tuple((place.base + CODE, _entries(segment, loaded))
                      for segment, place in segments),
        numbers=tuple((place.shape + axis, size) for place, array in held
                      for axis, size in enumerate(array.shape)),
    )  # fmt: skip


def _constants(program: Program, layout: RegionLayout) -> Iterator[tuple[Place, str]]:
    """The constants of regions, and where their words are."""
    for region, places in zip(program.regions, layout.regions):
        for value, name in region.constants.items():
            yield places.values[value], name


def _segments(program: Program, layout: RegionLayout) -> list[tuple[Segment, SegmentPlace]]:
    places = (place for region in layout.regions for place in region.segments.values())
    return list(zip(program.segments, places))
