"""Writes docs/operators-torch.md: the overloads with rows, and the results of torch's database.

    python -m tests.torch.op_db.page docs/operators-torch.md

The results are those in `results.json`, which `python -m tests.torch.op_db` writes.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anydim.compiler.frontends.torch.rows import SUBJECTS, complex_numbers, full_name

_ROOT = Path(__file__).resolve().parents[3]
_RESULTS = Path(__file__).resolve().with_name("results.json")
_HEAD = """# Operators of torch

`ad.compile` takes programs of `torch.export`. Overloads with a row below are compiled whole; torch
decomposes the others first. A program is refused if an overload without a row is left; the error
names the overload and the module.

## torch's operator database

Each entry of torch's database (`op_db`) is exported with every axis free (`Dim.AUTO`), compiled
once, and compared with eager torch at the exported size, at two others, and with one size 0 where
torch allows it: one sample of each entry. Entries with random numbers are compared by type and
shape.

    for dtype in float32 bfloat16 bool float64 int64; do
        python -m tests.torch.op_db {results} --samples 1 --dtype $dtype
    done
    python -m tests.torch.op_db {results} --samples 1 --every 4 \\
        --backend anydim --backend openvino --backend tvm
    python -m tests.torch.op_db.page {path}
"""
_INDUCTOR = """## Inductor's tests of dynamic shapes

torch's packages do not contain these tests. With the folder `test` of torch's source, one command
runs them with this backend in Inductor's place:

    python -m tests.torch.inductor PATH out.json

The files of torch 2.6, with names that torch 2.13 lacks replaced, have 769 tests for CPUs without
those of large tensors (November 2026, one run of all). Of these, 60 read Inductor's code or
settings and did not run, and torch skipped 106. Of the other 603, 517 passed with all graphs
compiled, 59 with a graph that ran in torch, 6 in a second run alone, and 21 failed: 13 as tests of
Inductor's code or by the replaced names, 3 by rounding above their tolerance, 3 by faults that are
mended since, 2 by strides or shapes that torch does not promise.
"""
_OWN = "anydim"
_WORDS = {
    "right": "right at all sizes", "refused": "refused with an error", "wrong": "wrong",
    "failed": "an error at a size",
}  # fmt: skip


def page(found: list[dict[str, Any]], path: Path) -> str:
    """The page, from the results of backends by entry and element type."""
    head = _HEAD.format(path=path, results=_RESULTS.relative_to(_ROOT))
    results: dict[str, list[dict[str, Any]]] = {}
    for each in found:
        if each["backend"] == _OWN:
            results.setdefault(each["dtype"], []).append(each)
    lines = [*head.splitlines(), *_summary(results), "", *_beside(found), "", *_misses(results),
             "", *_INDUCTOR.splitlines(), "", *_rows()]  # fmt: skip
    return "\n".join(lines) + "\n"


def _summary(results: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    yield ""
    yield "| element type | exported | right | share | refused | wrong or failed | wrong if empty |"
    yield "|---|---|---|---|---|---|---|"
    for dtype, found in results.items():
        yield f"| {dtype} | {_counted(found)} | {_empty(found)} |"
        core = [each for each in found if each.get("core")]
        yield f"| {dtype}, core ATen | {_counted(core)} | {_empty(core)} |"
    yield ""
    yield "Rows of core ATen count the entries whose default decomposition is of core ATen alone."


def _empty(found: list[dict[str, Any]]) -> int:
    """How many entries are wrong or fail with a size of 0."""
    return sum(bool(each.get("empty")) for each in found)


def _counted(found: list[dict[str, Any]]) -> str:
    """Cells: exported, right, share, refused, wrong or failed."""
    counts = Counter(each["outcome"] for each in found)
    exported = sum(counts[word] for word in _WORDS)
    share = f"{100 * counts['right'] / exported:.1f} %" if exported else ""
    bad = counts["wrong"] + counts["failed"]
    return " | ".join(map(str, (exported, counts["right"], share, counts["refused"], bad)))


def _beside(found: list[dict[str, Any]]) -> Iterator[str]:
    """The backends on the float32 entries that all of them ran."""
    own = [each for each in found if each["dtype"] == "float32"]
    others = sorted({each["backend"] for each in own} - {_OWN})
    by_backend = {
        name: {each["entry"]: each for each in own if each["backend"] == name}
        for name in (_OWN, *others)
    }
    common = set.intersection(*(set(each) for each in by_backend.values()))
    core = {name for name in common if by_backend[_OWN][name].get("core")}
    yield "Backends that read exported programs, on the float32 entries that all of them ran"
    yield "(anydim last), and on those whose default decomposition is of core ATen alone:"
    yield ""
    yield "| backend | entries | exported | right | share | refused | wrong or failed |"
    yield "|---|---|---|---|---|---|---|"
    for title, names in (("all", common), ("core ATen", core)):
        for backend, entries in by_backend.items():
            yield f"| {backend} | {title} | {_counted([entries[name] for name in names])} |"


def _misses(results: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    yield "Entries that are not right:"
    yield ""
    yield "| entry | element types | outcome | reason |"
    yield "|---|---|---|---|"
    missed: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for dtype, found in results.items():
        for each in found:
            if each["outcome"] in _WORDS and each["outcome"] != "right":
                key = each["entry"], each["outcome"]
                missed.setdefault(key, []).append((dtype, _reason(each["why"])))
    for (entry, outcome), where in sorted(missed.items()):
        dtypes = ", ".join(dtype for dtype, _ in where)
        yield f"| {entry} | {dtypes} | {_WORDS[outcome]} | {where[0][1]} |"


def _reason(text: str) -> str:
    short = text.split("cannot be compiled: ")[-1].split("   write them")[0]
    return " ".join(short[:140].split()).replace("|", "\\|")


def _rows() -> Iterator[str]:
    yield "## Overloads with a row"
    yield ""
    yield "Names without an overload in parentheses have the overload `default` alone."
    for subject in (*SUBJECTS, complex_numbers):
        overloads: dict[str, list[str]] = {}
        for name in sorted(map(full_name, subject.ROWS)):
            operator, _, overload = name.rpartition(".")
            overloads.setdefault(operator, []).append(overload)
        title = subject.__name__.rpartition(".")[2].replace("_", " ").capitalize()
        names = (_with_overloads(*each) for each in overloads.items())
        yield from ("", f"### {title}", "", *textwrap.wrap(", ".join(names) + ".", 100))


def _with_overloads(operator: str, overloads: list[str]) -> str:
    name = f"`{operator.removeprefix('aten.')}`"
    return name if overloads == ["default"] else f"{name} ({', '.join(overloads)})"


def main() -> None:
    path = Path(sys.argv[1])
    found = json.loads(_RESULTS.read_text("utf-8"))
    path.write_text(page(found, path), "utf-8")


if __name__ == "__main__":
    main()
