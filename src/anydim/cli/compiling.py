"""A model compiled the way the command line asks, with progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy

from anydim.base.errors import OptionError
from anydim.base.frozen import FrozenMapping
from anydim.cli.arrays import Read
from anydim.cli.options import Asked, dims_by_name
from anydim.entry import compile
from anydim.frontends.text import TextSource, definition_of, text_source
from anydim.model import Model
from anydim.report.console import Console
from anydim.report.text import duration
from anydim.variants.strategies import GENERIC


def compiled(console: Console, asked: Asked, inputs: Sequence[Read] = (), **rest: Any) -> Model:
    """Compile what a command is about; raises UserError kinds for what cannot be compiled.

    `inputs` are those of a call, where they are known: they decide types and ranks of a definition.
    `rest` is for `anydim.compile`.
    """
    named, name = dims_by_name(asked.dims), Path(asked.model).name
    source = _source(asked, inputs)
    start = perf_counter()
    with console.task(f"compiling {name}") as advance:
        model = compile(
            source,
            named or None,
            threads=asked.threads,
            precision=asked.precision,
            target=asked.code,
            memory_limit=asked.memory_limit,
            strategy=asked.strategy or GENERIC,
            strategies=asked.strategies,
            devices=asked.devices or None,
            placement=asked.placement,
            fallback=asked.fallback,
            **rest,
            progress=lambda stage, done, total: advance(done, total, stage),
        )
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


def _source(asked: Asked, inputs: Sequence[Read]) -> str | TextSource:
    source = text_source(asked.model)
    if source is not None:
        return replace(
            source,
            attributes=FrozenMapping(asked.attributes),
            types=FrozenMapping(asked.types),
            arrays=FrozenMapping(_arguments(source, inputs)),
        )
    for option, given in (("--attribute", asked.attributes), ("--type", asked.types)):
        if given:
            raise OptionError(
                f"{option} works with definitions only, and {Path(asked.model).name} is a model",
                "name a text file and a definition: kernels.tc:matmul",
            )
    return asked.model


def _arguments(source: TextSource, inputs: Sequence[Read]) -> dict[str, numpy.ndarray]:
    """The arrays that are arguments of the definition; numbers have no type of their own."""
    names = [parameter.name for parameter in definition_of(source).parameters] if inputs else []
    arrays = [item for item in inputs if not item.is_number]
    only = names[0] if len(names) == 1 else ""
    found = {item.name or only: item.array for item in arrays}
    return {name: array for name, array in found.items() if name in names}
