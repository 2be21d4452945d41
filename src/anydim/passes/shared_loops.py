"""One name per loop: give the axes of statements that run together the names of shared loops.

Statements of different operators name their axes on their own. Two axes are the same loop when one
statement reads, at that axis, a dimension that the other wrote with its axis; or when both read
the same outside tensor at the same dimension. A loop has one extent, and one statement never
has the same loop twice; a join that would break this is not made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anydim.lang.tree import Axis, Index, Read, Statement
from anydim.lang.tree.affine import affine, placed, reads
from anydim.sizes import Size

Occurrence = tuple[int, str]  # statement number, axis name in that statement


class Loops:
    """Classes of axis occurrences that are the same loop (a union-find)."""

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
        """Make two occurrences one loop; False when extents differ or a statement has both."""
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
    """Join the axes of `statements` by what they read from each other and from outside."""
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
    """Two statements that read the same outside tensor by the same flat form share those loops."""
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
    """A single axis of a statement that none before it runs over takes the one loop of its extent
    that it lacks; the statements after it that read its values run over that loop as well.
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
    """A name for each axis of each statement, alike for shared loops: i0, i1, ... by first use."""
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
    """A statement with its axes called otherwise."""
    if all(old == new for old, new in names.items()):
        return statement

    def axes(old: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(names[axis.name], axis.extent) for axis in old)

    return replace(
        statement,
        axes=axes(statement.axes),
        reduced=axes(statement.reduced),
        body=placed(statement.body, {old: Index(new) for old, new in names.items()}),
    )
