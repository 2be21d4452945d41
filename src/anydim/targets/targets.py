"""All targets by name; the code generator of a target is imported on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module

from anydim.base.errors import OptionError
from anydim.base.text import listed, suggestion
from anydim.base.user_values import text_of
from anydim.kernels.matmul.int8 import int8_template as bytes_product
from anydim.kernels.template import Template
from anydim.kernels.templates import TEMPLATES
from anydim.targets.llvm.compiler import compiling, machine_code
from anydim.targets.llvm.host import this_machine
from anydim.targets.llvm.loader import load
from anydim.targets.llvm.render import sources
from anydim.targets.processor import NATIVE, Processor, described
from anydim.targets.target import Target

CUDA = "cuda"


def _llvm(processor: Processor) -> Target:
    return Target(
        name="llvm",
        processor=processor,
        templates=TEMPLATES,
        launch="range",
        sources=sources,
        compiling=compiling,
        load=load if processor.name == NATIVE else None,
        assembly=machine_code,
    )


def _c(processor: Processor) -> Target:
    loader = import_module("anydim.targets.c.loader")
    return Target(
        name="c",
        processor=processor.as_plain,
        templates=TEMPLATES,
        launch="range",
        sources=import_module("anydim.targets.c.render").sources,
        compiling=import_module("anydim.targets.c.compiler").compiling,
        load=loader.load if processor.name == NATIVE else None,
    )


def _opencl(processor: Processor) -> Target:
    render = import_module("anydim.targets.opencl.render")
    max_lanes = import_module("anydim.targets.opencl.dialect").MAX_LANES
    return Target(
        name="opencl",
        processor=replace(processor.as_plain, max_lanes=max_lanes),
        templates=tuple(t for t in TEMPLATES if t is not bytes_product.TEMPLATE),  # 64 lanes
        launch="device",
        sources=render.sources,
        compiling=render.texts,
        load=None,
    )


def _opencl_groups(processor: Processor) -> Target:
    """The same for devices with slow single work-items: graphics cards."""
    return replace(
        _opencl(processor),
        name="opencl-groups",
        processor=replace(processor, max_lanes=1),
        templates=_of_groups(),
        ordered=False,
    )


def _cuda(processor: Processor) -> Target:
    return Target(
        name=CUDA,
        processor=processor,
        templates=_of_groups(),
        launch="device",
        sources=import_module("anydim.targets.cuda.render").sources,
        compiling=import_module("anydim.targets.cuda.compiler").compiling,
        load=None,
        ordered=False,
    )


def _of_groups() -> tuple[Template, ...]:
    """Return the templates of devices whose work-items form groups, one lane each."""
    modules = (import_module(f"anydim.kernels.gpu.{name}") for name in _GROUPED)
    grouped = (module.TEMPLATE for module in modules)
    return (*grouped, *(t for t in TEMPLATES if t.name not in _OF_VECTORS))


_GROUPED = ("gpu_attention", "tensor_core_matmul", "tiled_matmul", "group_rows")
_OF_VECTORS = ("winograd", "bytes", "narrow")  # templates whose kernels need several lanes
HOSTS: Mapping[str, Callable[[Processor], Target]] = {"llvm": _llvm, "c": _c}
OF_DEVICES: Mapping[str, Callable[[Processor], Target]] = {
    "opencl": _opencl,
    "opencl-groups": _opencl_groups,
    CUDA: _cuda,
}
TARGETS = {**HOSTS, **OF_DEVICES}


def target(name: str = "llvm", processor: str = NATIVE) -> Target:
    """Return the target of a name for a processor: this machine's, or a described one.

    Raises OptionError if there is none.
    """
    if text_of("target", name) not in TARGETS:
        hint = suggestion(name, TARGETS) or f"the targets are {listed(TARGETS)}"
        raise OptionError(f"there is no target '{name}'", hint)
    if name == CUDA:
        cuda = import_module("anydim.targets.cuda.compiler")
        return TARGETS[name](cuda.architecture(processor))
    return TARGETS[name](this_machine() if processor == NATIVE else described(processor))
