"""Laws of definitions in the language, for the texts at hand: fixed sizes, loops, order.

python -m tests.fuzz.fixed_texts [NAME...]

fixed    a size that is a number gives what it gives where it is free, and is not refused
         where the free program runs at that size
looped   a loop beside the statements, which they do not read, changes no range and no result
text     the interpreter of the language has the same shapes and types
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy

from anydim.base.errors import UserError
from anydim.base.frozen import FrozenMapping
from anydim.compiler.frontends.definition import kinds_of
from anydim.compiler.frontends.definition_graph import graph_of
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.nodes import Graph
from anydim.lang.resolve.ranks import ellipses_of
from anydim.lang.surface.parser import parse
from anydim.lang.surface.sequences import is_sequence
from anydim.lang.surface.syntax import TYPE_NAMES, Definition, Name, Number, Spread, Term
from anydim.sizes import Size, as_size
from examples import retention
from tests.fuzz.case import Arrays
from tests.fuzz.metamorphic import differing
from tests.interpreter.kinds import NotCovered
from tests.interpreter.run import run
from tests.unit.lang import catalogue, recurrences
from tests.unit.lang.test_language_docs import PROGRAMS as DOCUMENTED

HERE = Path(__file__).parent
POINTS = 10  # sizes for each definition
LARGEST = 4
BESIDE = parse("def f(float(N) x) -> (y) { for step_ in 0:2 { beside_ = 1.0 }\n y(i) = x(i) }")["f"]
VALUES = {"int": 2, "float": 0.5, "bool": True, "size": 2, "type": "float32"}  # of attributes


@dataclass
class Row:
    """What came of a definition: calls that the free program runs, and what is wrong."""

    name: str
    calls: int = 0
    fixed: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.name:<32} {self.calls:>6} {self.fixed:>6}  {'; '.join(self.wrong) or 'same'}"


def texts() -> Iterator[tuple[str, str]]:
    """Names and texts."""
    for number, (text, error) in enumerate(DOCUMENTED):
        if not error or "is outside" in error:
            yield f"language.md {number}", text
    for program in catalogue.PROGRAMS:
        yield program.name, program.text
    for number, text in enumerate((HERE / "ranges.tc").read_text("utf-8").split("\n\n")):
        yield f"ranges {number}", text
    yield "written.tc", (HERE / "written.tc").read_text("utf-8")
    yield "retention", retention.TEXT


def definitions() -> Iterator[tuple[str, Definition]]:
    """All definitions of all texts, and the ways to write a recurrence."""
    for name, text in texts():
        for own, definition in parse(text).items():
            if not definition.types and not is_sequence(definition):
                yield f"{name}: {own}", definition
    for form in recurrences.FORMS:
        yield f"recurrence: {form.name}", form.definition


def judged(name: str, definition: Definition, points: int = POINTS) -> Row:
    """The row of a definition at sizes that its name decides.

    Type parameters are float32, or bool in a definition that refuses numbers.
    """
    row = _judged(name, definition, points, "float32")
    return row if row.calls or row.wrong else _judged(name, definition, points, "bool")


def _judged(name: str, definition: Definition, points: int, free: str) -> Row:
    row = Row(name)
    numbers = numpy.random.default_rng(len(name) + 31 * len(definition.text))
    attributes = {a.name: VALUES[a.kind] for a in definition.attributes if a.default is None}
    attributes |= {f"...{name}": 1 for name in ellipses_of(definition)}
    names = sorted({size for p in definition.parameters for size in _names(p.shape)})
    draws = [dict.fromkeys(names, n) for n in (0, 1)]
    draws += [
        dict(zip(names, map(int, numbers.integers(0, LARGEST + 1, len(names)))))
        for _ in range(points - 2)
    ]
    for sizes in draws:
        arrays = _drawn(definition, sizes, numbers, free)
        if arrays is not None:
            _at(row, definition, sizes, arrays, attributes)
    return row


def _at(
    row: Row, definition: Definition, sizes: Mapping[str, int], arrays: Arrays, attributes: Arrays
) -> None:
    came = _results(definition, arrays, attributes, {})
    if came is None:
        return
    row.calls += 1
    where = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    own = [name for name in sizes if not name.startswith("...")]
    for chosen in (*([name] for name in own), own):
        row.fixed += 1
        try:
            fixed = {name: sizes[name] for name in chosen}
            other = _results(definition, arrays, attributes, fixed, True)
        except UserError as error:
            row.wrong.append(f"{chosen} fixed at {where}: {str(error).splitlines()[0]}")
            return
        row.wrong += [f"{chosen} fixed at {where}: {r}" for r in [differing(other, came)] if r]
    looped = replace(definition, statements=(*BESIDE.statements[:1], *definition.statements))
    other = _results(looped, arrays, attributes, {})
    reason = "refused" if other is None else differing(other, came)
    row.wrong += [f"beside a loop at {where}: {reason}"] if reason else []
    try:
        answer = run(definition, list(arrays.values()), attributes)
    except NotCovered:
        return
    except UserError as error:
        row.wrong.append(f"the interpreter at {where}: {error}")
        return
    for (name, array), result in zip(came.items(), answer.values()):
        wanted = (result.kind, result.values.shape)
        if (array.dtype.name, array.shape) != wanted:
            row.wrong.append(f"'{name}' at {where} is {array.dtype}{array.shape}, not {wanted}")


def _results(
    definition: Definition, arrays: Arrays, attributes: Arrays, fixed: Mapping[str, int],
    strict: bool = False,
) -> Arrays | None:  # fmt: skip
    """The results; None where the definition, or a call at these sizes, is refused."""
    try:
        graph = graph_for(definition, arrays, attributes, fixed)
        with numpy.errstate(all="ignore"):
            found = evaluate(graph, dict(zip(graph.inputs, arrays.values())))
        return dict(zip(definition.results, found.values()))
    except UserError:
        if strict:
            raise
        return None


def graph_for(
    definition: Definition, arrays: Arrays, attributes: Arrays, fixed: Mapping[str, int]
) -> Graph:
    """The graph of a call."""
    pattern = kinds_of(definition, list(arrays.values()), attributes)
    return graph_of(definition, pattern, FrozenMapping(attributes), fixed)


# ---- arguments ---------------------------------------------------------------------------------


def _names(shape: tuple[Term, ...]) -> Iterator[str]:
    for term in shape:
        if isinstance(term, (Name, Spread)):
            yield f"...{term.name}" if isinstance(term, Spread) else term.name


def _drawn(
    definition: Definition, sizes: Mapping[str, int], numbers: numpy.random.Generator, free: str
) -> Arrays | None:
    """Arrays of these sizes, `free` for type parameters; None where a shape is not a plain one."""
    taken = {a.name for a in definition.attributes}
    found = {}
    for parameter in definition.parameters:
        shape = []
        for term in parameter.shape:
            size = _size(term, sizes, taken)
            if size is None:
                return None
            shape.append(size)
        dtype = TYPE_NAMES.get(parameter.type, free)
        whole = numbers.integers(0, 3, shape)
        if dtype.startswith(("float", "bfloat")):
            found[parameter.name] = numpy.asarray(whole + numbers.standard_normal(shape), dtype)
        else:
            found[parameter.name] = numpy.asarray(whole, dtype)
    return found


def _size(term: Term, sizes: Mapping[str, int], taken: set[str]) -> int | None:
    if isinstance(term, Number):
        return int(term.value)
    if isinstance(term, Spread):
        return sizes[f"...{term.name}"]
    if isinstance(term, Name):
        return None if term.name in taken else sizes[term.name]
    parts = [_size(part, sizes, taken) for part in getattr(term, "arguments", ())]
    functions = {"add": Size.__add__, "sub": Size.__sub__, "mul": Size.__mul__}
    function = functions.get(getattr(term, "function", ""))
    if function is None or len(parts) != 2 or None in parts:
        return None
    found = function(*map(as_size, parts)).constant
    return found if found is not None and found >= 0 else None


def main(names: list[str]) -> bool:
    """Print the table; whether all rows are right."""
    rows = []
    print(f"{'definition':<32} {'calls':>6} {'fixed':>6}")
    for name, definition in definitions():
        if names and not any(part in name for part in names):
            continue
        try:
            row = judged(name, definition)
        except Exception:
            row = Row(name, wrong=[traceback.format_exc()])
        print(row, flush=True)
        rows.append(row)
    calls, fixed = sum(row.calls for row in rows), sum(row.fixed for row in rows)
    print(f"{len(rows)} definitions, {calls} calls, {fixed} with fixed sizes")
    return not any(row.wrong for row in rows)


if __name__ == "__main__":
    sys.exit(not main(sys.argv[1:]))
