"""The law of ragged batches: each row has what it has alone, at sizes of its own.

    python -m tests.fuzz --ragged

Dims that occur beside the rows of a graph get another size in each row, or one of them does and
rows share the others; some dims have one size only. Random parts of the nodes over tokens run in
loops, whatever this costs. A row of a ragged call is compared with the reference of the graph for a
batch of this row alone, and, to the bit, with a ragged call of this row alone. The generator keeps
a value only if a graph with this result has a ragged form; `mixed` counts the reasons of refusals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any
from unittest.mock import patch

import numpy

import anydim as ad
from anydim.base.errors import DimError, InputError, ModelError, OptionError
from anydim.compiler.frontends.builder import Value
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.passes.ragged.loop_costs import LoopCosts
from anydim.compiler.passes.ragged.rows import RaggedRows
from anydim.runtime.lists import RaggedPort
from anydim.sizes import Box, Size
from tests.fuzz.case import Arrays, Case
from tests.fuzz.generate import FAMILIES, step
from tests.fuzz.judge import Expected, Failure, said
from tests.fuzz.maker import Maker, Shape
from tests.fuzz.points import Sizes, affordable, random_points, random_size
from tests.fuzz.runner import Outcome, run_judged

ROWS = 4
TRIES = 60
LENGTHS = ((0, None), (1, None), (0, 70), (1, 33))  # bounds of a ragged dim
WORK = 20_000  # elements of all statements of a row
Found = Iterator[tuple[str, Sizes]]


class RaggedMaker(Maker):
    """A maker whose values have rows along the first axis, and often a free size along the next."""

    first_bounds = ((0, None), (0, 40))

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        if len(self.dims) < 2:
            self.dims.append(self.builder.dim("length", *self.random.choice(LENGTHS)))
        if self.chance(0.3):
            size = self.one((0, 1, 2, 3, 6))
            self.dims.append(self.builder.dim("fixed", size, size))

    def shape(self, low: int = 0, high: int = 4) -> Shape:
        rank = self.random.randint(max(low, min(1, high)), high)
        rest = [self.one(self.dims[1:]) if self.chance(0.3) else self.fixed_size()
                for _ in range(max(rank - 2, 0))]  # fmt: skip
        second = self.dims[1] if self.chance(0.7) else self.fixed_size()
        if self.chance(0.1):
            second = self.one(self.dims[1:])
        return (self.dims[0], second, *rest)[:rank]


def ragged_case(seed: int) -> Case:
    """The case of a seed."""
    m = RaggedMaker(seed)
    m.input((m.dims[0], m.dims[1], *m.shape(2, 3)[2:]))
    makers = [row for family in FAMILIES.values() for row in family]
    wanted = m.random.choice((2, 3, 4, 6, 8, 12))
    for _ in range(TRIES):
        if wanted <= 0:
            break
        before = {id(value) for value in m.values}
        step(m, makers)
        kept = [value for value in m.values if id(value) in before or _has_form(m, value)]
        wanted -= len(kept) - len(before)
        m.values = kept
    chosen = [v for v in m.values if _has_form(m, v)] or m.values[:1]
    for number, value in enumerate(m.some(chosen[-3:])):
        m.builder.output(f"result{number}", value)
    graph = _used(m.builder.graph())
    domains = {name: domain for name, domain in m.domains.items() if name in graph.inputs}
    points = random_points(m.random, graph)
    return Case(graph, domains, points, m.one((1, 1, 2)), seed, m.specials)


def _has_form(m: Maker, value: Value) -> bool:
    """Whether a graph with this result has a ragged form."""
    m.builder._outputs["probe"] = value.name
    try:
        graph = _used(m.builder.graph())
        RaggedRows(dims_of(graph, m.seed)).run(graph)
    except (ModelError, OptionError) as error:
        mixed[error.problem.rpartition(": ")[2]] += 1
        return False
    finally:
        del m.builder._outputs["probe"]
    return True


def _used(graph: Graph) -> Graph:
    """The graph without inputs that no node reads."""
    read = {name for node in graph.nodes for name in node.given}
    return graph.replace(inputs=tuple(name for name in graph.inputs if name in read)).pruned()


mixed: Counter[str] = Counter()


def dims_of(graph: Graph, seed: int) -> dict[str, str]:
    """The ragged dims of a graph, and its first dim, that of the rows."""
    rows, *others = graph.box.dims
    axes = {str(size) for name in graph.inputs for size in graph.types[name].shape}
    free = [dim.name for dim in others if dim.name in axes and dim.lo != dim.hi]
    return dict.fromkeys(free[:1] if seed % 4 == 3 else free, rows.name)


def _moved(seed: int) -> Callable[[LoopCosts, frozenset[int], Sequence[int]], frozenset[int]]:
    """A placement of random parts in loops, in place of the estimated one."""

    def moved(costs: LoopCosts, inside: frozenset[int], free: Sequence[int]) -> frozenset[int]:
        chance = Random(seed)
        share = chance.choice((0.0, 0.5, 1.0))
        return inside.union(*(part for part in costs._parts(free) if chance.random() < share))

    return moved


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the cases of these seeds, in order."""
    return run_judged(seeds, small, ragged_case, judge)


def judge(case: Case) -> Failure | None:
    """The first row that differs."""
    try:
        for reason, sizes in ragged_rows(case):
            if reason:
                return Failure("ragged", reason, sizes)
    except Exception as error:
        return Failure("ragged call", said(error))
    return None


def ragged_rows(case: Case) -> Found:
    """Yield what differs between rows in a ragged batch and alone."""
    dims, guards = dims_of(case.graph, case.seed), case.graph.guards
    if any(case.graph.box.names[0] in (g.left - g.right).symbols for g in guards):
        return  # it may hold for one row alone
    axes = {str(size) for name in case.graph.inputs for size in case.graph.types[name].shape}
    if not axes.issuperset(dim.name for dim in case.graph.box.dims if dim.lo != dim.hi):
        return  # `set_sizes` sets a dim: loops over rows do not know it
    try:
        with patch.object(LoopCosts, "moved", _moved(case.seed)):
            model = ad.compile(case.graph, ragged=dims, threads=case.threads)
    except (ModelError, OptionError):  # rows depend on each other, or have no free sizes
        return
    ports = [port for port in model.lists.values() if isinstance(port, RaggedPort)]
    rows = str(next(s.shape[0] for s in model.inputs if s.name == ports[0].table.rows))
    drawn = list(_rows(case, rows, list(dims)))
    for count in (0, 1, len(drawn)):
        yield from _compared(case, model, rows, drawn[:count])


def _rows(case: Case, rows: str, dims: list[str]) -> Iterator[tuple[Sizes, Arrays, Expected]]:
    """Yield the sizes, inputs and expected results of rows alone; other dims and inputs agree."""
    box, chance = case.graph.box, Random(case.seed)
    if not case.points or 1 not in box.dim(rows) or not set(box.names) <= case.points[0].keys():
        return
    first = affordable(case.graph, WORK, {**case.points[0], rows: 1})
    if first[rows] != 1:  # a row of any length costs more
        return
    shared: dict[str, numpy.ndarray] = {}
    for number in range(ROWS):
        own = {name: random_size(chance, box.dim(name)) for name in dims} if number else {}
        sizes = affordable(case.graph, WORK, {**first, **own})
        if any(sizes[name] != first[name] for name in sizes if name not in dims):
            continue
        inputs = case.inputs(sizes)
        if inputs is None or not _inside(box, sizes):
            continue
        for name, array in inputs.items():
            if _axis(case, name, rows) is None:
                inputs[name] = shared.setdefault(name, array)
        try:
            yield sizes, inputs, Expected.of(case.graph, inputs)
        except (DimError, InputError):
            continue


def _inside(box: Box, sizes: Sizes) -> bool:
    return box.contains(sizes)


def _axis(case: Case, name: str, rows: str) -> int | None:
    shape = case.graph.types[name].shape
    return next((n for n, size in enumerate(shape) if size == Size.symbol(rows)), None)


def _compared(
    case: Case, model: ad.Model, rows: str, drawn: list[tuple[Sizes, Arrays, Expected]]
) -> Found:
    if not drawn:
        return
    made = model(**_batch(case, model, rows, [inputs for _, inputs, _ in drawn]))
    for number, (sizes, inputs, expected) in enumerate(drawn):
        own = model(**_batch(case, model, rows, [inputs]))
        found = {name: _of_row(case, name, made[name], number, rows) for name in expected.values}
        single = {name: _of_row(case, name, own[name], 0, rows) for name in expected.values}
        yield expected.difference(found), sizes
        for name, array in found.items():
            if array.tobytes() != single[name].tobytes():
                yield f"row {number} of {len(drawn)} has other bits in '{name}' than alone", sizes


def _batch(
    case: Case, model: ad.Model, rows: str, inputs: list[Arrays]
) -> Mapping[str, Any]:  # fmt: skip
    """The arguments of a ragged call."""
    made: dict[str, Any] = {}
    for name in case.graph.inputs:
        axis = _axis(case, name, rows)
        if axis is None:
            made[name] = inputs[0][name]
        elif name in model.lists:
            made[name] = [each[name].squeeze(axis) for each in inputs]
        else:
            made[name] = numpy.concatenate([each[name] for each in inputs], axis)
    return made


def _of_row(case: Case, name: str, value: Any, row: int, rows: str) -> numpy.ndarray:
    """The result of a row, as a batch of one."""
    axis = _axis(case, name, rows)
    if axis is None:
        return numpy.asarray(value)
    if isinstance(value, ad.Ragged):
        return numpy.expand_dims(value[row], axis)
    return numpy.take(value, [row], axis)
