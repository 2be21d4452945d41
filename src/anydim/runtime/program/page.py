"""A model as a notebook shows it: inputs, outputs, dims, memory of a call, code."""

from __future__ import annotations

from anydim.base.amounts import bytes_text
from anydim.base.sheet import Sheet, facts
from anydim.base.text import count_of
from anydim.runtime.program.described_model import DescribedModel


def sheet(model: DescribedModel) -> Sheet:
    """Return the main facts about a model."""
    program, taken = model.program, model.memory
    bound = "without bound" if taken.bound is None else f"at most {bytes_text(taken.bound)}"
    held = sum(constant.bytes for constant in program.constants)
    kernels = count_of(len({site.kernel for site in program.sites}), "kernel")
    launches = count_of(len(program.sites), "launch", "es")
    return Sheet(
        f"{model.name}, an anydim model",
        (
            *facts("inputs", map(str, model.inputs)),
            *facts("outputs", map(str, model.outputs)),
            *facts("dims", (f"{dim.name} = {dim.range}" for dim in model.dims.dims)),
            *(("constraints", f"{each} >= 0") for each in model.dims.constraints),
            ("memory", f"{taken.bytes} bytes for each call, {bound}"),
            ("constants", f"{bytes_text(held)}, shared by all calls"),
            ("code", f"{launches} of {kernels}, {count_of(program.threads, 'thread')}"),
        ),
    )
