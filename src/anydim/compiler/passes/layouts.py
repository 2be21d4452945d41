"""Store images channels last where chosen, so that vectors run along channels at any size.

    y(n, m, h, w) +=! x(n, c, h + r, w + q) * k(m, c, r, q)    becomes
    y(n, h, w, m) +=! x(n, h + r, w + q, c) * k(m, c, r, q)

A layout is a property of a tensor, not of an operator: moving a dimension of a value moves its
index in all statements that write and read the value, whatever they compute. Inputs, constants and
results keep their layouts, except those copied at the borders (`layout_borders.py`); a statement
that reads one layout and writes the other is the transposition.

After: every value between statements with one channel dimension has it last, except values that are
read at flat offsets that do not split into channels and the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import Any

from anydim.base.records import dataclass
from anydim.compiler.graph.derivations import LastAxis
from anydim.compiler.graph.nodes import Constant, Graph
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.passes.flow import Line, pack, unpack
from anydim.compiler.passes.image_channels import ChannelDims, channels_of, split_offset
from anydim.compiler.passes.layout_borders import Borders, with_copies
from anydim.compiler.passes.layout_choice import report_lines, weigh_layouts
from anydim.lang.tree import Expr, Index, Read, Statement, TensorType
from anydim.lang.tree.affine import reads, rewrite, to_expr
from anydim.sizes import Box, product

AUTO, CHANNELS_FIRST = "auto", "channels_first"


@dataclass(frozen=True)
class Layouts:
    """Move the channels of intermediate values behind their other dimensions.

    `choice` selects values: all, none, or with "auto" those for which the estimated time is lower,
    if costs are `known` for the machine. `copies` permits copies of inputs and results; not used
    with user schedules, which refer to kernels without copies. `notes` report counts and reasons.
    """

    choice: str
    known: bool = True
    copies: bool = True
    notes: list[str] = field(default_factory=list)

    def run(self, graph: Graph) -> Graph:
        if self.choice == CHANNELS_FIRST or (self.choice == AUTO and not self.known):
            return graph
        plain = unpack(graph)
        borders = with_copies(plain, graph, None if self.copies else frozenset())
        while True:
            lines = borders.lines
            wide = graph.replace(types=borders.types)
            moved, notes = self._choose_moved(borders, wide)
            used = frozenset(name for name, copy in borders.copies.items() if copy in moved)
            if used == borders.copies.keys():
                break
            borders = with_copies(plain, graph, used)
        self.notes.extend(notes)
        if not moved:
            return graph
        graph = wide
        types, constants = dict(graph.types), dict(graph.constants)
        for name, dim in (moved | _windows(lines, moved, graph)).items():
            kind = types[name]
            types[name] = TensorType(kind.dtype, _last(kind.shape, dim))
            if name in constants:
                constants[name] = Constant.derive(LastAxis(dim), constants[name])
                moved[name] = dim
        changed = [_write_in_layouts(line, moved, graph) for line in lines]
        return pack(graph.replace(types=types, constants=constants), changed, types)

    def _choose_moved(self, borders: Borders, graph: Graph) -> tuple[ChannelDims, list[str]]:
        """The values to move, and report lines about them."""
        lines = borders.lines
        channels = borders.channels(channels_of(lines, graph))
        moved = _movable(channels, lines, graph)
        if self.choice == AUTO:
            parts = weigh_layouts(moved, channels, lines, graph, frozenset(borders.copies.values()))
            last = (part.values for part in parts if part.goes_last)
            chosen = {name: at for held in last for name, at in held.items()}
            return chosen, report_lines(parts, len(lines))
        why = "as set by the setting 'layout'"
        notes = [f"channels last: {len(moved)} of {len(lines)} values, {why}"]
        return moved, notes[: len(moved)]


def _movable(channels: ChannelDims, lines: Sequence[Line], graph: Graph) -> ChannelDims:
    """Values of `channels` whose channels are not last and whose readers can all be rewritten."""
    moved = {
        line.target: channels[line.target]
        for line in lines
        if line.target not in graph.outputs
        and channels.get(line.target, len(line.statement.axes)) + 1 < len(line.statement.axes)
    }
    for line in lines:
        for read in reads(line.statement.body):
            if read.flat and read.tensor in moved:
                kind = graph.types[read.tensor]
                if moved_offset(read, kind, moved[read.tensor], line.statement, graph.box) is None:
                    del moved[read.tensor]
    return moved


def _windows(lines: Sequence[Line], moved: ChannelDims, graph: Graph) -> ChannelDims:
    """Constant weights of depthwise windows, with their channel dimension.

    These are moved too, since they are read in vectors of channels.
    """
    found: dict[str, int] = {}
    stay = {name for line in lines for name in _elsewhere(line.statement, moved, graph)}
    for line in lines:
        found.update(_own_windows(line.statement, moved, graph))
    return {name: dim for name, dim in found.items() if name not in stay}


def _own_windows(
    statement: Statement, moved: ChannelDims, graph: Graph
) -> Iterator[tuple[str, int]]:
    if not statement.combine or statement.target not in moved:
        return
    channel = statement.axes[moved[statement.target]].name
    found = reads(statement.body)
    if not all(channel in free_axes(read) for read in found):
        return
    for read in found:
        if read.tensor in graph.constants and Index(channel) in read.indices[:-1]:
            yield read.tensor, read.indices.index(Index(channel))


def _elsewhere(statement: Statement, moved: ChannelDims, graph: Graph) -> Iterator[str]:
    """Constants that a statement reads other than as such weights."""
    windows = dict(_own_windows(statement, moved, graph))
    for read in reads(statement.body):
        if read.tensor in graph.constants and (read.flat or read.tensor not in windows):
            yield read.tensor


def _write_in_layouts(line: Line, moved: ChannelDims, graph: Graph) -> Line:
    """The statement over values in their new layouts."""
    statement = line.statement

    def change(expr: Expr) -> Expr | None:
        if not isinstance(expr, Read) or expr.tensor not in moved:
            return None
        dim = moved[expr.tensor]
        if not expr.flat:
            return replace(expr, indices=_last(expr.indices, dim))
        return moved_offset(expr, graph.types[expr.tensor], dim, statement, graph.box)

    changed = statement.with_body(rewrite(statement.body, change))
    if line.target in moved:
        changed = replace(changed, axes=_last(statement.axes, moved[line.target]))
    return replace(line, statement=changed)


def moved_offset(
    read: Read, kind: TensorType, dimension: int, statement: Statement, box: Box
) -> Read | None:
    """A flat read of a tensor whose dimension `dimension` is moved to the end.

    None if the offset does not split into that dimension, those before and those after.
    """
    found = (
        None
        if read.default is not None
        else split_offset(read, kind.shape, dimension, statement, box)
    )
    if found is None:
        return None
    outer, own, inner = found
    channels, after = kind.shape[dimension], product(kind.shape[dimension + 1 :])
    offset = outer.scale(channels * after) + inner.scale(channels) + own
    return replace(read, indices=(to_expr(offset),))


def _last(items: tuple[Any, ...], index: int) -> tuple[Any, ...]:
    """The items with the one at `index` moved to the end."""
    return (*items[:index], *items[index + 1 :], items[index])
