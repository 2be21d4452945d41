"""Unify loops: give the axes of fused statements the names of shared loops.

Statements of different operators name their axes independently. Two axes are the same loop if one
statement reads, at that axis, a dimension that the other wrote with its axis; or if both read the
same outside tensor at the same dimension. A loop has one extent, and one statement never has the
same loop twice; a union that would violate this is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anydim.lang.tree import Axis, Index, Read, Statement
from anydim.lang.tree.affine import affine, reads, substitute
from anydim.sizes import Size

Occurrence = tuple[int, str]  # statement number, axis name in that statement


class Loops:
    """Union-find of axis occurrences that are the same loop."""

    def __init__(self, statements: Sequence[Statement]) -> None:
        self.statements = statements
        self.parent: dict[Occurrence, Occurrence] = {}
        self.members: dict[Occurrence, set[Occurrence]] = {}
        self.extents: dict[Occurrence, Size] = {}
        for number, statement in enumerate(statements):
            for axis in (*statement.axes, *statement.reduced):
                occurrence = (number, axis.name)
                self.parent[occurrence] = occurrence
                self.members[occurrence] = {occurrence}
                self.extents[occurrence] = axis.extent

    def find(self, occurrence: Occurrence) -> Occurrence:
        while self.parent[occurrence] != occurrence:
            occurrence = self.parent[occurrence]
        return occurrence

    def join(self, left: Occurrence, right: Occurrence) -> bool:
        """Unify two occurrences; False if extents differ or a statement has both."""
        left, right = self.find(left), self.find(right)
        if left == right:
            return True
        if self.extents[left] != self.extents[right]:
            return False
        mine = {number for number, _ in self.members[left]}
        if any(number in mine for number, _ in self.members[right]):
            return False
        if right < left:
            left, right = right, left
        self.parent[right] = left
        self.members[left] |= self.members.pop(right)
        return True


def find_loops(statements: Sequence[Statement]) -> Loops:
    """Unify the axes of `statements` by their reads of each other and of outside tensors."""
    loops = Loops(statements)
    writers = {statement.target: number for number, statement in enumerate(statements)}
    outside: dict[tuple[str, int], list[Occurrence]] = {}
    for number, statement in enumerate(statements):
        own = {axis.name for axis in (*statement.axes, *statement.reduced)}
        for read in reads(statement.body):
            writer = writers.get(read.tensor)
            for position, index in enumerate(read.indices):
                if not isinstance(index, Index) or index.name not in own or read.flat:
                    continue
                if writer is not None and writer != number:
                    axis = statements[writer].axes[position]
                    loops.join((writer, axis.name), (number, index.name))
                elif writer is None:
                    outside.setdefault((read.tensor, position), []).append((number, index.name))
    _join_flat(statements, writers, loops)
    for occurrences in outside.values():
        for occurrence in occurrences[1:]:
            loops.join(occurrences[0], occurrence)
    _join_leftovers(statements, loops)
    return loops


def _join_flat(statements: Sequence[Statement], writers: dict[str, int], loops: Loops) -> None:
    """Unify loops of statements that read an outside tensor with the same flat strides."""
    seen: dict[str, list[tuple[int, Read]]] = {}
    for number, statement in enumerate(statements):
        for read in reads(statement.body):
            if not read.flat or read.tensor in writers:
                continue
            for other, earlier in seen.get(read.tensor, []):
                if other != number:
                    _join_equal_axes(statements, (other, earlier), (number, read), loops)
            seen.setdefault(read.tensor, []).append((number, read))


def _join_equal_axes(
    statements: Sequence[Statement],
    left: tuple[int, Read],
    right: tuple[int, Read],
    loops: Loops,
) -> None:
    mine = _strides(left[1])
    theirs = _strides(right[1])
    for name, stride in mine.items():
        matches = [other for other, value in theirs.items() if value == stride]
        if len(matches) == 1:
            a, b = (left[0], name), (right[0], matches[0])
            if a in loops.parent and b in loops.parent:
                loops.join(a, b)


def _strides(read: Read) -> dict[str, Size]:
    form = affine(read.indices[0])
    return {} if form is None else dict(form.terms)


def _join_leftovers(statements: Sequence[Statement], loops: Loops) -> None:
    """Unify a statement's only axis without earlier occurrences with the one loop of its extent
    that the statement lacks; later statements that read its values use that loop, too.
    """
    for number, statement in enumerate(statements):
        axes = [(number, axis.name) for axis in (*statement.axes, *statement.reduced)]
        alone = [o for o in axes if min(loops.members[loops.find(o)])[0] == number]
        if len(alone) != 1 or number == 0 or len(axes) < 2:
            continue
        extent = loops.extents[alone[0]]
        mine = {loops.find(o) for o in axes}
        fitting = [
            root
            for root in dict.fromkeys(loops.find(o) for o in loops.parent)
            if root not in mine
            and loops.extents[root] == extent
            and any(other < number for other, _ in loops.members[root])
        ]
        if len(fitting) == 1:
            loops.join(fitting[0], alone[0])


def loop_names(statements: Sequence[Statement]) -> tuple[dict[str, str], ...]:
    """Names of each statement's axes, equal for shared loops: i0, i1, ... by first use."""
    loops = find_loops(statements)
    names: dict[Occurrence, str] = {}
    result = []
    for number, statement in enumerate(statements):
        renaming = {}
        for axis in (*statement.axes, *statement.reduced):
            root = loops.find((number, axis.name))
            renaming[axis.name] = names.setdefault(root, f"i{len(names)}")
        result.append(renaming)
    return tuple(result)


def rename_axes(statement: Statement, names: dict[str, str]) -> Statement:
    """The statement with renamed axes."""
    if all(old == new for old, new in names.items()):
        return statement

    def axes(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(names[axis.name], axis.extent) for axis in old)

    return replace(
        statement,
        axes=axes(statement.axes),
        reduced=axes(statement.reduced),
        body=substitute(statement.body, {old: Index(new) for old, new in names.items()}),
    )
