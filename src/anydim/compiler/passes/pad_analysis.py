"""Find loops over a dim that may run to a padded size without changing a true element.

A loop over the dim may be padded if it is no reduction and all its operands are long enough: a
padded value, read element for element; a tensor that is at least as long; or one of the true size,
of which a padded copy is made first. Elements past the true size are unspecified: reductions,
guarded reads, results and data-dependent indices end at the true size.

The analysis starts with all loops over the dim and removes illegal ones up to a fixed point.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anydim.compiler.graph.nodes import FUSED, Graph, Node
from anydim.compiler.kernels.inference import free_axes
from anydim.compiler.passes.padded_addresses import Part, split_address
from anydim.lang.tree import Group, Index, Read, Statement, TensorType
from anydim.lang.tree.affine import affine, reads
from anydim.lang.tree.bounds_checks import has_checks
from anydim.sizes import Size, Truth, prove


class Padding:
    """Per node, the loops padded from `size` to `extent`; values to copy; reasons why not."""

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
        """Remove loops that cannot be padded, up to a fixed point."""
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
        """Remove loops of a node: they end at the true size."""
        gone = self.loops[number] & set(loops)
        if gone:
            self.loops[number] -= gone
            self.reasons[number] = self.reasons[number] or reason

    # ---- queries on values ---------------------------------------------------------------------

    def padded_dimensions(self, tensor: str) -> frozenset[int]:
        """The dimensions of a value that are padded."""
        number, statement = self._writer.get(tensor, (0, None))
        if statement is None:
            return frozenset()
        loops = self.loops[number]
        return frozenset(d for d, axis in enumerate(statement.axes) if axis.name in loops)

    def missing(self, number: int, statement: Statement, read: Read) -> frozenset[int]:
        """The dimensions in which the tensor of a read is too short and has to be copied.

        Drops loops for which a copy does not help. A guarded read may be out of bounds.
        """
        self.drop(number, self._strange(read), _not_elementwise(read))
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
        shape, have = self.types[read.tensor].shape, self.padded_dimensions(read.tensor)
        own = self._writer.get(read.tensor, (-1, None))[0] == number
        wanted = set()
        for d, loop in found.items():
            if d in have or prove(self.extent, "<=", shape[d], self.box) is Truth.PROVED:
                continue
            if have or own or shape[d] != self.size:
                self.drop(number, {loop}, _not_elementwise(read))
            else:
                wanted.add(d)
        return frozenset(wanted)

    def parts(
        self, statement: Statement, read: Read, dims: Iterable[int]
    ) -> tuple[Part, ...] | None:
        """Split the address of a flat read by dimensions of its tensor."""
        form = affine(read.indices[0])
        if form is None:
            return None
        extents = {axis.name: axis.extent for axis in (*statement.axes, *statement.reduced)}
        if not set(form.indices) <= extents.keys():
            return None
        shape = self.types[read.tensor].shape
        return split_address(form, shape, set(dims), extents, self.box)

    # ---- removal -------------------------------------------------------------------------------

    def _candidates(self, number: int, group: Group) -> set[str]:
        """The loops of a group that run over the dim only."""
        axes = [axis for s in group.statements for axis in s.axes]
        wanted = {axis.name for axis in axes if axis.extent == self.size}
        if not wanted:
            return set()
        others = {axis.name for axis in axes if axis.extent != self.size}
        sums = {axis.name for s in group.statements for axis in s.reduced}
        if wanted & sums:
            self.reasons[number] = "reductions end at the true size"
        if any(has_checks(s.body) or _by_data(s) for s in group.statements):
            self.reasons[number] = "its indices depend on data"
            return set()
        return wanted - others - sums

    def _outside(self) -> None:
        """Keep results and operands of nodes other than statements at their true size."""
        for name in self.graph.outputs:
            self._shorten(name, "it computes a result")
        for node in self.graph.nodes:
            if group_of(node) is None:
                for name in node.given:
                    self._shorten(name, "its reader is neither a reduction nor elementwise")

    def _shorten(self, tensor: str, reason: str, dims: Iterable[int] | None = None) -> None:
        """Keep a value at its true size, in `dims` or all dimensions."""
        number, statement = self._writer.get(tensor, (0, None))
        if statement is not None:
            chosen = self.padded_dimensions(tensor) if dims is None else dims
            self.drop(number, {statement.axes[d].name for d in chosen}, reason)

    def _reads(self) -> Iterator[tuple[int, Statement, Read]]:
        for number, node in enumerate(self.graph.nodes):
            group = group_of(node)
            for statement in group.statements if group else ():
                for read in reads(statement.body):
                    yield number, statement, read

    def _look(self, number: int, statement: Statement, read: Read) -> None:
        """Remove loops that one read forbids, and record the copies it needs."""
        have = self.padded_dimensions(read.tensor)
        if read.default is not None:
            self._shorten(
                read.tensor,
                "it is read out of bounds",
                self._dims_past_true_size(statement, read, have),
            )
        wanted = self.missing(number, statement, read)
        if wanted:
            self.copies.setdefault(read.tensor, set()).update(wanted)
        dims = self.copies[read.tensor] if wanted else self.padded_dimensions(read.tensor)
        if read.flat and dims and self.parts(statement, read, dims) is None:
            self._shorten(read.tensor, "it is read with another shape")
            self.drop(number, _loops_of(read), _not_elementwise(read))

    def _dims_past_true_size(
        self, statement: Statement, read: Read, have: frozenset[int]
    ) -> Iterator[int]:  # fmt: skip
        """Padded dimensions in which a guarded read may exceed the true size."""
        over = {a.name for a in (*statement.axes, *statement.reduced) if a.extent == self.size}
        for d in have:
            index = None if read.flat else read.indices[d]
            if not isinstance(index, Index) or index.name not in over:
                yield d

    def _strange(self, read: Read) -> frozenset[str]:
        """The loops that a read's indices use other than as plain indices."""
        if read.flat:
            return _loops_of(read) if read.default is not None else frozenset()
        found = (free_axes(index) for index in read.indices if not isinstance(index, Index))
        return frozenset().union(*found)

    def _flat_dimensions(
        self, number: int, statement: Statement, read: Read, loops: set[str]
    ) -> dict[int, str]:
        """The dimension that each loop of a flat read indexes; drops other loops."""
        shape = self.types[read.tensor].shape
        over = [d for d, size in enumerate(shape) if size == self.size]
        parts = self.parts(statement, read, over)
        found = {}
        for part in parts or ():
            if part.grows and len(part.position.terms) == 1 and part.position.constant == 0:
                ((name, factor),) = part.position.terms
                if factor == 1 and name in loops:
                    found[part.first] = name
        elsewhere = [n for p in parts or () if p.first not in found for n in p.position.indices]
        kept = {name for name in found.values() if name not in elsewhere}
        self.drop(number, loops - kept, _not_elementwise(read))
        return {d: name for d, name in found.items() if name in kept}


def group_of(node: Node) -> Group | None:
    """The statements of a node; None for other nodes and ordered steps."""
    return node.group if node.operator == FUSED and not node.group.steps else None


def _loops_of(read: Read) -> frozenset[str]:
    """The loops in the indices of a read."""
    return frozenset().union(*map(free_axes, read.indices))


def _by_data(statement: Statement) -> bool:
    return any(reads(index) for read in reads(statement.body) for index in read.indices)


def _not_elementwise(read: Read) -> str:
    return f"it does not read '{read.tensor}' element for element"
