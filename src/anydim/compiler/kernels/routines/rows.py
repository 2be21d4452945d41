"""A tensor as rows along one of its axes, and conversion of rows to (key, index) pairs."""

from __future__ import annotations

from anydim.base.dtypes import DType, int64, uint32
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.writer import Buffer
from anydim.compiler.kernels.ir import Like, iota
from anydim.compiler.kernels.routines.arguments import at_most, axis_of
from anydim.compiler.kernels.routines.ir_builder import Code
from anydim.compiler.kernels.routines.keys import order_key
from anydim.compiler.kernels.routines.radix import Pairs
from anydim.compiler.kernels.routines.routine import Attributes, Types
from anydim.sizes import Box, Guard, Size, product

MOST = (1 << 32) - 1  # elements of a row: their indices are uint32
FEWEST, LANES = 8, 16  # minimum and maximum lanes of vectors with an index per lane


@dataclass(frozen=True)
class Rows:
    """Element i of row r is at offset `start(r) + i * stride`; there are `outer * inner` rows."""

    outer: Size
    length: Size
    inner: Size

    @staticmethod
    def of(operator: str, types: Types, attributes: Attributes) -> Rows:
        """The rows of the first input along the attribute "axis"; a single row if it is None."""
        shape = types[0].shape
        if attributes["axis"] is None:
            return Rows(product(()), product(shape), product(()))
        axis = axis_of(operator, attributes["axis"], len(shape))
        return Rows(product(shape[:axis]), shape[axis], product(shape[axis + 1 :]))

    @property
    def count(self) -> Size:
        return self.outer * self.inner

    @property
    def elements(self) -> Size:
        return self.count * self.length

    @property
    def contiguous(self) -> bool:
        return self.inner.constant == 1

    def stride(self, code: Code) -> ir.Value:
        return code.size(self.inner)

    def start(self, code: Code, row: ir.Value) -> ir.Value:
        """The offset of a row."""
        if self.contiguous:
            return code.let(row * code.size(self.length))
        inner, block = code.size(self.inner), code.size(self.length * self.inner)
        return code.let(row // inner * block + row % inner)


def lanes_of(code: Code, dtype: DType) -> int:
    """Lanes of vectors that are processed together with their indices."""
    return max(FEWEST, min(LANES, code.machine.lanes(dtype)))


def fill_pairs(
    code: Code, x: Buffer, stride: ir.Value, first: Like, count: ir.Value, pairs: Pairs,
    descending: bool,
) -> None:  # fmt: skip
    """Keys and indices of elements first ... first + count of the row that starts at x[0]."""
    last = count if isinstance(first, int) and first == 0 else code.let(count + first)

    def put(i: ir.Value, where: ir.Value | None, lanes: int, index: ir.Value) -> None:
        loaded = x.load(i, lanes, where) if lanes > 1 else x[i * stride]
        pairs.put(i, order_key(loaded, descending), index, where)

    if is_one(stride):
        lanes = lanes_of(code, x.dtype)
        step = iota(lanes, uint32)
        code.sweep(first, last, lanes, lambda i, m: put(i, m, lanes, i.as_(uint32) + step))
        return
    with code.range(first, last) as i:
        put(i, None, 1, i.as_(uint32))


def write_sorted(
    code: Code, x: Buffer, stride: ir.Value, start: ir.Value, pairs: Pairs, low: Like,
    high: ir.Value,
) -> None:  # fmt: skip
    """Store results from `start` on: the elements of sorted pairs low ... high, and their
    indices."""
    values, indices = code.output("y0", x.dtype).part(start), code.output("y1", int64).part(start)
    with code.range(low, high) as i:
        found = code.let(pairs.indices[i].as_(int64))
        values[i * stride] = x[found * stride]
        indices[i * stride] = found


def is_one(term: ir.Value) -> bool:
    """Whether a size is known to be 1."""
    return getattr(term, "value", None) == 1


def length_guards(operator: str, length: Size, box: Box) -> tuple[Guard, ...]:
    """The guard that a row is short enough for its indices; empty where proven."""
    return at_most(length, MOST, f"{operator}: at most 2^32 - 1 in a row", box)
