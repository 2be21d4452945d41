"""Every target there is, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from anydim.base.errors import OptionError
from anydim.base.given import text_of
from anydim.base.text import listed, suggestion
from anydim.kernels.grouped import attention, fragments, teams, tiles
from anydim.kernels.product.bytes import template as bytes_product
from anydim.kernels.templates import TEMPLATES
from anydim.targets.c.compiler import compiling as compiling_files
from anydim.targets.c.loader import load as load_library
from anydim.targets.c.render import sources as c_sources
from anydim.targets.cuda.compiler import architecture
from anydim.targets.cuda.compiler import compiling as compiling_cubins
from anydim.targets.cuda.render import sources as cuda_sources
from anydim.targets.llvm.compiler import compiling
from anydim.targets.llvm.host import this_machine
from anydim.targets.llvm.loader import load
from anydim.targets.llvm.render import sources
from anydim.targets.opencl.dialect import MOST_LANES
from anydim.targets.opencl.render import sources as opencl_sources
from anydim.targets.opencl.render import texts
from anydim.targets.processor import NATIVE, Processor, described
from anydim.targets.target import Target

CUDA = "cuda"
GROUPED = (
    attention.TEMPLATE,
    fragments.TEMPLATE,
    tiles.TEMPLATE,
    teams.TEMPLATE,
)  # of groups of items


def _llvm(processor: Processor) -> Target:
    return Target(
        name="llvm",
        processor=processor,
        templates=TEMPLATES,
        launch="range",
        sources=sources,
        compiling=compiling,
        load=load if processor.name == NATIVE else None,
    )


def _c(processor: Processor) -> Target:
    return Target(
        name="c",
        processor=processor.as_plain,
        templates=TEMPLATES,
        launch="range",
        sources=c_sources,
        compiling=compiling_files,
        load=load_library if processor.name == NATIVE else None,
    )


def _opencl(processor: Processor) -> Target:
    return Target(
        name="opencl",
        processor=replace(processor.as_plain, most_lanes=MOST_LANES),
        templates=tuple(t for t in TEMPLATES if t is not bytes_product.TEMPLATE),  # 64 lanes
        launch="device",
        sources=opencl_sources,
        compiling=texts,
        load=None,
    )


def _opencl_groups(processor: Processor) -> Target:
    """The same for devices whose items are slow alone: graphics cards."""
    return replace(
        _opencl(processor),
        name="opencl-groups",
        processor=replace(processor, most_lanes=1),
        templates=(*GROUPED, *_OF_ONE_LANE),
        ordered=False,
    )


def _cuda(processor: Processor) -> Target:
    return Target(
        name=CUDA,
        processor=processor,
        templates=(*GROUPED, *_OF_ONE_LANE),
        launch="device",
        sources=cuda_sources,
        compiling=compiling_cubins,
        load=None,
        ordered=False,
    )


_OF_VECTORS = ("winograd", "bytes", "narrow")  # templates whose kernels need several lanes
_OF_ONE_LANE = tuple(t for t in TEMPLATES if t.name not in _OF_VECTORS)
HOSTS: Mapping[str, Callable[[Processor], Target]] = {"llvm": _llvm, "c": _c}
OF_DEVICES: Mapping[str, Callable[[Processor], Target]] = {
    "opencl": _opencl,
    "opencl-groups": _opencl_groups,
    CUDA: _cuda,
}
TARGETS = {**HOSTS, **OF_DEVICES}


def target(name: str = "llvm", processor: str = NATIVE) -> Target:
    """The target of that name for a processor: this machine's, or a described one.

    Raises OptionError when there is none.
    """
    if text_of("target", name) not in TARGETS:
        hint = suggestion(name, TARGETS) or f"the targets are {listed(TARGETS)}"
        raise OptionError(f"there is no target '{name}'", hint)
    if name == CUDA:
        return TARGETS[name](architecture(processor))
    return TARGETS[name](this_machine() if processor == NATIVE else described(processor))
