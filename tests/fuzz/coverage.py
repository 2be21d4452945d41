"""What generated graphs try: operators by the types, ranks and special values that they read.

The values that each node reads are computed, so a NaN counts where it comes, not where it was put.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import ml_dtypes
import numpy

from anydim.base.dtypes import from_numpy
from anydim.base.errors import UserError
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.graph.operator import OPERATORS
from tests.fuzz.case import Case
from tests.fuzz.points import affordable

WORK = 20_000  # elements of all statements of a call
Floats = Callable[[numpy.ndarray], numpy.ndarray]


def _subnormal(x: numpy.ndarray) -> numpy.ndarray:
    return (x != 0) & (numpy.abs(x) < ml_dtypes.finfo(x.dtype).smallest_normal)


def _largest(x: numpy.ndarray) -> numpy.ndarray:
    return numpy.isfinite(x) & (numpy.abs(x) > ml_dtypes.finfo(x.dtype).max / 2)


def _beside(x: numpy.ndarray) -> numpy.ndarray:
    """Whether a number is not whole, but within two units of one that is."""
    distance = numpy.abs(x - numpy.rint(x))
    return (distance > 0) & (distance <= 2 * ml_dtypes.finfo(x.dtype).eps * numpy.abs(x))


SPECIAL: dict[str, Floats] = {
    "-0": lambda x: (x == 0) & numpy.signbit(x),
    "subnormal": _subnormal,
    "beside": _beside,
    "largest": _largest,
    "inf": numpy.isinf,
    "nan": numpy.isnan,
}
WHOLE = ("least", "most")  # of a type of integers


@dataclass
class Coverage:
    """How many nodes of an operator read something: by dtype, rank, special value."""

    nodes: Counter[str] = field(default_factory=Counter)
    seen: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    @staticmethod
    def of(cases: Iterable[Case]) -> Coverage:
        made = Coverage()
        for case in cases:
            made.add(case)
        return made

    def add(self, case: Case) -> None:
        """Count the nodes of a case, with what they read at its first sizes that it takes."""
        values: dict[str, numpy.ndarray] = {}
        named = tuple(name for name in case.graph.types if name not in case.graph.constants)
        for point in case.points:
            try:
                inputs = case.inputs(affordable(case.graph, WORK, point))
                if inputs is not None and any(array.size for array in inputs.values()):
                    values = evaluate(case.graph.replace(outputs=named), inputs)
                    break
            except UserError:
                continue
        for node in case.graph.nodes:
            self._node(case.graph, node, values)

    def _node(self, graph: Graph, node: Node, values: dict[str, numpy.ndarray]) -> None:
        name = "(written)" if node.operator == FUSED else node.operator
        kinds = [graph.types[operand] for operand in node.given]
        marks = {str(kind.dtype) for kind in kinds} | {f"rank {len(k.shape)}" for k in kinds}
        for operand in node.given:
            if operand in values:
                marks |= special(numpy.asarray(values[operand]))
        self.nodes[name] += 1
        self.seen[name].update(marks)

    def table(self) -> str:
        """A line for each operator; what was never tried is a dot."""
        dtypes = sorted({m for c in self.seen.values() for m in c} - {*SPECIAL, *WHOLE, "empty"})
        ranks = [mark for mark in dtypes if mark.startswith("rank ")]
        dtypes = [mark for mark in dtypes if mark not in ranks]
        marks = [*dtypes, *ranks, *SPECIAL, *WHOLE, "empty"]
        titles = [mark.removeprefix("rank ").replace("float", "f") for mark in marks]
        lines = [_line("", "nodes", titles)]
        for name in sorted(self.nodes):
            counts = [str(self.seen[name][mark] or ".") for mark in marks]
            lines.append(_line(name, str(self.nodes[name]), counts))
        tried = sum(bool(self.seen[name][mark]) for name in self.nodes for mark in marks)
        lines.append(f"{tried} of {len(self.nodes) * len(marks)} pairs were tried")
        never = sorted(set(OPERATORS) - set(self.nodes))
        return "\n".join([*lines, f"{len(never)} operators never: {', '.join(never)}"])


def _line(name: str, nodes: str, counts: Iterable[str]) -> str:
    return f"{name:24}{nodes:>7}" + "".join(f"{count:>9}" for count in counts)


def special(array: numpy.ndarray) -> set[str]:
    """The special values that an array has."""
    if not array.size:
        return {"empty"}
    kind = from_numpy(array.dtype)
    with numpy.errstate(all="ignore"):
        if kind.is_float:
            return {name for name, has in SPECIAL.items() if has(array).any()}
    if not kind.is_integer:
        return set()
    edge = numpy.iinfo(array.dtype)
    return {name for name, end in zip(WHOLE, (edge.min, edge.max)) if (array == end).any()}
