"""Program -> executable: compiles uncached modules and links them with the host code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy

from anydim.base.errors import InternalError, OptionError
from anydim.base.records import dataclass
from anydim.compiler.kernels.ir import Kernel, Library
from anydim.compiler.native.host import Host, host_of
from anydim.compiler.native.invoke import invoke_code
from anydim.compiler.native.threads import threads_code
from anydim.compiler.targets.target import Compiling, Source, Target
from anydim.runtime.executable import Executable, Image
from anydim.runtime.interface import Interface
from anydim.runtime.loading import executable
from anydim.runtime.panels import Packing
from anydim.runtime.program.program import Program

if TYPE_CHECKING:
    from anydim.compiler.targets.device_targets import DeviceTarget
    from anydim.runtime.devices.engines.engine import Engine


@dataclass(frozen=True)
class Assembled:
    """A program with its kernels and constant arrays, by name, and the layouts of packed ones."""

    program: Program
    kernels: Mapping[str, Kernel]
    arrays: Mapping[str, numpy.ndarray]
    packings: Mapping[str, Packing] = field(default_factory=dict)

    @cached_property
    def host(self) -> Host:
        """The host code of the program."""
        return host_of(self.program)


@dataclass(frozen=True)
class Prepared:
    """The module texts of a program, by name, and the interface of their code."""

    sources: Mapping[str, Source]
    interface: Interface


@dataclass(frozen=True)
class Built:
    """A callable program, and the numbers of modules compiled and found on disk."""

    executable: Executable[Any]
    compiled: int
    cached: int


def build(
    made: Assembled, target: Target, work: Compiling,
    devices: Mapping[str, DeviceTarget] | None = None, engines: Mapping[str, Engine] | None = None,
) -> Built:  # fmt: skip
    """Compile and load a program; its kernels may be compiling in `work` already.

    `devices` and `engines` are those that its names refer to. Raises GraphError if the inputs do
    not determine every needed dim, DeviceError if a device rejects its code or an engine its part.
    """
    if target.load is None:
        raise InternalError(f"code of {target.name} for {target.processor.name} cannot run here")
    prepared, program = prepare(made, target), made.program
    objects = work.finish(prepared.sources)
    loaded = target.load(objects.code.values(), prepared.interface.symbols)
    image = Image(loaded.address, loaded)
    verbs = prepared.interface.verbs(image.address)
    hosted = {
        each.name: (devices or {})[each.name].load_kernels(
            [made.kernels[n] for n in each.symbols], verbs
        )
        for each in prepared.interface.devices
    }
    handed = None
    if prepared.interface.handed:
        from anydim.runtime.devices.engines.delegated import LoadedParts

        handed = LoadedParts(prepared.interface.handed, engines or {}, made.arrays, program.threads)
    run = executable(
        program.signature, prepared.interface, image, made.arrays, program.threads, hosted, handed
    )
    compiled = len(objects.compiled)
    return Built(run, compiled, len(objects.code) - compiled)


def begin_host(target: Target, work: Compiling) -> None:
    """Start compiling the host modules that every program has."""
    work.begin(target.sources([threads_code(), invoke_code()], target.processor))


def begin(code: Kernel | Library, target: Target, work: Compiling) -> None:
    """Start compiling a kernel and its libraries while the rest of the program is compiled."""
    work.begin(target.sources([code], target.processor))


def prepare(made: Assembled, target: Target) -> Prepared:
    """Return the module texts for a target, nothing compiled yet; raises as `build`."""
    if target.launch != "range":
        raise OptionError(
            f"target '{target.name}' generates device code only, no host code",
            "compile for another target and place nodes: devices={'accel': 'opencl:0'}",
        )
    code, interface = modules(made)
    return Prepared(target.sources(code, target.processor), interface)


def modules(made: Assembled) -> tuple[tuple[Kernel | Library, ...], Interface]:
    """Return the host modules and kernels of a program as loop IR; raises as `build`."""
    _verify(made)
    host = made.host
    segments = (segment for segment in made.program.segments if not segment.device)
    names = dict.fromkeys(site.kernel for segment in segments for site in segment.sites)
    return (*(made.kernels[name] for name in names), *host.code), host.interface


def module_texts(made: Assembled, target: Target) -> dict[str, str]:
    """Return the text of every module of a program, by name."""
    return {name: source.text() for name, source in prepare(made, target).sources.items()}


def _verify(made: Assembled) -> None:
    """Verify that every site matches its kernel's signature and refers to existing buffers."""
    for segment in made.program.segments:
        if len(segment.buffer) != len(segment.buffers):
            raise InternalError(f"{segment.signature.name}: two buffers have the same name")
        for site in segment.sites:
            kernel = made.kernels.get(site.kernel)
            if kernel is None:
                raise InternalError(f"a launch of '{site.kernel}', which is missing in the program")
            operands, sizes = len(kernel.operands), len(kernel.sizes)
            if len(site.operands) != operands or len(site.sizes) != sizes:
                raise InternalError(f"'{site.kernel}' takes {operands} operands and {sizes} sizes")
            for name in site.operands:
                if name not in segment.buffer:
                    raise InternalError(f"'{site.kernel}' is launched on unknown buffer '{name}'")
