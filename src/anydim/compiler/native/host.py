"""Program -> the code of its host, and the interface of that code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from anydim.base.records import dataclass
from anydim.base.text import fold_lines
from anydim.compiler.kernels.ir import Library
from anydim.compiler.kernels.ir_text import print_library
from anydim.compiler.native.blocks import (
    CLEAR,
    DEVICE,
    LEAVE,
    TRIM,
    blocks_code,
    device_blocks_code,
)
from anydim.compiler.native.emit import BIND, RUN, emit, layout_of, stops
from anydim.compiler.native.invoke import INVOKE, INVOKE_REGIONS, invoke_code
from anydim.compiler.native.region_code import resident_copies
from anydim.compiler.native.region_emit import MAIN, emit_regions
from anydim.compiler.native.stopping import KINDS
from anydim.compiler.native.threads import STOP, WORKER, threads_code
from anydim.runtime.checks import Check
from anydim.runtime.delegated import DelegatedPart, Port
from anydim.runtime.failures import Failure
from anydim.runtime.interface import Interface, OnDevice, SetupSlots
from anydim.runtime.layout import CODE, CONSTANTS, POINTERS, Layout
from anydim.runtime.program.program import Program
from anydim.runtime.program.region import CopyStep, LoopStep, Region
from anydim.runtime.program.region_layout import RegionLayout, SegmentSlots, ValueSlots
from anydim.runtime.program.segment import Segment
from anydim.sizes import SizeNames

_SAME = (
    "blocks",
    "device blocks",
    "device verbs",
    "invoke",
    "threads",
)  # modules independent of the program
_POOL = {"worker": WORKER, "stop": STOP}
_STRAIGHT = {"bind": BIND, "run": RUN, "invoke": INVOKE, **_POOL}
_REGIONS = {
    "run": MAIN, "invoke": INVOKE_REGIONS, "clear": CLEAR, "trim": TRIM, "leave": LEAVE, **_POOL,
}  # fmt: skip


@dataclass(frozen=True)
class Host:
    """Modules of the host, and the interface of their code."""

    code: tuple[Library, ...]
    interface: Interface


def host_of(program: Program) -> Host:
    """Return the host of a program; raises GraphError if the inputs do not determine all dims."""
    segment = program.straight
    host = _regions(program) if segment is None else _straight(segment)
    return Host((*host.code, invoke_code(), threads_code()), host.interface)


def host_text(program: Program) -> str:
    """Return the program's own host code as loop IR, after the sizes in its slots."""
    own = (module for module in host_of(program).code if module.name not in _SAME)
    slots = (line for segment in program.segments for line in _slots_text(segment))
    return "\n".join([fold_lines("\n".join(slots)), *map(print_library, own)])


def _slots_text(segment: Segment) -> Iterator[str]:
    """Yield the sizes in slots of a segment's block, and the first slots of launches."""
    first, names = layout_of(segment).first_slot, SizeNames(segment.slots)
    yield f"slots of {segment.signature.name}"
    yield from (f"  {line}" for line in names.lines())
    for slot, size in enumerate(segment.slots, first):
        yield f"  block.at[{slot}] is {names.text(size)}"
    for start, site in zip(segment.arguments, segment.sites):
        yield f"  block.at[{first + start}] has arguments of {site.kernel}"


# ---- straight programs -------------------------------------------------------------------------


def _straight(segment: Segment) -> Host:
    made = emit(segment)
    layout, inputs = made.layout, len(segment.signature.inputs)
    failures = (*_bind_failures(segment, layout, made.checks), *_position_failures(segment, layout))
    if stops(segment):
        failures += tuple(Failure(kind, segment.signature) for kind in KINDS)
    interface = Interface(
        functions=_STRAIGHT,
        words=layout.words,
        inputs=POINTERS,
        shapes=layout.input_shapes,
        results=tuple((layout.pointer(inputs + n), 0, layout.output_axis(n, 0))
                      for n in range(len(segment.signature.outputs))),
        constants=(),
        tables=((CONSTANTS, segment.constants),),
        entries=((CODE, _kernels(segment)),),
        numbers=(),
        failures=(*failures, Failure("memory", segment.signature, _dims(segment, layout))),
        bound=len(made.checks),
        requested_dims=made.requested_dims,
        updates=segment.updates,
        setups=tuple(_setups(segment, layout)),
    )  # fmt: skip
    return Host((made.code,), interface)


def _setups(segment: Segment, layout: Layout) -> Iterator[SetupSlots]:
    dims = _dims(segment, layout)
    for number, setup in enumerate(segment.setups):
        yield SetupSlots(layout.setup(number), tuple(dims[name] for name in setup.dims))


def _dims(segment: Segment, layout: Layout) -> dict[str, int]:
    """Return the slots of the dims."""
    return {name: layout.first_dim + n for n, name in enumerate(segment.signature.box.names)}


def _bind_failures(
    segment: Segment, layout: Layout, checks: tuple[Check, ...]
) -> Iterator[Failure]:
    signature, dims = segment.signature, _dims(segment, layout)
    shapes = tuple(
        tuple(layout.input_axis(number, axis) for axis in range(spec.rank))
        for number, spec in enumerate(signature.inputs)
    )
    for check in checks:
        yield Failure("check", signature, dims, check=check, shapes=shapes)


def _position_failures(segment: Segment, layout: Layout) -> Iterator[Failure]:
    dims = _dims(segment, layout)
    for number, position in enumerate(segment.positions):
        word = layout.first_status + number
        yield Failure("position", segment.signature, dims, position=position, found=word)


def _kernels(segment: Segment) -> tuple[str, ...]:
    return tuple(site.kernel for site in segment.sites)


# ---- programs of regions -------------------------------------------------------------------------


def _regions(program: Program) -> Host:
    made = emit_regions(program)
    layout, entry = made.layout, made.layout.regions[-1]
    inputs = [entry.values[spec.name] for spec in program.signature.inputs]
    start = inputs[0] if inputs else ValueSlots(0, 0, 0)
    held, segments = list(_constants(program, layout)), _segments(program, layout)
    own = [(segment, block) for segment, block in segments if not segment.device]
    shapes = {constant.name: constant.shape for constant in program.constants}
    interface = Interface(
        functions={**_REGIONS, **_of_devices()} if layout.homes else _REGIONS,
        words=layout.words,
        inputs=start.data,
        shapes=start.shape,
        results=tuple((value.data, value.owner, value.shape) for value in entry.results),
        constants=tuple((value.data, name) for value, name, device in held if not device),
        tables=tuple((block.base + CONSTANTS, segment.constants) for segment, block in own),
        entries=tuple((block.base + CODE, _kernels(segment)) for segment, block in own),
        numbers=tuple((value.shape + axis, size) for value, name, _ in held
                      for axis, size in enumerate(shapes[name])),
        failures=made.failures,
        requested_dims=tuple((dim, entry.dims[dim]) for dim in made.requested_dims),
        updates=tuple(_updates(program.regions[-1])),
        devices=tuple(_on_device(device, layout, held, segments) for device in layout.homes),
        handed=tuple(_delegated_parts(program, layout)),
        resident=tuple(_resident(program.regions[-1], entry.events)),
    )  # fmt: skip
    more = (device_blocks_code(), _device_api().entry_points_code()) if layout.homes else ()
    blocks = (blocks_code(), *more)
    return Host((*made.code, *blocks), interface)


def _resident(region: Region, events: Mapping[int, int]) -> Iterator[tuple[str, str, int]]:
    """Yield values that may stay on a device: name, device, slot that says so."""
    for number, name in resident_copies(region).items():
        step = region.steps[number]
        assert isinstance(step, CopyStep)
        yield name, step.target or step.origin, events[number]


def _updates(region: Region) -> Iterator[tuple[str, str]]:
    """Yield pairs of a result and the input whose memory it takes."""
    for step in region.steps:
        if isinstance(step, LoopStep):
            for name, stack in zip(step.makes[len(step.carried) :], step.stacks):
                if stack.in_place and stack.initial is not None:
                    yield name, stack.initial


def _of_devices() -> dict[str, str]:
    """Return the functions of programs with devices."""
    own = {
        "device_clear": DEVICE.function(CLEAR), "device_trim": DEVICE.function(TRIM),
        "device_leave": DEVICE.function(LEAVE),
    }  # fmt: skip
    return {**own, **_device_api().ENTRY_POINTS}


def _device_api() -> Any:
    return import_module("anydim.compiler.native.device_api.table")


def _delegated_parts(program: Program, layout: RegionLayout) -> Iterator[DelegatedPart]:
    """Yield the delegated parts with their slots."""
    for region, slots in zip(program.regions, layout.regions):
        for step, part in zip(region.handed, slots.handed.values()):
            ports = [
                tuple(Port(known, spec.dtype, spec.rank) for known, spec in zip(names, specs))
                for names, specs in (
                    (step.inputs, [region.values[name] for name in step.reads]),
                    (step.outputs, [region.values[name] for name in step.makes]),
                )
            ]
            vectors = tuple((name, len(sizes)) for name, sizes in step.vectors)
            yield DelegatedPart(
                step.engine, step.model, step.source, part.function, part.first,
                ports[0], vectors, ports[1],
            )  # fmt: skip


def _on_device(
    device: str, layout: RegionLayout, held: Sequence[tuple[ValueSlots, str, str]],
    segments: Sequence[tuple[Segment, SegmentSlots]],
) -> OnDevice:  # fmt: skip
    own = [(segment, block) for segment, block in segments if segment.device == device]
    return OnDevice(
        name=device,
        home=layout.homes[device],
        constants=tuple((value.data, name) for value, name, where in held if where == device),
        tables=tuple((block.base + CONSTANTS, segment.constants) for segment, block in own),
        entries=tuple((block.base + CODE, _kernels(segment)) for segment, block in own),
    )


def _constants(program: Program, layout: RegionLayout) -> Iterator[tuple[ValueSlots, str, str]]:
    """Yield the constants of regions with their slots and devices."""
    for region, slots in zip(program.regions, layout.regions):
        for value, name in region.constants.items():
            yield slots.values[value], name, region.devices.get(value, "")


def _segments(program: Program, layout: RegionLayout) -> list[tuple[Segment, SegmentSlots]]:
    blocks = (block for region in layout.regions for block in region.segments.values())
    return list(zip(program.segments, blocks))
