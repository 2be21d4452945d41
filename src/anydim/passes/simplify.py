"""Less to compute, same results: local algebra, folding of constants, equal statements once.

After: no body has a place where a rule of `rules.py` fits; no statement reads only constants
(unless its result would be large); no two statements compute the same thing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anydim.graph.nodes import Constant, Graph
from anydim.lang.affine import reads, rewrite
from anydim.lang.evaluate import evaluate
from anydim.lang.tree import Axis, Expr, Read, Statement
from anydim.passes.flow import Line, group_of, inputs_of, live, pack, unpack
from anydim.passes.rules import simplified
from anydim.passes.spaces import rename_axes
from anydim.passes.views import is_view
from anydim.sizes import Size


@dataclass(frozen=True)
class Simplify:
    """Apply the rules, fold constants up to `fold_elements` elements, merge equal statements."""

    fold_elements: int = 1 << 22

    def run(self, graph: Graph) -> Graph:
        lines = [
            replace(line, statement=replace(s, body=simplified(s.body)))
            for line in unpack(graph)
            for s in [line.statement]
        ]
        graph, lines = self._fold(graph, lines)
        lines = _merge_equal(lines, graph)
        return pack(graph, live(lines, graph.outputs), graph.types)

    def _fold(self, graph: Graph, lines: list[Line]) -> tuple[Graph, list[Line]]:
        constants = dict(graph.constants)
        kept = []
        for line in lines:
            statement = line.statement
            if self._foldable(statement, constants, graph):
                group = group_of([statement], graph.types, [line.target])
                arrays = {name: constants[name].array for name in inputs_of(statement)}
                constants[line.target] = Constant(evaluate(group, arrays, {})[line.target])
            else:
                kept.append(line)
        return graph.replace(constants=constants), kept

    def _foldable(
        self, statement: Statement, constants: dict[str, Constant], graph: Graph
    ) -> bool:
        if statement.target in graph.outputs or is_view(statement, graph.types):
            return False
        if any(read.tensor not in constants for read in reads(statement.body)):
            return False
        count = 1
        for axis in (*statement.axes, *statement.reduced):
            if axis.extent.constant is None or _mentions_dims(statement):
                return False
            count *= axis.extent.constant
        return count <= self.fold_elements


def _mentions_dims(statement: Statement) -> bool:
    found: list[Size] = []

    def look(expr: Expr) -> Expr | None:
        size = getattr(expr, "size", None)
        if isinstance(size, Size) and size.constant is None:
            found.append(size)
        return None

    rewrite(statement.body, look)
    return bool(found)


def _merge_equal(lines: list[Line], graph: Graph) -> list[Line]:
    """Keep the first of statements that are equal but for names of axes and target."""
    first: dict[Statement, str] = {}
    instead: dict[str, str] = {}
    kept = []

    def redirect(expr: Expr) -> Expr | None:
        if isinstance(expr, Read) and expr.tensor in instead:
            return replace(expr, tensor=instead[expr.tensor])
        return None

    for line in lines:
        statement = line.statement
        if instead:
            statement = replace(statement, body=rewrite(statement.body, redirect))
        key = _anonymous(statement)
        if key in first and line.target not in graph.outputs:
            instead[line.target] = first[key]
            continue
        first.setdefault(key, line.target)
        kept.append(replace(line, statement=statement))
    return kept


def _anonymous(statement: Statement) -> Statement:
    axes: tuple[Axis, ...] = (*statement.axes, *statement.reduced)
    names = {axis.name: f"i{number}" for number, axis in enumerate(axes)}
    return replace(rename_axes(statement, names), target="")

