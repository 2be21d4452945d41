"""Converts steps without loops and branches to plain statements, if each writes whole tensors.

A tensor that is written again becomes another tensor: `y(i) += e` is `y.2(i) = y(i) + e`. Then all
optimisations of statements (fusion, fast products) apply to such programs too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace

from anydim.base.records import dataclass
from anydim.lang.resolve.ranges import is_proved
from anydim.lang.tree import Apply, Axis, Expr, Group, Index, Read, Statement, Tensor, Write
from anydim.lang.tree.affine import reads, rewrite
from anydim.sizes import Box


def straighten(group: Group, box: Box, fresh_name: Callable[[str], str]) -> Group:
    """A group with statements equivalent to its steps; the same group if it needs an order."""
    steps = [step for step in group.steps if isinstance(step, (Statement, Write))]
    if len(steps) < len(group.steps) or not all(_is_whole(s, group, box) for s in steps):
        return group
    if _reads_early(steps, group):
        return group
    last = {step.target: number for number, step in enumerate(steps)}
    writer = _Writer(group, fresh_name)
    for number, step in enumerate(steps):
        writer.add(step, last[step.target] == number)
    made = {statement.target for statement in writer.statements}
    hidden = tuple(t for t in (*group.temporaries, *writer.more) if t.name in made)
    return replace(group, statements=tuple(writer.statements), temporaries=hidden, steps=())


def _reads_early(steps: Sequence[Statement | Write], group: Group) -> bool:
    """Whether a step reads an unwritten tensor (such reads are out of bounds with a default)."""
    written = {tensor.name for tensor in group.inputs}
    for step in steps:
        if any(read.tensor not in written for read in reads(step.body)):
            return True
        written.add(step.target)
    return False


@dataclass
class _Writer:
    """Rewrites steps; `current` maps a tensor to the one that holds its current value."""

    group: Group
    fresh_name: Callable[[str], str]
    statements: list[Statement] = field(default_factory=list)
    more: list[Tensor] = field(default_factory=list)
    current: dict[str, str] = field(default_factory=dict)

    @property
    def kept(self) -> set[str]:
        """The tensors that the group returns."""
        return {tensor.name for tensor in self.group.outputs}

    def add(self, step: Statement | Write, last: bool) -> None:
        """Add a step; the last write of a target keeps the target's name."""
        body = rewrite(step.body, self._current_read)
        if not (last and step.target in self.kept) and self._is_copy(step, body):
            assert isinstance(body, Read)
            self.current[step.target] = body.tensor
            return
        axes, reduced, combine = _in_order(step), step.reduced, step.combine
        if isinstance(step, Write) and combine and not step.fresh:
            if reduced:
                part = self._fresh(step.target)
                self.statements.append(Statement(part, axes, body, combine, reduced))
                body = Read(part, tuple(Index(axis.name) for axis in axes))
            before = Read(self.current.get(step.target, step.target), step.indices)
            body, combine, reduced = Apply(combine, (before, body)), "", ()
        new = step.target if last else self._fresh(step.target)
        self.statements.append(Statement(new, axes, body, combine if reduced else "", reduced))
        self.current[step.target] = new

    def _is_copy(self, step: Statement | Write, body: Expr) -> bool:
        """Whether a statement only copies a tensor."""
        if not isinstance(step, Statement) or not isinstance(body, Read) or body.flat:
            return False
        if body.indices != tuple(Index(axis.name) for axis in step.axes) or body.default:
            return False
        known = {tensor.name: tensor.type for tensor in self.more}
        source = known.get(body.tensor) or self.group.type_of(body.tensor)
        return source == self.group.type_of(step.target)

    def _fresh(self, name: str) -> str:
        new = self.fresh_name(name)
        self.more.append(Tensor(new, self.group.type_of(name)))
        return new

    def _current_read(self, expr: Expr) -> Expr | None:
        if isinstance(expr, Read) and expr.tensor in self.current:
            return replace(expr, tensor=self.current[expr.tensor])
        return None


def _in_order(step: Statement | Write) -> tuple[Axis, ...]:
    """The axes in the order of the target's dimensions."""
    if isinstance(step, Statement):
        return step.axes
    axes = {axis.name: axis for axis in step.axes}
    return tuple(axes[index.name] for index in step.indices if isinstance(index, Index))


def _is_whole(step: Statement | Write, group: Group, box: Box) -> bool:
    if isinstance(step, Statement):
        return True
    names = [index.name for index in step.indices if isinstance(index, Index)]
    if len(names) < len(step.indices) or sorted(names) != sorted(axis.name for axis in step.axes):
        return False
    extents = {axis.name: axis.extent for axis in step.axes}
    shape = group.type_of(step.target).shape
    return all(is_proved(extents[name], "==", size, box) for name, size in zip(names, shape))
