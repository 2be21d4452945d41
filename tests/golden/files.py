"""Where the corpus is kept, and how it is read and written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from anydim.compiler.targets.c.render import render
from anydim.compiler.targets.processor import describe_processor
from tests.golden import definitions, graphs, models, rungs
from tests.golden.case import Case
from tests.golden.record import Kept, compiled

CORPUS = Path(__file__).with_name("corpus.json")
TEXTS = Path(__file__).with_name("texts")
CASES: dict[str, Case] = {
    case.name: case for case in (*graphs.CASES, *definitions.CASES, *models.CASES, *rungs.CASES)
}
SHOWN = ("pointwise_chain", "dense_gelu", "keepdims_outputs", "branching", "running_sum (text)")
"""Programs whose stages are kept as texts."""
IN_C = ("keepdims_outputs", "running_sum (text)")
"""Programs whose kernels are kept as C for x86-64-v3."""
HIDDEN = ("llvm", "assembly")  # the stages that differ from machine to machine
LAST = ("schedule", "kernels", "program", "host")  # in this order after the passes


def read_corpus() -> dict[str, Kept]:
    return dict(json.loads(CORPUS.read_text(encoding="utf-8"))) if CORPUS.exists() else {}


def write_corpus(programs: Mapping[str, Kept]) -> None:
    CORPUS.write_text(json.dumps(dict(sorted(programs.items())), indent=1) + "\n", "utf-8")


def stages_text(name: str) -> str:
    """All stages of a program one after the other; one that changed nothing says so."""
    model = compiled(CASES[name])
    passes = [stage for stage in model.report.stages if stage not in (*HIDDEN, *LAST)]
    lines, before = [], ""
    for stage in (*passes, *LAST):
        text = model.show(stage).rstrip()
        lines += [f"==== {stage} ====", "", "(as before)" if text == before else text, ""]
        before = text
    return "\n".join(lines)


def c_text(name: str) -> str:
    """The kernels of a program as C, one file after the other."""
    kernels = compiled(CASES[name]).report.kernels.values()
    return "\n".join(render(kernel, describe_processor("x86-64-v3")) for kernel in kernels)


def _file(name: str, ending: str) -> Path:
    return TEXTS / f"{name.partition(' ')[0]}.{ending}"


def read_text(name: str, ending: str = "txt") -> str:
    """What is kept of the stages of a program, or as 'c' of its kernels."""
    file = _file(name, ending)
    return file.read_text(encoding="utf-8") if file.exists() else ""


def write_text(name: str, text: str, ending: str = "txt") -> None:
    TEXTS.mkdir(exist_ok=True)
    _file(name, ending).write_text(text, encoding="utf-8")
