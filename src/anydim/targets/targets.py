"""Every target there is, by name."""

from __future__ import annotations

from anydim.base.errors import OptionError
from anydim.base.text import listed, suggestion
from anydim.targets.llvm.compiler import compile_modules
from anydim.targets.llvm.host import machine
from anydim.targets.llvm.loader import load
from anydim.targets.llvm.render import sources
from anydim.targets.target import Target

LLVM = Target(
    name="llvm",
    machine=machine,
    sources=sources,
    compile=compile_modules,
    load=load,
)

TARGETS: dict[str, Target] = {target.name: target for target in (LLVM,)}


def target(name: str) -> Target:
    """The target of that name; raises OptionError when there is none."""
    if name not in TARGETS:
        hint = suggestion(name, TARGETS) or f"the targets are {listed(TARGETS)}"
        raise OptionError(f"there is no target '{name}'", hint)
    return TARGETS[name]
