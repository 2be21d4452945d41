"""All kernels of whole models as cubins: which compile, and what they take; no device is needed.

    python -m bench.cubins [--only MiniLM] [--architecture sm_90] [--kernels]

MiniLM, resnet50 and a step of a decoder by NVRTC, for sm_80, sm_90 and sm_100, also with products
of tf32. For each: kernels, seconds, the most registers of an item, how many kernels write registers
to memory for want of them (and most bytes), the most shared memory of a block. `--kernels` has a
line for each kernel.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from functools import cache

from anydim.base.records import dataclass
from anydim.compiler.kernels.launch import TF32
from anydim.compiler.pipeline import Compiled, run_pipeline
from anydim.compiler.targets.cuda.nvrtc import Resources, nvrtc
from anydim.compiler.targets.targets import CUDA, target
from bench.opencl import WORK

MODELS = ("MiniLM", "resnet50", "decoder")
ARCHITECTURES = tuple(
    f"{name}{more}" for name in ("sm_80", "sm_90", "sm_100") for more in ("", f"+{TF32}")
)


@dataclass(frozen=True)
class Made:
    """A kernel on an architecture: its name, how its template was told to make it, its needs."""

    name: str
    schedule: str
    needs: Resources


@cache
def compiled(model: str) -> Compiled:
    """A model for the host, which can be lowered for other targets."""
    return run_pipeline(WORK[model].source(), None, 1, lambda *_: None)


def cubins(model: str, architecture: str) -> Iterator[Made]:
    """All kernels of a model; raises InternalError for one that NVRTC refuses."""
    code, compiler = target(CUDA.name, architecture), nvrtc()
    lowered = compiled(model).again(code, 1)
    schedules = {each.launch.kernel.name: each.launch.schedule for each in lowered.launches}
    kernels = lowered.made.kernels
    for name, source in code.sources(kernels.values(), code.processor).items():
        needs = compiler.resources(source.text(), code.processor.cpu)
        yield Made(name, schedules.get(name, "routine"), needs)


def main() -> None:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--only", default="", choices=("", *MODELS))
    parser.add_argument("--architecture", default="", choices=("", *ARCHITECTURES))
    parser.add_argument("--kernels", action="store_true")
    given = parser.parse_args()
    for model in filter(lambda name: given.only in ("", name), MODELS):
        for name in filter(lambda each: given.architecture in ("", each), ARCHITECTURES):
            begin = time.perf_counter()
            made = list(cubins(model, name))
            spilled = [each.needs.spilled for each in made if each.needs.spilled]
            print(
                f"{model:>9} {name:>11}: {len(made)} kernels, {time.perf_counter() - begin:.0f} s, "
                f"registers {max(each.needs.registers for each in made)}, "
                f"spilling {len(spilled)} (most {max(spilled, default=0)} bytes), "
                f"shared {max(each.needs.shared for each in made)} bytes",
                flush=True,
            )
            for each in made if given.kernels else ():
                needs = each.needs
                print(
                    f"    {each.name}: {needs.registers} registers, {needs.spilled} bytes spilled, "
                    f"{needs.shared} bytes shared; {each.schedule}"
                )


if __name__ == "__main__":
    main()
