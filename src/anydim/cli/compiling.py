"""A model compiled the way the command line asks, with progress."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy

from anydim.api.entry import compile
from anydim.api.model import Model
from anydim.base.errors import OptionError
from anydim.cli.arrays import Read
from anydim.cli.options import Request
from anydim.cli.report.console import Console
from anydim.cli.report.text import duration
from anydim.compiler.frontends.table import frontend_of

_PHASES = {
    "import": "reading the model", "place": "placing nodes on devices",
    "segment": "finding loops and branches", "fuse": "fusing nodes",
    "schedule": "choosing kernels", "assemble": "laying out memory",
    "native": "generating machine code", "done": "",
}  # fmt: skip


def _phase(stage: str) -> str:
    """What the bar says at a stage: a phrase; reports within a stage are phrases already."""
    return stage if " " in stage else _PHASES.get(stage, "simplifying")


def compile_request(
    console: Console, request: Request, inputs: Sequence[Read] = (), **rest: Any
) -> Model:
    """Compile what a command is about; raises UserError kinds for what cannot be compiled.

    `inputs` are those of a call, where they are known: they decide types and ranks of a definition.
    `rest` is for `anydim.compile`.
    """
    name = Path(request.model).name
    source = _source(request, inputs)
    start = perf_counter()
    with console.task(f"compiling {name}") as advance:
        options = request.options.changed(
            progress=lambda stage, done, total: advance(done, total, _phase(stage)), **rest
        )
        model = compile(source, options=options)
        found: Any = model.serving(_inputs(model, inputs)) if inputs else model
    box = f" for {found.dims}" if found.dims.dims else ""
    console.note(f"compiled {name}{box} in {duration(perf_counter() - start)}")
    made: Model = found
    return made


def _inputs(model: Model, inputs: Sequence[Read]) -> dict[str, numpy.ndarray]:
    """What decides ranks, and which initializers are overridden."""
    names = model.input_names()
    only = names[0] if len(names) == 1 else ""
    return {item.name or only: item.array for item in inputs}


def _source(request: Request, inputs: Sequence[Read]) -> Any:
    """The source, with attributes, types and example arrays if its frontend takes them."""
    frontend = frontend_of(request.model)
    if frontend.takes_arguments:
        arrays = {item.name: item.array for item in inputs if not item.is_number}  # typed ones
        return frontend.with_arguments(request.model, request.attributes, request.types, arrays)
    for option, given in (("--attribute", request.attributes), ("--type", request.types)):
        if given:
            raise OptionError(
                f"{option} works with definitions only, and {Path(request.model).name} is a model",
                "name a text file and a definition: kernels.tc:matmul",
            )
    return request.model
