"""A model as a notebook shows it: what goes in and comes out, its dims, what a call takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from anydim.base.amounts import bytes_text
from anydim.program.callable_program import Held
from anydim.runtime.signature import TensorSpec


def html(model: Held) -> str:
    """A table; names of files and tensors are shown as they are, whatever they hold."""
    program, taken = model.program, model.memory
    bound = "without bound" if taken.bound is None else f"at most {bytes_text(taken.bound)}"
    held = sum(constant.bytes for constant in program.constants)
    kernels = len({site.kernel for site in program.sites})
    rows = [
        *_tensors("input", model.inputs),
        *_tensors("output", model.outputs),
        *(
            ("dim", dim.name, f"{dim.lo}..{'' if dim.hi is None else dim.hi}")
            for dim in model.dims.dims
        ),
        ("of a call", "memory", f"{taken.bytes} bytes, {bound}"),
        ("of all calls", "constants", bytes_text(held)),
        ("code", "launches", f"{len(program.sites)} of {kernels} kernels"),
    ]
    lines = "".join(f"<tr>{''.join(_cells(row))}</tr>" for row in rows)
    title = f"<caption><b>{escape(model.name)}</b>, an anydim model</caption>"
    return f"<table>{title}{lines}</table>"


def _tensors(what: str, specs: Sequence[TensorSpec]) -> Iterable[tuple[str, str, str]]:
    for spec in specs:
        yield what, spec.key, f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"


def _cells(row: Iterable[str]) -> Iterable[str]:
    for number, cell in enumerate(row):
        text = escape(cell)
        inside = f"<code>{text}</code>" if number == 2 else text
        yield f'<td style="text-align:left">{inside}</td>'
