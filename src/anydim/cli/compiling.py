"""A model compiled the way the command line asks, with progress."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from anydim.cli.options import dims_by_name
from anydim.model import Model, compile
from anydim.report.console import Console
from anydim.report.text import duration
from anydim.sizes import Dim


def compiled(console: Console, path: str, dims: Sequence[Dim], threads: int) -> Model:
    """Compile the file at `path`; raises UserError kinds for what cannot be compiled."""
    named, name = dims_by_name(dims), Path(path).name
    start = perf_counter()
    with console.task(f"compiling {name}") as advance:
        model = compile(
            path,
            named or None,
            threads=threads,
            progress=lambda stage, done, total: advance(done, total, stage),
        )
    box = f" for {model.dims}" if model.dims.dims else ""
    console.note(f"compiled {name}{box} in {duration(perf_counter() - start)}")
    return model
