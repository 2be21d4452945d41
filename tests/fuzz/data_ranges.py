"""Random reductions over ranges that data gives.

The law: a compiled program has the results of the evaluator, which visits whole ranges under their
conditions, to the bit (elements are small integers); an end of a range or an index that is out of
bounds where it is used is an error of both.

    python -m tests.fuzz.data_ranges FIRST LAST
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import anydim as ad
from anydim.base.dtypes import DTYPES
from anydim.base.errors import UserError
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.fuzz.runner import Outcome, run_texts

SIZES = {name: as_size(name) for name in "RZFV"}
SIZES |= {"P": SIZES["R"] + 1, "Z+1": SIZES["Z"] + 1}
ROWS = (0, 1, 2, 3, 7, 19)
ELEMENTS = (0, 1, 2, 3, 7, 15, 16, 17, 31, 64, 67, 131)
COLUMNS = (0, 1, 2, 5, 7, 8, 9, 15, 16, 17, 33, 64, 65, 67)
CALLS = 12  # of a program
WRONG = 0.25  # of the calls
DIMS = {
    "ptr": "P", "other": "P", "low": "R", "high": "R", "ends": "F", "word": "Z+1", "val": "Z",
    "col": "Z", "x": "Z,F", "table": "V,F", "grid": "R,Z", "w": "R,F", "y": "Z",
}  # fmt: skip
TYPES = dict.fromkeys(("ptr", "other", "low", "high", "ends", "word", "col"), "int64")


@dataclass
class Drawn:
    """A program, and the tensors that it reads."""

    used: list[str] = field(default_factory=lambda: ["ptr", "val", "table", "w"])
    body: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The definition."""
        head = ", ".join(f"{TYPES.get(n, 'int32')}({DIMS[n]}) {n}" for n in self.used)
        lines = "\n".join(f"  {line}" for line in self.body)
        return f"def f({head}) -> ({', '.join(self.results)}) {{\n{lines}\n}}"


def program(seed: int) -> Drawn:
    """The program of a seed: one to three reductions, as statements or in a loop over the rows."""
    chance, drawn = random.Random(seed), Drawn()

    def use(name: str) -> str:
        if name not in drawn.used:
            drawn.used.append(name)
        return name

    def part() -> str:
        kind = chance.random()
        if kind < 0.5:
            name = use(chance.choice(("ptr", "ptr", "other")))
            return f"z in {name}(r):{name}(r+1)"
        if kind < 0.75:
            low, high = use("low"), use("high")
            return f"z in {low}(r):{high}(r)" if chance.random() < 0.6 else f"z in 0:{high}(r)"
        if wide and kind < 0.85:
            return f"z in 0:{use('ends')}(f)"
        return f"z in r:{use('high')}(r)"

    def term() -> str:
        found = ["val(z)", "r - z", "grid(r,z)"]
        use("grid")
        if wide:
            found += [f"{use('x')}(z,f)", f"{use('x')}(z,f)", f"table({use('col')}(z),f)", "w(r,f)"]
        else:
            found += [f"table({use('col')}(z),0)"]
        value = chance.choice(found)
        while chance.random() < 0.5:
            other = chance.choice(found)
            value = chance.choice((
                f"{value} * {other}", f"{value} + {other}", f"({value} > {other} ? {value} : 1)",
            ))  # fmt: skip
        return value

    wide, looped = chance.random() < 0.7, chance.random() < 0.35
    target, rows = "y{}(r,f)" if wide else "y{}(r)", [] if looped else ["r in 0:P-1"]
    shared = part()
    for number in range(chance.choice((1, 1, 2, 3))):
        where = shared if chance.random() < 0.6 else part()
        value, inner = term(), ""
        if drawn.results and chance.random() < 0.4:
            value = f"{value} - {target.format(number - 1)}"
        if chance.random() < 0.15:
            inner, value = f", q in {use('word')}(z):{use('word')}(z+1)", f"({value}) * val(q)"
        ranges = [*rows, where + inner, "exists table(0,f)"] if wide else [*rows, where + inner]
        ranges += ["exists val(z)"]
        combine = chance.choice(("+=!", "+=!", "+=!", "max=!", "min=!", "*=!"))
        drawn.body.append(f"{target.format(number)} {combine} {value} where {', '.join(ranges)}")
        drawn.results.append(f"y{number}")
    if looped and chance.random() < 0.4:
        drawn.body.append(f"y(z) {chance.choice(('+=', 'max='))} val(z) * (r + 1) where {shared}"
                          if "ends" not in shared else "y(z) += 1")  # fmt: skip
        use("y")
        drawn.results.append("y")
    if looped:
        drawn.body = ["for r in 0:P-1 {", *(f"  {line}" for line in drawn.body), "}"]
    return drawn


def values(drawn: Drawn, seed: int) -> tuple[dict[str, Any], dict[str, int]]:
    """Arguments and sizes; in some calls an end of a range or an index is wrong."""
    chance = np.random.default_rng(seed)
    rows, count, columns, table = (
        int(chance.choice(of)) for of in (ROWS, ELEMENTS, COLUMNS, (1, 2, 5))
    )
    sizes = {"R": rows, "P": rows + 1, "Z": count, "Z+1": count + 1, "F": columns, "V": table}
    found: dict[str, Any] = {}
    for name in drawn.used:
        shape = tuple(sizes[dim] for dim in DIMS[name].split(","))
        if name in ("ptr", "other", "word"):
            found[name] = np.sort(chance.integers(0, count + 1, shape))
            if name == "word":  # a few elements each
                found[name] = np.minimum(np.arange(count + 1) + chance.integers(0, 3), count)
        elif name in ("low", "high", "ends"):
            found[name] = chance.integers(0, count + 1, shape)
        elif name == "col":
            found[name] = chance.integers(0, table, shape)
        else:
            found[name] = chance.integers(-3, 4, shape).astype(np.int32)
    if chance.random() < WRONG:
        name = str(chance.choice([n for n in drawn.used if n in TYPES]))
        if found[name].size:
            at = chance.integers(0, found[name].size)
            found[name][at] = chance.choice([-1, -(1 << 40), count + 1, 1 << 40, 6])
    return found, sizes


# ---- the law -------------------------------------------------------------------------------------


def fault(seed: int) -> str:
    """What is wrong with the program of a seed; empty where the law holds."""
    drawn = program(seed)
    function = ad.define(drawn.text, threads=1 + seed % 2).f
    types = [
        TensorType(DTYPES[TYPES.get(n, "int32")], tuple(map(SIZES.__getitem__, DIMS[n].split(","))))
        for n in drawn.used
    ]
    box = Box.of(*(Dim(name) for name in "RZFV"))
    group = instantiate(parse_definition(drawn.text), types, {}, box)
    for call in range(CALLS):
        arrays, sizes = values(drawn, CALLS * seed + call)
        wanted: Any
        got: Any
        try:
            wanted = list(evaluate(group, arrays, {name: sizes[name] for name in "RZFV"}).values())
        except UserError as error:
            wanted = error
        try:
            got = function(*arrays.values())
            got = list(got) if len(drawn.results) > 1 else [got]
        except UserError as error:
            got = error
        where = f"call {call} at {sizes}"
        if isinstance(wanted, UserError) or isinstance(got, UserError):
            if not (isinstance(wanted, UserError) and isinstance(got, UserError)):
                return f"{where}: compiled {got}, means {wanted}"
        elif any(not np.array_equal(one, two) for one, two in zip(got, wanted)):
            return f"{where}: compiled\n{got}\nmeans\n{wanted}"
    return ""


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the programs of these seeds, in order; they are small as they are."""
    return run_texts(seeds, small, fault, lambda seed: program(seed).text)


if __name__ == "__main__":
    for outcome in run(range(int(sys.argv[1]), int(sys.argv[2]))):
        if outcome.failure:
            print(f"seed {outcome.seed}: {outcome.failure}\n{outcome.text}\n")
