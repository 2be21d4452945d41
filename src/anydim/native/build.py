"""Program -> executable: compile what is not on disk, link it with the host code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy

from anydim.base.errors import InternalError
from anydim.kernels.ir import Kernel, Library
from anydim.native.blocks import CLEAR, LEAVE, TRIM, blocks_code
from anydim.native.emit import BIND, RUN, emit, emit_segment
from anydim.native.region_emit import MAIN, RegionHost, emit_regions, segment_name
from anydim.native.threads import STOP, WORKER, threads_code
from anydim.program.program import Program
from anydim.program.region_layout import Place, RegionLayout, SegmentPlace
from anydim.program.segment import Segment
from anydim.runtime.executable import Executable
from anydim.runtime.layout import CODE, CONSTANTS
from anydim.runtime.region import RegionExecutable
from anydim.runtime.start import RegionStart, Start, StraightStart, start
from anydim.targets.target import Source, Target


@dataclass(frozen=True)
class Assembled:
    """A program with what stands beside its records, by name: kernels, and arrays of constants."""

    program: Program
    kernels: Mapping[str, Kernel]
    arrays: Mapping[str, numpy.ndarray]


@dataclass(frozen=True)
class Prepared:
    """A program as texts: its modules, the symbols that its code is entered at, how it starts."""

    sources: Mapping[str, Source]
    entries: tuple[str, ...]
    start: Start


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
    if target.load is None:
        raise InternalError(f"code of {target.name} for {target.processor.name} cannot run here")
    prepared = prepare(made, target)
    objects = target.compile(prepared.sources, target.processor, compile_threads)
    loaded = target.load(objects.code.values(), prepared.entries)
    addresses = [loaded.address(symbol) for symbol in prepared.entries]
    executable = start(prepared.start, made.arrays, addresses.__getitem__, loaded)
    compiled = len(objects.compiled)
    return Built(executable, compiled, len(objects.code) - compiled)


def prepare(made: Assembled, target: Target) -> Prepared:
    """A program for a target, with nothing compiled yet; errors are those of `build`."""
    if target.launch != "range":
        raise InternalError(f"host code launches no kernels of {target.name}")
    _verify(made)
    segment = made.program.straight
    if segment is None:
        return _prepare_regions(made, target)
    host = emit(segment)
    entries = (BIND, RUN, WORKER, STOP, *_kernels(made.program))
    record = StraightStart(
        signature=segment.signature,
        layout=host.layout,
        checks=host.checks,
        positions=segment.positions,
        constants=tuple(segment.constants),
        launches=_launches(segment, entries),
        threads=segment.threads,
    )
    return Prepared(_sources(made, [host.code], target), entries, record)


def module_texts(made: Assembled, target: Target) -> dict[str, str]:
    """The text of every module of a program, by name."""
    return {name: source.text() for name, source in prepare(made, target).sources.items()}


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


def _sources(made: Assembled, host: Sequence[Library], target: Target) -> dict[str, Source]:
    """The modules of kernels, then those of the host."""
    kernels = [made.kernels[name] for name in _kernels(made.program)]
    return target.sources([*kernels, *host, threads_code()], target.processor)


def _kernels(program: Program) -> dict[str, None]:
    """The symbols that the launches of a program start at."""
    return dict.fromkeys(site.kernel for site in program.sites)


def _launches(segment: Segment, entries: Sequence[str]) -> tuple[int, ...]:
    """The number of the entry of each launch."""
    numbers = {symbol: number for number, symbol in enumerate(entries)}
    return tuple(numbers[site.kernel] for site in segment.sites)


# ---- regions -----------------------------------------------------------------------------------


def _prepare_regions(made: Assembled, target: Target) -> Prepared:
    program = made.program
    host = emit_regions(program)
    entries = (MAIN, CLEAR, TRIM, LEAVE, WORKER, STOP, *_kernels(program))
    sources = _sources(made, _region_code(program, host), target)
    return Prepared(sources, entries, _region_start(program, host, entries))


def _region_code(program: Program, host: RegionHost) -> list[Library]:
    parts = (emit_segment(part, segment_name(n)) for n, part in enumerate(program.segments))
    return [*parts, host.code, blocks_code()]


def _region_start(program: Program, host: RegionHost, entries: Sequence[str]) -> RegionStart:
    """Where the runtime finds the inputs and results of the outermost region, and constants."""
    layout = host.layout
    main, places = program.regions[-1], layout.regions[-1]
    inputs = [places.values[spec.name] for spec in main.signature.inputs]
    first = inputs[0] if inputs else Place(0, 0, 0)
    shapes = {constant.name: constant.shape for constant in program.constants}
    held = list(_constants(program, layout))
    segments = _segments(program, layout)
    return RegionStart(
        signature=program.signature,
        words=layout.words,
        inputs=first.data,
        shapes=first.shape,
        results=tuple((place.data, place.owner, place.shape) for place in places.results),
        constants=tuple((place.data, name) for place, name in held),
        tables=tuple((place.base + CONSTANTS, tuple(segment.constants))
                     for segment, place in segments),
        launches=tuple((place.base + CODE, _launches(segment, entries))
                       for segment, place in segments),
        numbers=tuple((place.shape + axis, size) for place, name in held
                      for axis, size in enumerate(shapes[name])),
        failures=tuple(host.failures),
        threads=program.threads,
    )  # fmt: skip


def _constants(program: Program, layout: RegionLayout) -> Iterator[tuple[Place, str]]:
    """The constants of regions, and where their words are."""
    for region, places in zip(program.regions, layout.regions):
        for value, name in region.constants.items():
            yield places.values[value], name


def _segments(program: Program, layout: RegionLayout) -> list[tuple[Segment, SegmentPlace]]:
    places = (place for region in layout.regions for place in region.segments.values())
    return list(zip(program.segments, places))
