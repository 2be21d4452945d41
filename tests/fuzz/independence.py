"""Laws: where the compiler says that no operator mixes a dim, each row has its result alone; and
where one was planted, it does not say so, and the samples of a batcher find it.

Graphs of `row_case`, whose first dim is one of rows for most. In float64, parts of the inputs give
the parts of the results, also beside rows of NaN, and beside rows of other values.

    python -m tests.fuzz --independence 1000
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy

import anydim as ad
from anydim.base.dtypes import float32, float64
from anydim.base.errors import UserError
from anydim.base.frozen import FrozenMapping
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.nodes import Graph, Node
from anydim.compiler.graph.operator import operator
from anydim.compiler.passes.ragged.row_checks import mixing
from anydim.serving.batcher import form_of
from tests.fuzz.case import Arrays, Case
from tests.fuzz.judge import Failure, compiled
from tests.fuzz.metamorphic import row_case
from tests.fuzz.points import Sizes, shown
from tests.fuzz.rows import Rows, _close, _poisoned
from tests.fuzz.runner import Outcome, run_judged

MIXERS = {
    "reduce_max": {"keepdims": True}, "reduce_min": {"keepdims": True},
    "reduce_mean": {"keepdims": True}, "cum_sum": {"exclusive": True}, "sort": {},
}  # fmt: skip


def run(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the cases of these seeds, in order."""
    return run_judged(seeds, small, row_case, judge)


def run_planted(seeds: range, small: bool = True) -> Iterator[Outcome]:
    """The outcomes of the cases of these seeds with planted mixers, in order."""
    return run_judged(seeds, small, row_case, judge_planted)


def judge(case: Case) -> Failure | None:
    """A dim that is said to be independent, and is not."""
    for dim in shown(case.graph):
        rows = joined_along(case.graph, dim)
        if rows is None or mixing(case.graph, dim.name):
            continue
        for sizes in case.points:
            reason = _mixed(case, rows, sizes)
            if reason:
                return Failure("independence", f"{dim.name}: {reason}", sizes)
    return None


def planted(case: Case) -> tuple[Case, ad.Dim] | None:
    """The case with a result that an operator mixes along a dim of rows, and the dim."""
    for dim in shown(case.graph):
        rows = joined_along(case.graph, dim)
        if rows is None or mixing(case.graph, dim.name):
            continue
        for name in case.graph.outputs:
            if case.graph.types[name].dtype is float32:
                numbers = numpy.random.default_rng(case.seed)
                operator = str(numbers.choice([*MIXERS]))
                graph = _mixed_in(case.graph, name, rows, operator)
                return replace(case, graph=graph, specials=False), dim  # NaN hides rows
    return None


def _mixed_in(graph: Graph, name: str, rows: Rows, mixer: str) -> Graph:
    """The graph with the difference of a result and what an operator makes along its rows."""
    kind, axis = graph.types[name], rows.axes[name]
    along = {"axes": (axis,)} if mixer.startswith("reduce") else {"axis": axis}
    attributes = {**MIXERS[mixer], **along}
    made = operator(mixer).infer((kind,), attributes, graph.box)
    values = [f"{name}.mixed{number}" for number in range(len(made))]
    last = f"{name}.planted"
    nodes = (
        Node(mixer, (name,), tuple(values), FrozenMapping(attributes), "planted"),
        Node("sub", (name, values[0]), (last,)),
    )
    return graph.replace(
        nodes=(*graph.nodes, *nodes), types={**graph.types, **dict(zip(values, made)), last: kind},
        outputs=tuple(last if each == name else each for each in graph.outputs),
    )  # fmt: skip


def judge_planted(case: Case) -> Failure | None:
    """A planted mixer that is said to be none, or that samples of equal rows do not find."""
    found = planted(case)
    if found is None:
        return None
    made, dim = found
    if not mixing(made.graph, dim.name):
        return Failure("planted", f"{dim.name} is said to be independent")
    model = compiled(made)
    rows = joined_along(made.graph, dim)
    assert rows is not None
    for sizes in made.points:
        inputs = made.inputs(sizes)
        count = sizes.get(dim.name, 0)
        if count < 3 or inputs is None or not {1, 3} <= {n for n in (1, 3) if n in dim}:
            continue
        parts = [rows.part(inputs, n, n + 1) for n in range(3)]
        if _differs(model, dim.name, parts) and not _differs(model, dim.name, [parts[0]] * 3):
            return Failure("planted", f"samples beside equal rows of {dim.name}", sizes)
    return None


def _differs(model: ad.Model, dim: str, parts: list[Mapping[str, numpy.ndarray]]) -> bool:
    """Whether the samples of four shared calls find that these rows depend on each other."""
    try:
        form = form_of(model, dim)
        for _ in range(4):
            form.run([form.read(dict(part), None) for part in parts])
    except UserError:  # such as results whose sizes data decides
        return False
    return bool(form.depends)  # type: ignore[attr-defined]


def joined_along(graph: Graph, dim: ad.Dim) -> Rows | None:
    """A dim that is one axis of each result, and at most one of each input."""
    axes = {}
    for name in (*graph.inputs, *graph.outputs):
        shape = graph.types[name].shape
        having = [axis for axis, size in enumerate(shape) if dim.name in size.symbols]
        if len(having) > 1 or any(shape[axis] != dim.size for axis in having):
            return None
        if having:
            axes[name] = having[0]
    return Rows(dim, axes) if set(graph.outputs) <= set(axes) else None


def _mixed(case: Case, rows: Rows, sizes: Sizes) -> str:
    """What differs between rows of a call and the same rows alone; '' for nothing."""
    count, inputs = sizes.get(rows.dim.name, 0), case.inputs(sizes)
    if count < 2 or inputs is None:
        return ""
    for number, given in enumerate((inputs, _poisoned(rows, inputs, count), turned(rows, inputs))):
        for start, stop in ((0, 1), (count // 2, count // 2 + 1), (0, count - 1)):
            found = _results(case.graph, given)
            alone = _results(case.graph, rows.part(given, start, stop))
            if found is None or alone is None:
                continue
            part = rows.part(found, start, stop)
            wrong = [name for name in alone if not _close(part[name], alone[name])]
            if wrong:
                return f"'{wrong[0]}' of rows {start}..{stop - 1} of {count} (inputs {number})"
    return ""


def turned(rows: Rows, inputs: Arrays) -> Mapping[str, numpy.ndarray]:
    """The inputs with all but the first row in another order."""
    changed = dict(inputs)
    for name, axis in rows.axes.items():
        if name in changed:
            order = [0, *range(changed[name].shape[axis] - 1, 0, -1)]
            changed[name] = numpy.take(changed[name], order, axis)
    return changed


def _results(graph: Graph, inputs: Mapping[str, numpy.ndarray]) -> Arrays | None:
    try:
        return evaluate(graph, dict(inputs), precision=float64)
    except UserError:
        return None
