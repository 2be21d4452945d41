"""Which loops may run past the size of a dim, to a padded one, without changing a true element.

A loop over the dim may where it is no sum, and where all that it reads is there: a value that was
padded too, each element for its own; a tensor that is as long anyway; or one of the true size, of
which a padded copy is made first. What is computed behind the true size is nobody's: sums, guarded
reads, results and indices that data decides end at the true one.

It begins with every loop over the dim, and takes away what cannot be until nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anydim.graph.nodes import FUSED, Graph, Node
from anydim.kernels.inference import free_axes
from anydim.lang.tree import Group, Index, Read, Statement, TensorType
from anydim.lang.tree.affine import affine, reads
from anydim.lang.tree.bounds_checks import checked
from anydim.passes.padded_addresses import Part, taken_apart
from anydim.sizes import Size, Truth, prove


class Padding:
    """The loops of each node that run to `extent` for `size`, the values to copy, and why not."""

    def __init__(self, graph: Graph, size: Size, extent: Size) -> None:
        self.graph, self.size, self.extent = graph, size, extent
        self.box = graph.box.without_zero()
        self.types: dict[str, TensorType] = dict(graph.types)
        self.loops: list[set[str]] = []
        self.reasons: list[str] = ["" for _ in graph.nodes]
        self.copies: dict[str, set[int]] = {}
        self._writer: dict[str, tuple[int, Statement]] = {}
        for number, node in enumerate(graph.nodes):
            group = group_of(node)
            for statement in group.statements if group else ():
                self._writer[statement.target] = number, statement
            self.types.update((t.name, t.type) for t in (group.temporaries if group else ()))
            self.loops.append(set() if group is None else self._candidates(number, group))

    def settle(self) -> None:
        """Take away what cannot be padded."""
        self._outside()
        before = None
        while before != self.loops:
            before = [set(loops) for loops in self.loops]
            self.copies, copied = {}, None
            while copied != (self.copies, self.loops):
                copied = (
                    {name: set(dims) for name, dims in self.copies.items()},
                    [set(loops) for loops in self.loops],
                )
                for number, statement, read in self._reads():
                    self._look(number, statement, read)

    def drop(self, number: int, loops: Iterable[str], reason: str) -> None:
        """These loops of a node end at the true size."""
        gone = self.loops[number] & set(loops)
        if gone:
            self.loops[number] -= gone
            self.reasons[number] = self.reasons[number] or reason

    # ---- what a value is -----------------------------------------------------------------------

    def padded(self, tensor: str) -> frozenset[int]:
        """The dimensions of a value that its loops make longer."""
        number, statement = self._writer.get(tensor, (0, None))
        if statement is None:
            return frozenset()
        loops = self.loops[number]
        return frozenset(d for d, axis in enumerate(statement.axes) if axis.name in loops)

    def missing(self, number: int, statement: Statement, read: Read) -> frozenset[int]:
        """The dimensions in which the tensor of a read is too short, and has to be copied.

        Loops for which no copy helps are dropped. A guarded read may be outside.
        """
        self.drop(number, self._strange(read), _beside(read))
        loops = self.loops[number] & _loops_of(read)
        if not loops or read.default is not None:
            return frozenset()
        if read.flat:
            found = self._flat_dimensions(number, statement, read, loops)
        else:
            found = {
                d: index.name for d, index in enumerate(read.indices)
                if isinstance(index, Index) and index.name in loops
            }  # fmt: skip
        shape, have = self.types[read.tensor].shape, self.padded(read.tensor)
        own = self._writer.get(read.tensor, (-1, None))[0] == number
        wanted = set()
        for d, loop in found.items():
            if d in have or prove(self.extent, "<=", shape[d], self.box) is Truth.PROVED:
                continue
            if have or own or shape[d] != self.size:
                self.drop(number, {loop}, _beside(read))
            else:
                wanted.add(d)
        return frozenset(wanted)

    def parts(
        self, statement: Statement, read: Read, dims: Iterable[int]
    ) -> tuple[Part, ...] | None:
        """The address of a flat read by dimensions of its tensor."""
        form = affine(read.indices[0])
        if form is None:
            return None
        extents = {axis.name: axis.extent for axis in (*statement.axes, *statement.reduced)}
        if not set(form.indices) <= extents.keys():
            return None
        shape = self.types[read.tensor].shape
        return taken_apart(form, shape, set(dims), extents, self.box)

    # ---- taking away ---------------------------------------------------------------------------

    def _candidates(self, number: int, group: Group) -> set[str]:
        """The loops of a group that run over the dim, and over nothing else."""
        axes = [axis for s in group.statements for axis in s.axes]
        wanted = {axis.name for axis in axes if axis.extent == self.size}
        if not wanted:
            return set()
        others = {axis.name for axis in axes if axis.extent != self.size}
        sums = {axis.name for s in group.statements for axis in s.reduced}
        if wanted & sums:
            self.reasons[number] = "what is summed up ends at the true size"
        if any(checked(s.body) or _by_data(s) for s in group.statements):
            self.reasons[number] = "data decides what it reads"
            return set()
        return wanted - others - sums

    def _outside(self) -> None:
        """Results are as large as they are; so is what others than statements read."""
        for name in self.graph.outputs:
            self._shorten(name, "it makes a result")
        for node in self.graph.nodes:
            if group_of(node) is None:
                for name in node.given:
                    self._shorten(name, "what reads it is no sum or element work")

    def _shorten(self, tensor: str, reason: str, dims: Iterable[int] | None = None) -> None:
        """A value keeps its true size."""
        number, statement = self._writer.get(tensor, (0, None))
        if statement is not None:
            chosen = self.padded(tensor) if dims is None else dims
            self.drop(number, {statement.axes[d].name for d in chosen}, reason)

    def _reads(self) -> Iterator[tuple[int, Statement, Read]]:
        for number, node in enumerate(self.graph.nodes):
            group = group_of(node)
            for statement in group.statements if group else ():
                for read in reads(statement.body):
                    yield number, statement, read

    def _look(self, number: int, statement: Statement, read: Read) -> None:
        """Take away what one read forbids, and note what has to be copied for it."""
        have = self.padded(read.tensor)
        if read.default is not None:
            self._shorten(
                read.tensor, "it is read over its border", self._bordered(statement, read, have)
            )
        wanted = self.missing(number, statement, read)
        if wanted:
            self.copies.setdefault(read.tensor, set()).update(wanted)
        dims = self.copies[read.tensor] if wanted else self.padded(read.tensor)
        if read.flat and dims and self.parts(statement, read, dims) is None:
            self._shorten(read.tensor, "it is read as if it had another shape")
            self.drop(number, _loops_of(read), _beside(read))

    def _bordered(
        self, statement: Statement, read: Read, have: frozenset[int]
    ) -> Iterator[int]:  # fmt: skip
        """Padded dimensions in which a guarded read may be outside of the true size."""
        over = {a.name for a in (*statement.axes, *statement.reduced) if a.extent == self.size}
        for d in have:
            index = None if read.flat else read.indices[d]
            if not isinstance(index, Index) or index.name not in over:
                yield d

    def _strange(self, read: Read) -> frozenset[str]:
        """The loops that a read is at in another way than element for element, as it looks."""
        if read.flat:
            return _loops_of(read) if read.default is not None else frozenset()
        found = (free_axes(index) for index in read.indices if not isinstance(index, Index))
        return frozenset().union(*found)

    def _flat_dimensions(
        self, number: int, statement: Statement, read: Read, loops: set[str]
    ) -> dict[int, str]:
        """The dimension that each loop of a flat read walks along; others are dropped."""
        shape = self.types[read.tensor].shape
        over = [d for d, size in enumerate(shape) if size == self.size]
        parts = self.parts(statement, read, over)
        found = {}
        for part in parts or ():
            if part.grows and len(part.place.terms) == 1 and part.place.constant == 0:
                ((name, factor),) = part.place.terms
                if factor == 1 and name in loops:
                    found[part.first] = name
        elsewhere = [n for p in parts or () if p.first not in found for n in p.place.indices]
        kept = {name for name in found.values() if name not in elsewhere}
        self.drop(number, loops - kept, _beside(read))
        return {d: name for d, name in found.items() if name in kept}


def group_of(node: Node) -> Group | None:
    """The statements of a node; None where it is something else, or has steps in an order."""
    return node.group if node.operator == FUSED and not node.group.steps else None


def _loops_of(read: Read) -> frozenset[str]:
    """The loops that say where a read is."""
    return frozenset().union(*map(free_axes, read.indices))


def _by_data(statement: Statement) -> bool:
    return any(reads(index) for read in reads(statement.body) for index in read.indices)


def _beside(read: Read) -> str:
    return f"it reads '{read.tensor}' not element for element"
