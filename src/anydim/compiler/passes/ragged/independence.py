"""Proves that a node is elementwise along a dim: index i of its result reads index i only.

A batch norm at inference, a linear layer and a gather from a constant table do so for the axes
batch and sequence; a softmax over the sequence does so for the batch only. Axes are recognised by
their sizes: the axis of a tensor whose size contains the dim. Its size is `unit * count`, where the
count is independent of the dim: an index of the axis belongs to index // count of the unit.

The test is syntactic and sufficient: a node that fails it may still be independent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import field

from anydim.base.records import dataclass
from anydim.compiler.passes.ragged.size_values import NONE, numbers_as_indices, span_of
from anydim.lang.tree import (
    Apply,
    Axis,
    Branch,
    Cast,
    Expr,
    Group,
    Index,
    Loop,
    OrderedStep,
    Read,
    SizeTerm,
    Statement,
    TensorType,
    Write,
)
from anydim.lang.tree.affine import Affine, affine, row_major_strides
from anydim.sizes import Box, Size, Truth, as_size, product, prove

_ONE = as_size(1)


@dataclass(frozen=True)
class Marked:
    """The axis of a tensor that counts `unit`: its size is `before * unit * count`."""

    axis: int
    count: Size
    before: Size = _ONE


Marks = Callable[[TensorType], "Marked | None"]


class Mixed(Exception):
    """A reason why a node is not independent; the text is for users."""


def marks_of(unit: Size, dims: frozenset[str]) -> Marks:
    """A function that finds the axis of a tensor that counts `unit`, a size over `dims`.

    It raises Mixed for a tensor with several axes over `dims`, or one of another unit.
    """

    def find(kind: TensorType) -> Marked | None:
        axes = [axis for axis, size in enumerate(kind.shape) if size.symbols & dims]
        if not axes:
            return None
        if len(axes) > 1:
            raise Mixed(f"{kind} has {len(axes)} axes of it")
        size = kind.shape[axes[0]]
        count = size.divide_exactly(unit)
        if count is None or count.symbols & dims:
            raise Mixed(f"size {size} is not a multiple of {unit}")
        return Marked(axes[0], count)

    return find


def check_independent(
    group: Group, marks: Marks, dims: frozenset[str], box: Box,
    apart: MutableMapping[str, Marked] | None = None, ranges: Mapping[str, Size] = NONE,
) -> None:  # fmt: skip
    """Raise Mixed unless each index of the marked axes is computed from that index alone.

    `apart` are the marks of tensors whose units do not lie in one part of the axis, as in the axis
    `seq * batch`; those of the results are added to it. None: there are no such tensors. `ranges`
    are exclusive bounds of tensors of natural numbers.
    """
    tensors = (*group.inputs, *group.outputs, *group.temporaries)
    found = {tensor.name: marks(tensor.type) for tensor in tensors}
    found.update({name: mark for name, mark in (apart or {}).items() if name in found})
    kinds = {tensor.name: tensor.type for tensor in tensors}
    outputs = [tensor.name for tensor in group.outputs]
    try:
        _Check(found, kinds, dims, box, ranges).group(group)
    except Mixed:
        if apart is None:
            raise
        for before in _outer_counts(found, kinds):
            marked = {name: _with_outer(found[name], kinds[name], before) for name in outputs}
            if marked == {name: found[name] for name in outputs}:
                continue
            try:
                _Check({**found, **marked}, kinds, dims, box, ranges).group(group)
            except Mixed:
                continue
            apart.update({n: m for n, m in marked.items() if m is not None and m.before != _ONE})
            return
        raise


def _outer_counts(
    marks: Mapping[str, Marked | None], kinds: Mapping[str, TensorType]
) -> Iterator[Size]:
    """How often the units repeat in row-major order, in each tensor."""
    found = (
        product(kinds[name].shape[: mark.axis]) * mark.before
        for name, mark in marks.items() if mark is not None
    )  # fmt: skip
    yield from dict.fromkeys(found)


def _with_outer(mark: Marked | None, kind: TensorType, outer: Size) -> Marked | None:
    """The mark of a tensor whose units repeat `outer` times, or the one it has."""
    if mark is None:
        return None
    before = outer.divide_exactly(product(kind.shape[: mark.axis]))
    whole = mark.count * mark.before
    count = None if before is None else whole.divide_exactly(before)
    return mark if before is None or count is None else Marked(mark.axis, count, before)


@dataclass
class _Check:
    marks: Mapping[str, Marked | None]
    kinds: Mapping[str, TensorType]
    dims: frozenset[str]
    box: Box
    ranges: Mapping[str, Size]  # of integers below a size
    own: str = field(default="", init=False)  # the index of the unit in the current statement
    extents: dict[str, Size] = field(default_factory=dict, init=False)  # its other axes

    def group(self, group: Group) -> None:
        for step in (*group.statements, *group.steps):
            self.step(step)

    def step(self, step: OrderedStep) -> None:
        if isinstance(step, Statement):
            indices = tuple(Index(axis.name) for axis in step.axes)
            self.write(step.target, indices, step.axes, step.body, step.reduced)
        elif isinstance(step, Write):
            self.write(step.target, step.indices, step.axes, step.body, step.reduced)
        elif isinstance(step, Loop):
            for bound in (step.start, step.stop):
                self.outside(bound)
            for inner in step.body:
                self.step(inner)
        else:
            assert isinstance(step, Branch)
            self.outside(step.condition)
            for inner in (*step.then, *step.otherwise):
                self.step(inner)

    def write(
        self, target: str, indices: tuple[Expr, ...], axes: tuple[Axis, ...], body: Expr,
        reduced: tuple[Axis, ...],
    ) -> None:  # fmt: skip
        mark = self.marks[target]
        for axis in reduced:
            if axis.extent.symbols & self.dims:
                raise Mixed("it combines all of them")
        self.own = ""
        if mark is None:
            if any(axis.extent.symbols & self.dims for axis in axes):
                raise Mixed("it writes the same element for several of them")
            self.outside(body)
            for index in indices:
                self.outside(index)
            return
        index = indices[mark.axis]
        if not isinstance(index, Index):
            raise Mixed("it writes at computed indices")
        self.own = index.name
        self.extents = {axis.name: axis.extent for axis in (*axes, *reduced)}
        for axis in axes:
            if axis.name != self.own and axis.extent.symbols & self.dims:
                raise Mixed("it reads every one for each of them")
        for position, other in enumerate(indices):
            if position != mark.axis:
                self.inside(other, mark, indices, target)
        self.inside(body, mark, indices, target)

    def outside(self, expr: Expr) -> None:
        """Check an expression that no marked axis belongs to."""
        for part in _parts(expr):
            if isinstance(part, Read) and self.marks[part.tensor] is not None:
                raise Mixed("it combines several of them")
            if isinstance(part, SizeTerm) and part.size.symbols & self.dims:
                raise Mixed("its values depend on their number")

    def inside(self, expr: Expr, mark: Marked, indices: tuple[Expr, ...], target: str) -> None:
        """Check an expression of the index `own`."""
        if isinstance(expr, Index):
            if expr.name == self.own:
                raise Mixed("its values depend on the position")
        elif isinstance(expr, SizeTerm):
            if expr.size.symbols & self.dims:
                raise Mixed("its values depend on their number")
        elif isinstance(expr, Read):
            self.read(expr, mark, indices, target)
        elif self.inner(expr, mark):
            return
        elif isinstance(expr, (Apply, Cast)):
            arguments = expr.arguments if isinstance(expr, Apply) else (expr.argument,)
            for argument in arguments:
                self.inside(argument, mark, indices, target)

    def inner(self, expr: Expr, mark: Marked) -> bool:
        """Whether an expression is the number of the current index within its unit."""
        if not isinstance(expr, Apply) or expr.function != "mod" or mark.before != _ONE:
            return False
        whole, part = expr.arguments
        if not (isinstance(whole, Index) and whole.name == self.own):
            return False
        return isinstance(part, SizeTerm) and mark.count.divide_exactly(part.size) is not None

    def read(self, read: Read, mark: Marked, indices: tuple[Expr, ...], target: str) -> None:
        other = self.marks[read.tensor]
        if read.default is not None:
            self.inside(read.default, mark, indices, target)
        if read.flat:
            if other is not None or _uses(read.indices[0], self.own):
                self.reinterpret(read, mark, other, indices, target)
            else:
                self.inside(read.indices[0], mark, indices, target)
            return
        for axis, index in enumerate(read.indices):
            if other is None or axis != other.axis:
                self.inside(index, mark, indices, target)
            elif not self.same(self.bounded(index, mark, indices, target), mark, other):
                raise Mixed("it reads another one for each of them")

    def reinterpret(
        self, read: Read, mark: Marked, other: Marked | None, indices: tuple[Expr, ...], target: str
    ) -> None:
        """Check a read by row-major offset: a reshape that keeps elements of a unit together."""
        if other is None:
            raise Mixed("it reads a shared tensor by position")
        form = affine(read.indices[0])
        if other.axis == 0 and mark.before == other.before == _ONE:
            if self.within(form, mark.count, self.elements(read.tensor, other)):
                return
        kinds = self.kinds[target], self.kinds[read.tensor]
        marked = tuple(zip(kinds, (mark, other)))
        before = [product(k.shape[: m.axis]) * m.before for k, m in marked]
        after = [m.count * product(k.shape[m.axis + 1 :]) for k, m in marked]
        leading = before[0] == before[1] == _ONE  # a reshape keeps the number of elements
        if not leading and not (self.equal(*before) and self.equal(*after)):
            raise Mixed("a reshape mixes them")
        strides = row_major_strides(kinds[0].shape)
        wanted = {
            index.name: stride
            for index, stride, size in zip(indices, strides, kinds[0].shape)
            if isinstance(index, Index) and size.constant != 1
        }
        if form is None or form.constant.constant != 0:
            raise Mixed("a reshape mixes them")
        ones = [
            index.name for index, size in zip(indices, kinds[0].shape)
            if isinstance(index, Index) and size.constant == 1
        ]  # fmt: skip
        found = dict(form.without(*ones).terms)
        if found.keys() != wanted.keys():
            raise Mixed("a reshape mixes them")
        if not all(self.equal(found[name], stride) for name, stride in wanted.items()):
            raise Mixed("a reshape mixes them")

    def bounded(self, index: Expr, mark: Marked, indices: tuple[Expr, ...], target: str) -> Expr:
        """An index expression with reads of bounded numbers, of the same unit, as indices."""
        for part in _parts(index):
            if isinstance(part, Read) and part.tensor in self.ranges:
                self.inside(part, mark, indices, target)
        return numbers_as_indices(index, self.ranges, self.extents)

    def same(self, index: Expr, mark: Marked, other: Marked) -> bool:
        """Whether an index of a marked axis belongs to the unit of the current index."""
        if isinstance(index, Index) and index.name == self.own:
            return (mark.count, mark.before) == (other.count, other.before)
        if not mark.before == other.before == _ONE:
            return False
        if isinstance(index, Apply) and index.function == "floordiv":
            whole, part = index.arguments
            plain = isinstance(whole, Index) and whole.name == self.own
            if plain and isinstance(part, SizeTerm):
                return part.size * other.count == mark.count
        return self.within(affine(index), mark.count, other.count)

    def equal(self, left: Size, right: Size) -> bool:
        return prove(left, "==", right, self.box) is Truth.PROVED

    def elements(self, tensor: str, mark: Marked) -> Size:
        """The elements of a unit of a tensor whose first axis is marked."""
        return mark.count * product(self.kinds[tensor].shape[1:])

    def within(self, form: Affine | None, count: Size, elements: Size) -> bool:
        """Whether an index is in the part of its own unit.

        The unit has `count` indices of the current axis, and `elements` of what is read.
        """
        stride = as_size(0) if form is None else form.stride(self.own)
        if form is None or not self.equal(stride * count, elements):
            return False
        span = span_of(form.without(self.own), self.extents, self.box)
        return span is not None and (
            prove(span[0], ">=", 0, self.box) is Truth.PROVED
            and prove(span[1], "<", stride, self.box) is Truth.PROVED
        )


def _parts(expr: Expr) -> Iterator[Expr]:
    """Yield an expression and all that it is made of."""
    yield expr
    inner: Iterable[Expr] = ()
    if isinstance(expr, Apply):
        inner = expr.arguments
    elif isinstance(expr, Cast):
        inner = (expr.argument,)
    elif isinstance(expr, Read):
        inner = expr.indices if expr.default is None else (*expr.indices, expr.default)
    for each in inner:
        yield from _parts(each)


def _uses(expr: Expr, name: str) -> bool:
    return any(isinstance(part, Index) and part.name == name for part in _parts(expr))


def unit_of(size: Size, dims: frozenset[str]) -> tuple[Size, Size]:
    """Split a size over ragged dims into what it counts, and how often.

    A multiple of one dim counts that dim; any other size counts itself.
    """
    for name in sorted(size.symbols & dims):
        count = size.divide_exactly(Size.symbol(name))
        if count is not None and not count.symbols & dims:
            return Size.symbol(name), count
    return size, as_size(1)
