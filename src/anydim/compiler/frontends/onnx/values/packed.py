"""Arithmetic on packed sequences: concatenated elements, and their shapes."""

from __future__ import annotations

from anydim.base.dtypes import int64
from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.values.bindings import Known, Packed
from anydim.compiler.frontends.onnx.values.data_sizes import Finds
from anydim.compiler.frontends.onnx.values.forms import add_known, concatenate, vector, with_rank
from anydim.sizes import Size, product


@dataclass(frozen=True)
class Sequence:
    """A packed sequence with the object that adds nodes."""

    finds: Finds
    packed: Packed

    @property
    def count(self) -> Size:
        """The number of tensors."""
        return self.finds.emitter.types[self.packed.shapes].shape[0]

    @property
    def total(self) -> Size:
        """The total element count."""
        return self.finds.emitter.types[self.packed.elements].shape[0]

    @property
    def shapes(self) -> str:
        """The shapes of the tensors, with a known rank."""
        kind = self.finds.emitter.types[self.packed.shapes]
        if kind.shape[1].constant is None:
            return with_rank(self.finds, self.packed, self.rank).shapes
        return self.packed.shapes

    @property
    def rank(self) -> int:
        """The rank of each tensor; Unsupported if the model does not declare it."""
        if self.packed.rank is None:
            raise Unsupported("the number of axes of the elements of its sequence is not known")
        return self.packed.rank

    def index(self, position: str) -> str:
        """A position as int64 scalar; negative ones count from the end."""
        emit = self.finds.emit
        if self.finds.emitter.types[position].dtype != int64:
            position = emit("cast", position, to=int64)
        if self.finds.emitter.types[position].rank:
            position = emit("reshape", position, shape=())
        zero, count = (
            add_known(self.finds, Known.size(0)),
            add_known(self.finds, Known.size(self.count)),
        )
        return emit("where", emit("less", position, zero), emit("add", position, count), position)

    def lengths(self) -> str:
        """The element count of each tensor."""
        return self.finds.emit("reduce_prod", self.packed.shapes, axes=(1,), keepdims=False)

    def offset(self, index: str) -> str:
        """The offset of the elements of a tensor."""
        emit = self.finds.emit
        before = emit("less", numbers(self.finds, self.count), index)
        kept = emit("where", before, self.lengths(), add_known(self.finds, Known.size(0)))
        return emit("reduce_sum", kept, axes=(0,), keepdims=False)

    def at(self, position: str) -> str:
        """The tensor at a position."""
        finds, index = self.finds, self.index(position)
        row = finds.emit("gather", self.shapes, index, axis=0)
        dims = [finds.dim("start", 0, self.high(self.total))]
        dims += [finds.dim("size") for _ in range(self.rank)]
        size = product(dims[1:])
        finds.emitter.constrain(self.total - dims[0] - size)
        start = finds.emit("reshape", self.offset(index), shape=(1,))
        finds.find(finds.emit("concat", start, row, axis=0), dims)
        flat = part(finds, self.packed.elements, dims[0], dims[0] + size)
        return finds.emit("reshape", flat, shape=tuple(dims[1:]))

    def append(self, value: str) -> Packed:
        """Append a tensor."""
        elements, shapes = self.one(value)
        return self.join([self.packed.elements, elements], [self.packed.shapes, shapes])

    def insert(self, value: str, position: str) -> Packed:
        """Insert a tensor before a position, which may be the end."""
        finds, index = self.finds, self.index(position)
        start, at = finds.dim("start", 0, self.high(self.total)), finds.dim("place")
        finds.emitter.constrain(self.total - start, self.count - at)
        finds.find(self.pair(self.offset(index), index), (start, at))
        elements, shapes = self.one(value)
        return self.join(
            [self.before(start), elements, self.after(start)],
            [self.before(at, True), shapes, self.after(at, True)],
        )

    def erase(self, position: str) -> Packed:
        """Remove the tensor at a position."""
        finds, index = self.finds, self.index(position)
        start, at = finds.dim("start", 0, self.high(self.total)), finds.dim("place")
        length = finds.dim("length")
        finds.emitter.constrain(self.total - start - length, self.count - at - 1)
        own = finds.emit("gather", self.lengths(), index, axis=0)
        own = finds.emit("reshape", own, shape=(1,))
        both = self.pair(self.offset(index), index)
        finds.find(finds.emit("concat", both, own, axis=0), (start, at, length))
        return self.join(
            [self.before(start), self.after(start + length)],
            [self.before(at, True), self.after(at + 1, True)],
        )

    def one(self, value: str) -> tuple[str, str]:
        """The elements and the shape of a tensor to be added to the sequence."""
        kind = self.finds.emitter.types[value]
        own = self.finds.emitter.types[self.packed.elements].dtype
        if kind.rank != self.packed.rank or kind.dtype != own:
            raise Unsupported(f"{kind} in a sequence of {own} with {self.packed.rank} axes")
        shape = Known.sizes(kind.shape)
        row = add_known(self.finds, Known(shape.array.reshape(1, kind.rank), int64))
        return self.finds.emit("reshape", value, shape=(product(kind.shape),)), row

    def join(self, elements: list[str], shapes: list[str]) -> Packed:
        return Packed(
            concatenate(self.finds, elements, 0), concatenate(self.finds, shapes, 0),
            self.packed.rank,
        )  # fmt: skip

    def before(self, end: Size, shapes: bool = False) -> str:
        value = self.packed.shapes if shapes else self.packed.elements
        return part(self.finds, value, Size.constant_of(0), end)

    def after(self, start: Size, shapes: bool = False) -> str:
        value = self.packed.shapes if shapes else self.packed.elements
        return part(self.finds, value, start, self.count if shapes else self.total)

    def pair(self, left: str, right: str) -> str:
        parts = [self.finds.emit("reshape", value, shape=(1,)) for value in (left, right)]
        return self.finds.emit("concat", *parts, axis=0)

    def high(self, size: Size) -> int | None:
        return self.finds.emitter.box.interval(size).hi

    # ---- combining all tensors -------------------------------------------------------------

    def stack(self, axis: int) -> str:
        """Stack tensors of one shape along a new axis."""
        finds, rank = self.finds, self.rank
        sizes = self.common(range(rank))
        whole = finds.emit("reshape", self.packed.elements, shape=(self.count, *sizes))
        order = list(range(1, rank + 1))
        order.insert(axis, 0)
        return finds.emit("transpose", whole, perm=tuple(order))

    def concatenate(self, axis: int) -> str:
        """Concatenate tensors along an axis; their other sizes are equal."""
        finds, rank = self.finds, self.rank
        others = self.common([other for other in range(rank) if other != axis])
        lengths = column(finds, self.shapes, axis)
        extent = finds.dim("size", 0, self.high(self.total) if rank == 1 else None)
        finds.find(finds.emit("reduce_sum", lengths, axes=(0,), keepdims=False), (extent,))
        shape = (*others[:axis], extent, *others[axis:])
        if axis == 0:
            return finds.emit("reshape", self.packed.elements, shape=shape)
        before, after = product(others[:axis]), product(others[axis:])
        blocks = Blocks(finds, lengths, self.count, extent)
        owner = blocks.owner(numbers(finds, extent))
        start, own = blocks.start(owner), finds.emit("gather", lengths, owner, axis=0)
        local = finds.emit("sub", numbers(finds, extent), start)
        strides = multiply(finds, start, before * after), multiply(finds, own, after)
        along = finds.emit("add", strides[0], multiply(finds, local, after))
        rows = finds.emit("mul", numbers(finds, before, 2), append_axes(finds, strides[1], 1))
        index = finds.emit("add", append_axes(finds, along, 1), rows)
        index = finds.emit("add", index, numbers(finds, after))
        flat = finds.emit("gather", self.packed.elements, index, axis=0)
        return finds.emit("reshape", flat, shape=shape)

    def common(self, axes: range | list[int]) -> list[Size]:
        """The sizes of the first tensor, which are common to all."""
        finds = self.finds
        if not axes:
            return []
        dims = [finds.dim("size") for _ in axes]
        row = finds.emit("gather", self.shapes, add_known(finds, Known.size(0)), axis=0)
        finds.find(finds.emit("gather", row, vector(finds, axes), axis=0), dims)
        return dims


@dataclass(frozen=True)
class Blocks:
    """Consecutive blocks of an axis of size `extent`, with their lengths."""

    finds: Finds
    lengths: str
    count: Size
    extent: Size

    def owner(self, positions: str) -> str:
        """The block that contains each position; `positions` is a vector."""
        emit = self.finds.emit
        ends = emit("cum_sum", self.lengths, axis=0, exclusive=False, reverse=False)
        behind = emit("less_equal", ends, emit("unsqueeze", positions, axes=(1,)))
        return emit("reduce_sum", emit("cast", behind, to=int64), axes=(1,), keepdims=False)

    def start(self, owner: str) -> str:
        """The start offsets of blocks."""
        starts = self.finds.emit("cum_sum", self.lengths, axis=0, exclusive=True, reverse=False)
        return self.finds.emit("gather", starts, owner, axis=0)


def numbers(finds: Finds, count: Size, after: int = 0) -> str:
    """The vector 0, 1, 2, ... followed by axes of size 1."""
    made = finds.emit("range", start=0, step=1, count=count, dtype=int64)
    return append_axes(finds, made, after) if after else made


def append_axes(finds: Finds, value: str, after: int) -> str:
    """Append axes of size 1 to a vector."""
    return finds.emit("unsqueeze", value, axes=tuple(range(1, after + 1)))


def multiply(finds: Finds, value: str, factor: Size) -> str:
    return finds.emit("mul", value, add_known(finds, Known.size(factor)))


def column(finds: Finds, matrix: str, number: int) -> str:
    return finds.emit("gather", matrix, add_known(finds, Known.size(number)), axis=1)


def part(finds: Finds, value: str, start: Size, end: Size) -> str:
    """A slice of a tensor along its first axis."""
    return finds.emit("slice", value, starts=(start,), ends=(end,), axes=(0,))
