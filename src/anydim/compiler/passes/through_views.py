"""Move pointwise statements before the views between them and the producer of their operand.

    v = x transposed, reshaped        w = f(x)
    y = f(v)                    ->    y = w transposed, reshaped

There the statement fuses into the kernel that makes x, and y is a view, which matrix products read
in any layout. Exporters scale queries and keys after the transposes that split heads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from anydim.compiler.passes.flow import Line, inputs_of, is_product, unique_name
from anydim.compiler.passes.view_forms import is_reshape, is_view, permutation
from anydim.lang.tree import Expr, Index, Read, SizeTerm, Statement, TensorType
from anydim.lang.tree.affine import reads, rewrite


@dataclass
class ThroughViews:
    """The lines under rewriting, by target, and the types of their values."""

    lines: dict[str, Line]
    types: dict[str, TensorType]
    outputs: frozenset[str]
    users: dict[str, set[str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, lines: Iterable[Line], types: dict[str, TensorType], outputs: Iterable[str]
    ) -> ThroughViews:
        work = cls({line.target: line for line in lines}, dict(types), frozenset(outputs))
        for line in work.lines.values():
            for name in inputs_of(line.statement):
                work.users.setdefault(name, set()).add(line.target)
        return work

    def run(self) -> list[Line]:
        """The lines, with pointwise operands of products computed before views."""
        before: dict[str, Line] = {}  # new statement after each value
        for line in list(self.lines.values()):
            views = self._views_between(line.statement)
            if views and line.target not in self.outputs and self._is_for_products(line.target):
                made = self._move_statement(line, views)
                before[inputs_of(made.statement)[0]] = made
        return [
            each
            for line in self.lines.values()
            for each in (line, before.get(line.target))
            if each is not None
        ]

    def _views_between(self, statement: Statement) -> list[str]:
        """The views, last first, between a pointwise statement and the producer of its operand."""
        source = self._argument(statement)
        found: list[str] = []
        while source in self.lines and self._has_one_reader(source):
            view = self.lines[source].statement
            if not is_view(view, self.types):
                return found
            if not self._keeps_all(view):
                break
            found.append(source)
            source = inputs_of(view)[0]
        return []

    def _argument(self, statement: Statement) -> str:
        """The only operand of a statement, if read element for element; else ''."""
        found = reads(statement.body)
        own = Read("", tuple(Index(axis.name) for axis in statement.axes))
        if statement.combine or len(found) != 1 or replace(found[0], tensor="") != own:
            return ""
        if isinstance(statement.body, Read) or self.types[found[0].tensor].shape != statement.shape:
            return ""
        return found[0].tensor if _count_indices(statement.body) == len(statement.axes) else ""

    def _has_one_reader(self, name: str) -> bool:
        return name not in self.outputs and len(self.users[name]) == 1

    def _keeps_all(self, view: Statement) -> bool:
        """Whether a view contains every element of its source exactly once."""
        order = permutation(view)
        if order is None:
            return is_reshape(view, self.types)
        source = self.types[inputs_of(view)[0]].shape
        return tuple(source[axis] for axis in order) == view.shape

    def _is_for_products(self, name: str) -> bool:
        """Whether only matrix products read a value, directly or through views."""
        found = [self.lines[user].statement for user in self.users.get(name, ())]
        return bool(found) and all(
            is_product(user) or (is_view(user, self.types) and self._is_for_products(user.target))
            for user in found
        )

    def _move_statement(self, line: Line, views: list[str]) -> Line:
        """Rebase the views on the statement's result; return the moved statement."""
        dtype = self.types[line.target].dtype
        source = inputs_of(self.lines[views[-1]].statement)[0]
        axes = self.lines[source].statement.axes
        name = unique_name(f"{line.target}/before", self.types)
        self.types[name] = TensorType(dtype, self.types[source].shape)
        value = Read(source, tuple(Index(axis.name) for axis in axes))
        body = rewrite(line.statement.body, lambda e: value if isinstance(e, Read) else None)
        self.users[source], self.users[name] = {name}, {views[-1]}

        first = self.lines[views[-1]]
        self.lines[views[-1]] = replace(first, statement=_reading(first.statement, name))
        for view in views:
            self.types[view] = replace(self.types[view], dtype=dtype)
        last = self.lines.pop(views[0]).statement
        self.lines[line.target] = replace(line, statement=replace(last, target=line.target))
        for view in inputs_of(last):
            self.users[view] = {line.target}
        return Line(Statement(name, axes, body), line.source)


def _reading(view: Statement, name: str) -> Statement:
    assert isinstance(view.body, Read)
    return view.with_body(replace(view.body, tensor=name))


def _count_indices(body: Expr) -> int:
    """Count of indices and sizes in a body."""
    found: list[Expr] = []

    def look(expr: Expr) -> Expr | None:
        if isinstance(expr, (Index, SizeTerm)):
            found.append(expr)
        return None

    rewrite(body, look)
    return len(found)
