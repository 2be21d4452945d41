"""A tensor as rows along one of its axes, and rows turned into keys with indices."""

from __future__ import annotations

from anydim.base.dtypes import DType, uint32
from anydim.base.records import dataclass
from anydim.kernels.routines.code import Code
from anydim.kernels.routines.keys import order_key
from anydim.kernels.routines.radix import Pairs
from anydim.kernels.write.term import Like, Term, iota
from anydim.kernels.write.writer import Buffer
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Guard, Size, Truth, product, prove

MOST = (1 << 32) - 1  # elements of a row: their indices are uint32
FEWEST, LANES = 8, 16  # lanes of vectors that have an index for each lane


@dataclass(frozen=True)
class Rows:
    """Element i of row r lies at `start(r) + i * stride`; there are `outer * inner` rows."""

    outer: Size
    length: Size
    inner: Size

    @staticmethod
    def of(kind: TensorType, axis: int) -> Rows:
        """The rows of a tensor along an axis counted from the front."""
        before, after = product(kind.shape[:axis]), product(kind.shape[axis + 1 :])
        return Rows(before, kind.shape[axis], after)

    @staticmethod
    def flat(kind: TensorType) -> Rows:
        """All elements as one row."""
        return Rows(product(()), product(kind.shape), product(()))

    @property
    def count(self) -> Size:
        return self.outer * self.inner

    @property
    def contiguous(self) -> bool:
        return self.inner.constant == 1

    def stride(self, code: Code) -> Term:
        return code.size(self.inner)

    def start(self, code: Code, row: Term) -> Term:
        """Where a row begins."""
        if self.contiguous:
            return code.let(row * code.size(self.length))
        inner, block = code.size(self.inner), code.size(self.length * self.inner)
        return code.let(row // inner * block + row % inner)


def lanes_of(code: Code, dtype: DType) -> int:
    """Lanes of vectors that are handled together with their indices."""
    return max(FEWEST, min(LANES, code.machine.lanes(dtype)))


def fill_pairs(
    code: Code, x: Buffer, stride: Term, first: Like, count: Term, pairs: Pairs, descending: bool
) -> None:
    """Keys and indices of elements first ... first + count of the row that starts at x[0]."""
    if isinstance(first, int) and first == 0:
        last = count
    else:
        last = code.let(count + first)

    def put(i: Term, where: Term | None, lanes: int, index: Term) -> None:
        loaded = x.load(i, lanes, where) if lanes > 1 else x[i * stride]
        pairs.put(i, order_key(loaded, descending), index, where)

    if is_one(stride):
        lanes = lanes_of(code, x.dtype)
        step = iota(lanes, uint32)
        code.sweep(first, last, lanes, lambda i, m: put(i, m, lanes, i.as_(uint32) + step))
        return
    with code.range(first, last) as i:
        put(i, None, 1, i.as_(uint32))


def is_one(term: Term) -> bool:
    """Whether a size is known to be 1."""
    return getattr(term.value, "value", None) == 1


def fitting(operator: str, length: Size, box: Box) -> tuple[Guard, ...]:
    """The guard that a row is short enough for its indices; nothing where that is proven."""
    if prove(length, "<=", MOST, box) is Truth.PROVED:
        return ()
    return (Guard(length, "<=", Size.constant_of(MOST), f"{operator}: at most 2^32 - 1 in a row"),)
