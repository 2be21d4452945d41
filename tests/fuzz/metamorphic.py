"""Laws that compiled graphs keep, which need no oracle: what one call gives follows from others.

    halves    the rows of two calls, joined, are those of one call for all
    alone     a row by itself is the row in the batch
    padding   rows that are added (of NaN, or of great numbers) and cut off again change nothing
    threads   results of 1 thread are those of 2, with all launches parallel
    again     a call, and calls into arrays that are given, made again and again give the same
    crowd     a sequence of sizes from several threads, and again, gives what each gives alone
    fixed     the graph with its dims fixed at the sizes of a call gives what it gives at these, if
              the same templates compute it
    float64   the graph in float64 gives what it gives in float32, by the condition of the graph
    kept      what depends on sizes alone, kept from call to call, however cheap it is, gives what
              it gives where it is computed anew, and what the graph says
    named     names for the sizes of groups without reductions, for none of them or for numbers from
              2 on, change nothing
    memory    a call limited to the bytes that its plan says gives what it gives without a limit;
              one byte less is refused where no data decides

All but float64 are about bits, with NaN equal to NaN. The first three are for dims that a graph
treats row by row (rows.py). A product with a single column may have other bits
(docs/numerics.md), so no call has a single row of a dim that is the columns of a product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from unittest import mock

import numpy

import anydim as ad
from anydim.base import settings
from anydim.base.dtypes import float32, float64, from_numpy
from anydim.base.errors import DimError, MemoryLimitError, UserError
from anydim.compiler.graph.nodes import FUSED, Constant, Graph, Node
from anydim.compiler.graph.reader import read_graph
from anydim.compiler.graph.text import constants_of, print_graph
from anydim.compiler.passes import canonical_groups, setups, signatures, sizes_once
from anydim.compiler.passes.ragged.groups import with_sizes
from anydim.lang.tree import Group
from anydim.sizes import LARGEST, Box, RelativeSizes
from tests.fuzz.case import Arrays, Case
from tests.fuzz.generate import random_case
from tests.fuzz.judge import Expected, Failure, compiled, said
from tests.fuzz.points import Sizes, affordable, shown
from tests.fuzz.rows import RowMaker, Rows, by_rows, rows_of
from tests.fuzz.runner import Outcome, run_judged

COUNTS = (2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 33)  # rows of a call
POINTS = 2  # sizes at which the laws of rows are asked
WORK = 60_000  # elements of all statements of a call
AGAIN = 3  # times: the first ones prepare what repeats a call
CROWD = 3  # threads that call at once
KEPT = 2  # blocks of values that depend on sizes alone
ADDED = 5  # rows


def row_case(seed: int) -> Case:
    """The case of a seed, whose first dim is one of rows for most."""
    case = random_case(seed, RowMaker)
    first = case.graph.box.dims[0]
    numbers = numpy.random.default_rng(seed)
    fitting = [count for count in COUNTS if count in first]
    points = [affordable(case.graph, WORK, point) for point in case.points]
    for number, count in enumerate(numbers.permutation(fitting)[:POINTS]):
        if first.name in points[number]:
            points[number][first.name] = int(count)
    return replace(case, points=tuple(points), specials=case.specials or seed % 4 == 0)


@dataclass(frozen=True)
class Subject:
    """A case with its model and what that gave alone."""

    case: Case
    model: ad.Model

    @cached_property
    def calls(self) -> list[tuple[Sizes, Arrays, Arrays]]:
        """(sizes, inputs, results) of the points that the model takes."""
        made = []
        for sizes in self.case.points:
            inputs = self.case.inputs(sizes)
            try:
                if inputs is not None:
                    made.append((sizes, inputs, self.model(**inputs)))
            except DimError:
                continue
        return made

    def differing(self, rows: Rows, came: Arrays, results: Arrays) -> str:
        """What is wrong with rows, which are a part of the results for some inputs."""
        came = {name: array for name, array in came.items() if name in rows.axes}
        return differing(came, {name: results[name] for name in came})

    @cached_property
    def rows(self) -> list[tuple[Rows, Sizes, Arrays, Arrays]]:
        """(rows, sizes, inputs, results) of the first calls for which a dim is one of rows."""
        found = []
        for dim in shown(self.case.graph):
            rows = rows_of(self.case.graph, dim, self.case.domains.values())
            for sizes, inputs, results in self.calls if rows else ():
                if rows and sizes[dim.name] > 1:
                    if by_rows(self.case.graph, rows, inputs, sizes[dim.name]):
                        found.append((rows, sizes, inputs, results))
                    if len(found) == POINTS:
                        return found
        return found


Found = Iterator[tuple[str, Mapping[str, int]]]  # what differs, and where


def halves(subject: Subject) -> Found:
    for rows, sizes, inputs, results in subject.rows:
        count = sizes[rows.dim.name]
        least = 2 if _has_columns(subject.case.graph, rows.dim) else 1
        for end in sorted({count // 2, 1, count - 1} & {*range(least, count - least + 1)}):
            parts = [rows.part(inputs, 0, end), rows.part(inputs, end, count)]
            if end in rows.dim and count - end in rows.dim:
                joined = rows.joined(*(subject.model(**part) for part in parts))
                yield subject.differing(rows, joined, results), sizes


def alone(subject: Subject) -> Found:
    for rows, sizes, inputs, results in subject.rows:
        whole = 1 in rows.dim and not _has_columns(subject.case.graph, rows.dim)
        count = sizes[rows.dim.name] if whole else 0
        for row in sorted({0, count // 2, count - 1}) if count else ():
            part = rows.part(inputs, row, row + 1)
            expected = rows.part(results, row, row + 1)
            yield subject.differing(rows, subject.model(**part), expected), sizes


def _has_columns(graph: Graph, dim: ad.Dim) -> bool:
    """Whether a product has a column for each row of a dim."""
    products = (node for node in graph.nodes if node.operator in ("matmul", "gemm", "einsum"))
    shapes = [graph.types[name].shape for node in products for name in node.outputs]
    return any(shape and dim.name in shape[-1].symbols for shape in shapes)


def padding(subject: Subject) -> Found:
    for rows, sizes, inputs, results in subject.rows:
        count = sizes[rows.dim.name]
        if count + ADDED not in rows.dim:
            continue
        for filler in (numpy.nan, 3e38, 0):
            wide = {name: _padded(rows, name, array, filler) for name, array in inputs.items()}
            came = rows.part(subject.model(**wide), 0, count)
            yield subject.differing(rows, came, results), sizes


def _padded(rows: Rows, name: str, array: numpy.ndarray, filler: float) -> numpy.ndarray:
    """An input with more rows: of `filler` where it has floats, else of its first row."""
    axis = rows.axes.get(name)
    if axis is None:
        return array
    first = numpy.take(array, [0] * ADDED, axis)
    if from_numpy(array.dtype).is_float:
        with numpy.errstate(over="ignore"):
            first = numpy.full_like(first, filler)
    return numpy.concatenate([array, first], axis)


def threads(subject: Subject) -> Found:
    case = subject.case
    other = compiled(replace(case, threads=1 if case.threads > 1 else 2, eager=case.threads == 1))
    for sizes, inputs, results in subject.calls:
        yield differing(other(**inputs), results), sizes


def again(subject: Subject) -> Found:
    for sizes, inputs, results in subject.calls:
        out = {name: numpy.empty_like(array) for name, array in results.items()}
        for _ in range(AGAIN):
            yield differing(subject.model(**inputs), results), sizes
            subject.model(**inputs, out=out)
            yield differing(out, results), sizes


def crowd(subject: Subject) -> Found:
    calls = [*subject.calls, *subject.calls[::-1]] * 2
    with ThreadPoolExecutor(CROWD) as pool:
        came = list(pool.map(lambda call: subject.model(**call[1]), calls))
    for (sizes, _, results), found in zip(calls, came):
        yield differing(found, results), sizes


def fixed(subject: Subject) -> Found:
    for sizes, inputs, results in subject.calls[:POINTS]:
        model = compiled(replace(subject.case, graph=with_sizes(subject.case.graph, sizes)))
        came = model(**inputs)
        if _templates(model) <= _templates(subject.model):
            yield differing(came, results), sizes


def _templates(model: ad.Model) -> set[str]:
    return {name.rpartition("_")[0] for name in model.report.kernels}


def wide(subject: Subject) -> Found:
    graph = subject.case.graph
    plain = all(kind.dtype != float32 for kind in graph.types.values())
    if subject.case.specials or plain or str(float32) in graph.types:
        return
    try:
        doubled = widened(graph)
        model = ad.compile(doubled)
    except UserError:
        return
    for sizes, inputs, results in subject.calls[:POINTS]:
        more = {name: a.astype(doubled.types[name].dtype.numpy) for name, a in inputs.items()}
        expected = Expected.of(graph, inputs)
        yield replace(expected, values=model(**more)).difference(results), sizes


def kept(subject: Subject) -> Found:
    """Sizes come again and again, more of them than are kept; from several threads, too.

    Where a graph has too few values of sizes alone, it is asked with some more.
    """
    for graph in (subject.case.graph, with_numbers(subject.case.graph, subject.case.seed)):
        yield from _kept(Subject(replace(subject.case, graph=graph), subject.model))


def _kept(subject: Subject) -> Found:
    with all_kept():
        model = compiled(subject.case)
        if model.program.straight is None or not model.program.straight.setups:
            return
        with settings.override(size_values_mb=0):
            plain = compiled(subject.case)
    model.executable.size_values.most = KEPT
    calls = []
    for sizes, inputs, _ in subject.calls:
        plain.trim()
        calls.append((sizes, inputs, plain(**inputs)))
        wrong = Expected.of(subject.case.graph, inputs).difference(calls[-1][2])
        yield "" if subject.case.specials else wrong, sizes
    for sizes, inputs, results in [*calls, *calls, *calls[::-1]]:
        for _ in range(AGAIN):
            yield differing(model(**inputs), results), sizes
    model.trim()
    calls *= CROWD
    with ThreadPoolExecutor(CROWD) as pool:
        came = list(pool.map(lambda call: model(**call[1]), calls))
    for (sizes, _, results), found in zip(calls, came):
        yield differing(found, results), sizes
    for sizes, inputs, results in calls[: len(calls) // CROWD]:
        yield _limited(model, sizes, inputs, results), sizes
        model.limit_memory(ad.MemoryLimit(LARGEST, per_call=True))


def with_numbers(graph: Graph, seed: int) -> Graph:
    """The graph with numbers of sizes alone added to float inputs, or multiplied with them."""
    numbers, types, nodes, names = Random(seed), dict(graph.types), [], {}
    fused = {name for node in graph.nodes if node.operator == FUSED for name in node.given}
    for name in graph.inputs:
        kind = graph.types[name]
        if kind.dtype not in (float32, float64) or name in fused:
            continue
        rank = numbers.randint(min(1, kind.rank), kind.rank)
        made = tuple(f"{name}/{each}" for each in ("numbers", "waves", "more"))
        shape = kind.shape[kind.rank - rank :]
        random = {"shape": shape, "dtype": kind.dtype, "seed": numbers.randint(0, 99)}
        source = numbers.choice(["random_uniform", "random_normal"])
        nodes.append(Node(source, (), made[:1], random))
        last = numbers.randint(0, 1)
        nodes += [Node("cos", made[:1], made[1:2])] * last
        operator = numbers.choice(["add", "mul"])
        nodes.append(Node(operator, (name, made[last]), made[2:]))
        types.update(dict.fromkeys(made[: last + 1], replace(kind, shape=shape)))
        types[made[2]], names[name] = kind, made[2]
    for node in graph.nodes:
        nodes.append(replace(node, inputs=tuple(names.get(n, n) for n in node.inputs)))
    return graph.replace(nodes=tuple(nodes), types=types)


@contextmanager
def all_kept() -> Iterator[None]:
    """Keep all that depends on sizes alone, little work and few bytes too."""
    with (
        settings.override(keep_programs=False),
        mock.patch.object(sizes_once, "MAX_COST", 0.0),
        mock.patch.object(sizes_once, "MIN_COST", 0.0),
        mock.patch.object(setups, "WORTH", 0.0), mock.patch.object(setups, "SHARED", 1),
    ):  # fmt: skip
        yield


def memory(subject: Subject) -> Found:
    """At the points, and where dims are as small as they may be: one of them, and all."""
    case, model = subject.case, subject.model
    dims = shown(case.graph)
    least = {dim.name: dim.lo for dim in dims}
    points = [least, *({**point, dim.name: dim.lo} for point in case.points[:1] for dim in dims)]
    more = Subject(replace(case, points=tuple(points)), model).calls
    for sizes, inputs, results in [*subject.calls, *more]:
        try:
            yield _limited(model, sizes, inputs, results), sizes
        finally:
            model.limit_memory(ad.MemoryLimit(LARGEST, per_call=True))


def _limited(model: ad.Model, sizes: Sizes, inputs: Arrays, results: Arrays) -> str:
    plan = model.plan(**sizes)
    if plan.unknown:
        return ""
    if model.memory.at(**plan.sizes) != plan.bytes:
        return f"plan says {plan.bytes} bytes, memory {model.memory.at(**plan.sizes)}"
    try:
        model.limit_memory(ad.MemoryLimit(plan.bytes, per_call=True))
    except MemoryLimitError:
        return ""  # the least sizes need more
    wrong = differing(model(**inputs), results)
    if wrong or plan.decided or not plan.bytes or model.program.straight is None:
        return wrong
    try:
        model.limit_memory(ad.MemoryLimit(plan.bytes - 1, per_call=True))
        model(**inputs)
    except MemoryLimitError:
        return ""
    return f"{plan.bytes} bytes are planned, and {plan.bytes - 1} are enough"


def widened(graph: Graph) -> Graph:
    """The graph with float64 in place of float32."""
    constants = {
        name: Constant(c.array.astype(numpy.float64)) if c.array.dtype == numpy.float32 else c
        for name, c in constants_of(graph).items()
    }
    return read_graph(print_graph(graph).replace(str(float32), str(float64)), constants)


def named(subject: Subject) -> Found:
    def every(group: Group, box: Box, llc_bytes: int) -> tuple[Group, RelativeSizes] | None:
        with mock.patch.multiple(signatures, _LEAST=2, _VECTOR=2):
            return signatures.signature(group, box, 0)

    for names in (lambda *group: None, every):
        with (
            settings.override(keep_programs=False),
            mock.patch.object(canonical_groups, "signature", names),
        ):
            model = compiled(subject.case)
        for sizes, inputs, results in subject.calls:
            yield differing(model(**inputs), results), sizes


LAWS: dict[str, Callable[[Subject], Found]] = {
    "halves": halves, "alone": alone, "padding": padding, "threads": threads, "again": again,
    "crowd": crowd, "fixed": fixed, "float64": wide, "memory": memory,
    "kept": kept, "named": named,
}  # fmt: skip


def judge(case: Case) -> Failure | None:
    """The first law that the model of a case breaks."""
    try:
        subject = Subject(case, compiled(case))
    except Exception as error:
        return Failure("compile", said(error))
    for name, law in LAWS.items():
        try:
            broken = next(((reason, sizes) for reason, sizes in law(subject) if reason), None)
        except Exception as error:
            return Failure(name, said(error))
        if broken:
            return Failure(name, *broken)
    return None


def differing(came: Mapping[str, numpy.ndarray], expected: Mapping[str, numpy.ndarray]) -> str:
    """The first bits that differ; '' for none. NaN is NaN."""
    for name, array in came.items():
        other = expected[name]
        if array.shape != other.shape:
            return f"'{name}' is {array.shape}, expected {other.shape}"
        wrong = array != other
        if from_numpy(array.dtype).is_float:
            wrong = (wrong & ~(numpy.isnan(array) & numpy.isnan(other))) | (
                numpy.signbit(array) != numpy.signbit(other)
            ) & (array == 0)
        if wrong.any():
            at = tuple(int(i) for i in numpy.argwhere(wrong)[0])
            return (
                f"'{name}': {int(wrong.sum())} of {wrong.size} elements differ, at {at} "
                f"{array[at]!r}, expected {other[at]!r}"
            )
    return ""


# ---- many --------------------------------------------------------------------------------------


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the cases of these seeds, in order."""
    return run_judged(seeds, small, row_case, judge)
