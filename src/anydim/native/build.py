"""Program -> executable: compile what is not on disk, link it with the host code."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy

from anydim.base.errors import InternalError, OptionError
from anydim.base.records import dataclass
from anydim.kernels.ir import Kernel, Library
from anydim.native.host import host_of
from anydim.native.invoke import invoke_code
from anydim.native.threads import threads_code
from anydim.program.program import Program
from anydim.runtime.executable import Executable, Image
from anydim.runtime.interface import Interface
from anydim.runtime.loading import executable
from anydim.targets.target import Compiling, Source, Target

if TYPE_CHECKING:
    from anydim.devices.engines.engine import Engine
    from anydim.targets.device_targets import Placed


@dataclass(frozen=True)
class Assembled:
    """A program with what stands beside its records, by name: kernels, and arrays of constants."""

    program: Program
    kernels: Mapping[str, Kernel]
    arrays: Mapping[str, numpy.ndarray]


@dataclass(frozen=True)
class Prepared:
    """A program as texts of modules, by name, and what their code asks of whoever calls it."""

    sources: Mapping[str, Source]
    interface: Interface


@dataclass(frozen=True)
class Built:
    """A program that can be called, and how many of its modules were compiled and found on disk."""

    executable: Executable[Any]
    compiled: int
    cached: int


def build(
    made: Assembled, target: Target, work: Compiling,
    devices: Mapping[str, Placed] | None = None, engines: Mapping[str, Engine] | None = None,
) -> Built:  # fmt: skip
    """Compile and load a program, whose kernels may be begun in `work`.

    `devices` and `engines` are those that its names stand for. Raises GraphError when the inputs
    do not tell every needed dim, DeviceError where one does not take its code or part.
    """
    if target.load is None:
        raise InternalError(f"code of {target.name} for {target.processor.name} cannot run here")
    prepared, program = prepare(made, target), made.program
    objects = work.finish(prepared.sources)
    loaded = target.load(objects.code.values(), prepared.interface.symbols)
    image = Image(loaded.address, loaded)
    verbs = prepared.interface.verbs(image.address)
    hosted = {
        each.name: (devices or {})[each.name].hosted([made.kernels[n] for n in each.symbols], verbs)
        for each in prepared.interface.devices
    }
    handed = None
    if prepared.interface.handed:
        handed = import_module("anydim.devices.engines.delegated").HandedParts(
            prepared.interface.handed, engines or {}, made.arrays, program.threads
        )
    run = executable(
        program.signature, prepared.interface, image, made.arrays, program.threads, hosted, handed
    )
    compiled = len(objects.compiled)
    return Built(run, compiled, len(objects.code) - compiled)


def begin_host(target: Target, work: Compiling) -> None:
    """Have compiled what the host of every program takes."""
    work.begin(target.sources([threads_code(), invoke_code()], target.processor))


def begin(code: Kernel | Library, target: Target, work: Compiling) -> None:
    """Have a kernel compiled, with its libraries, while the rest of its program is made."""
    work.begin(target.sources([code], target.processor))


def prepare(made: Assembled, target: Target) -> Prepared:
    """A program for a target, with nothing compiled yet; errors are those of `build`."""
    if target.launch != "range":
        raise OptionError(
            f"target '{target.name}' makes code for devices, none of a host",
            "compile for another target, and give parts a device: devices={'accel': 'opencl:0'}",
        )
    code, interface = modules(made)
    return Prepared(target.sources(code, target.processor), interface)


def modules(made: Assembled) -> tuple[tuple[Kernel | Library, ...], Interface]:
    """The host of a program and its kernels as loop IR; errors are those of `build`."""
    _verify(made)
    host = host_of(made.program)
    segments = (segment for segment in made.program.segments if not segment.device)
    names = dict.fromkeys(site.kernel for segment in segments for site in segment.sites)
    return (*(made.kernels[name] for name in names), *host.code), host.interface


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
