"""All targets by name; the code generator of a target is imported on demand."""

from __future__ import annotations

from anydim.base.errors import OptionError
from anydim.base.settings import USUAL_TARGET
from anydim.base.text import quote_list, suggestion
from anydim.base.user_values import text_of
from anydim.compiler.targets.c.c_target import C
from anydim.compiler.targets.cuda.cuda_target import CUDA
from anydim.compiler.targets.llvm.host import this_machine
from anydim.compiler.targets.llvm.llvm_target import LLVM
from anydim.compiler.targets.opencl.opencl_targets import OPENCL, OPENCL_GROUPS
from anydim.compiler.targets.processor import NATIVE, describe_processor
from anydim.compiler.targets.target import Target, TargetKind

_KINDS = (
    LLVM,
    C,
    OPENCL,
    OPENCL_GROUPS,
    CUDA,
)
TARGETS: dict[str, TargetKind] = {kind.name: kind for kind in _KINDS}


def target(name: str = USUAL_TARGET, processor: str = NATIVE) -> Target:
    """Return the target of a name for a processor: this machine's, or a described one.

    Raises OptionError if there is none.
    """
    if text_of("target", name) not in TARGETS:
        hint = suggestion(name, TARGETS) or f"the targets are {quote_list(TARGETS)}"
        raise OptionError(f"there is no target '{name}'", hint)
    kind = TARGETS[name]
    if kind.processor is not None:
        return kind.make(kind.processor(processor))
    return kind.make(this_machine() if processor == NATIVE else describe_processor(processor))
