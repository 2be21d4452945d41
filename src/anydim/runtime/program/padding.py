"""The cost of a ragged call beside that of a padded one, by formula; runs nothing.

A padded call is the same program on rows that all have the size of the longest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

import numpy

from anydim.base.errors import UserError
from anydim.base.text import count_of, quote_list
from anydim.runtime.program.plan import Plan, count_text, launches_at
from anydim.runtime.program.program import Program
from anydim.runtime.program.region_plan import needs
from anydim.runtime.ragged import Lengths, Packing
from anydim.sizes import Box, Dim

MEDIAN, SPREAD = 22, 0.68  # tokens of natural sentences: exp of a normal distribution
_USUAL = 64  # assumed size of other dims without upper bound
_ROWS = 32  # of the example


class Planned(Protocol):
    """A model with its dims and plans."""

    @property
    def dims(self) -> Box:
        """Its dims."""

    def plan(self, *, lengths: Any = None, **sizes: int) -> Plan:
        """The plan of a call."""


def natural(dims: Sequence[Dim], rows: int = _ROWS, seed: int = 0) -> dict[str, list[int]]:
    """Sizes of rows, distributed as tokens of sentences, within the bounds of the dims.

    They are lognormal: half of them are at most 22, one of 20 above 67; always the same ones for a
    seed.
    """
    chance = numpy.random.default_rng(seed)
    found = {}
    for dim in dims:
        drawn = numpy.exp(chance.normal(numpy.log(MEDIAN), SPREAD, rows)).round().astype(int)
        found[dim.name] = drawn.clip(max(dim.lo, 1), dim.hi).tolist()
    return found


def with_row_work(
    plan: Plan, program: Program, packing: Packing, lengths: Lengths, others: Mapping[str, int]
) -> Plan:
    """The plan with the work of loops over rows at the sizes of each row, not of the longest."""
    table, batch = packing.table, packing.rows_dim
    inside = [
        number for number, work in enumerate(needs(program).work)
        if work.times is not None and batch in work.times.symbols
    ]  # fmt: skip
    flops, moved = Counter[int](), Counter[int]()
    rows = Counter(zip(*lengths.values())) if inside else Counter[tuple[int, ...]]()
    for sizes, often in rows.items():
        alone = packing.sizes({dim.name: [n] for dim, n in zip(table.dims, sizes)}, others)
        for number, launch in zip(inside, launches_at(program, {**others, **alone}, inside)):
            flops[number] += often * launch.flops
            moved[number] += often * launch.moved
    launches = list(plan.launches)
    for number in inside:
        launches[number] = replace(launches[number], flops=flops[number], moved=moved[number])
    return replace(plan, launches=tuple(launches))


def ragged_facts(
    model: Planned, packing: Packing, given: Any, sizes: Mapping[str, int]
) -> list[str]:
    """Lines on what is ragged, and on a call with rows of given lengths beside a padded one.

    Without lengths, an example: natural ones, and usual sizes of dims that are not given.
    """
    dims, masks = quote_list(packing.dims), [n for n, port in packing.inputs.items() if port.ones]
    lines = [f"{dims} of each row of '{packing.rows_dim}'"]
    if masks:
        lines.append(f"{quote_list(masks)} may be omitted: all ones, removed from the program")
    if given is not None:
        return [*lines, *_beside_padded(model, packing.known_lengths(given), sizes)]
    table = packing.table
    fixed = {packing.rows_dim, *table.totals, *table.longest, *sizes}
    free = [dim for dim in model.dims.dims if dim.name not in fixed]
    usual = {dim.name: max(dim.lo, min(_USUAL, dim.hi or _USUAL)) for dim in free}
    with suppress(UserError):  # of an example
        lines += _beside_padded(model, natural(table.dims), {**usual, **sizes}, ", as of sentences")
    return lines


def _beside_padded(
    model: Planned, lengths: Lengths, sizes: Mapping[str, int], example: str = ""
) -> list[str]:
    padded = {name: [max(each, default=0)] * len(each) for name, each in lengths.items()}
    one, whole = (model.plan(lengths=each, **sizes) for each in (lengths, padded))
    spans = " x ".join(f"{min(e, default=0)}..{max(e, default=0)}" for e in lengths.values())
    rows = count_of(len(next(iter(lengths.values()))), "row")
    shares = [
        f"  {name} {count_text(each)}{unit}, padded {count_text(every)}{unit}"
        + (f": {each / every:.2f}" if every else "")
        for name, each, every, unit in (
            ("work", one.flops, whole.flops, "flop"),
            ("moved", moved_bytes(one), moved_bytes(whole), "B"),
            ("memory", one.bytes, whole.bytes, "B"),
        )
    ]
    return [f"{rows} of {spans}{example}, and this program on the same rows padded:", *shares]


def moved_bytes(plan: Plan) -> int:
    """Estimated bytes that the launches of a plan read and write."""
    return sum(launch.moved for launch in plan.launches if not launch.kept)
