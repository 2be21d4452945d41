"""Where the bytes of a product lie once they are in place, and how they are signed.

Along k bytes stand in words of four, a tap padded with zeros to whole words. A row of a is its
words and their sum; a panel of b has for each word one of every column, and then the columns' sums:

    a   [row][tap][word]           + one int32 a row
    b   [panel][tap][word][column] + one int32 a column

The sums are multiplied by the other side's zero point already, where that is a number. Where a
machine takes `depth` words at once, a panel has zeros up to a multiple of that, and a row goes on
to one; what is there is multiplied by those zeros.

One side is unsigned, the other signed, as the instruction wants it: bytes are flipped by 128 where
they are not, which moves their zero point too. With a' = a + shift the sums are

    sum of a' b' - a_zero' * (sum of b') - b_zero' * (sum of a') + count * a_zero' * b_zero'
"""

from __future__ import annotations

from anydim.base.dtypes import int32
from anydim.base.records import dataclass
from anydim.kernels.launch import are_known
from anydim.kernels.matmul.epilogue import PRODUCT, Output
from anydim.kernels.matmul.int8.int8_form import Bytes, BytesForm
from anydim.lang.tree import Apply, Cast, Expr, Index, Literal, Read, SizeTerm
from anydim.lang.tree.affine import rewrite
from anydim.sizes import Size, align_up, ceil_div

WORD = 4  # bytes that are multiplied and added at once
ROW_SUMS, COLUMN_SUMS = "sums of rows", "sums of columns"


@dataclass(frozen=True)
class Side:
    """How one factor is signed: `flipped` bytes have 128 added or taken off, as has `zero`."""

    flipped: bool
    zero: Expr

    @property
    def has_zero(self) -> bool:
        """Whether the other side's sums count."""
        return self.zero != Literal(0, int32)

    @property
    def factor(self) -> int:
        """What the other side's sums are multiplied by where they are made."""
        return int(self.zero.value) if isinstance(self.zero, Literal) else 1


@dataclass(frozen=True)
class Layout:
    """`words` of a row (its sum not counted), columns of a panel, and both sides.

    `depth` words are taken at once.
    """

    a: Side
    b: Side
    a_unsigned: bool
    words: Size
    width: int
    a_packed: bool
    b_packed: bool
    depth: int

    @property
    def row(self) -> Size:
        """int32 from one row of a to the next."""
        return align_up(self.words + 1, self.depth)

    @property
    def whole(self) -> Size:
        """Words of a panel, with the zeros behind them."""
        return align_up(self.words, self.depth)

    @property
    def panel(self) -> Size:
        """int32 from one panel of b to the next."""
        return (self.whole + 1) * self.width


def layout_of(form: BytesForm, width: int, depth: int, constants: frozenset[str]) -> Layout:
    """Rows of a constant keep their sign, as their partner is made while running; else columns do.

    A constant is packed when it is loaded if it has strides.
    """
    a_packed, b_packed = (_is_packed(side, constants) for side in (form.a, form.b))
    a_unsigned = not a_packed or b_packed
    return Layout(
        a=_side(form.a, a_unsigned),
        b=_side(form.b, not a_unsigned),
        a_unsigned=a_unsigned,
        words=form.tap_count * ceil_div(form.k, WORD),
        width=width,
        a_packed=a_packed,
        b_packed=b_packed,
        depth=depth,
    )


def _is_packed(factor: Bytes, constants: frozenset[str]) -> bool:
    if factor.read.tensor not in constants or factor.parts is None:
        return False
    return factor.start.constant is not None and are_known(*factor.parts)


def _side(factor: Bytes, unsigned: bool) -> Side:
    """Small types fit both ways as long as nothing of them is negative, or nothing above 127."""
    shift = 0
    if unsigned and factor.dtype.kind == "int":
        shift = 128
    elif not unsigned and factor.dtype.range[1] > 127:
        shift = -128
    zero = factor.zero or Literal(0, int32)
    if isinstance(zero, Literal):
        return Side(bool(shift), Literal(int(zero.value) + shift, int32))
    return Side(bool(shift), Apply("add", (zero, Literal(shift, int32))) if shift else zero)


def corrected(form: BytesForm, layout: Layout) -> tuple[Output, ...]:
    """The outputs over the sums as they come: of bytes that are flipped and keep their zeros."""
    a, b = layout.a, layout.b
    row = Apply("mul", (Index("m"), SizeTerm(layout.row)))
    at_row = Apply("add", (row, Index("row_sums_at")))
    rows = Read(ROW_SUMS, (at_row,), flat=True)
    columns = Read(COLUMN_SUMS, (Apply("add", (Index("n"), Index("column_sums_at"))),), flat=True)

    def change(expr: Expr) -> Expr | None:
        if not (isinstance(expr, Read) and expr.tensor == PRODUCT):
            return None
        value: Expr = expr
        for side, sums in ((a, columns), (b, rows)):
            if side.has_zero:
                known = isinstance(side.zero, Literal)
                value = Apply("sub", (value, sums if known else Apply("mul", (side.zero, sums))))
        if a.has_zero and b.has_zero:
            count = Cast(int32, SizeTerm(form.tap_count * form.k))
            value = Apply("add", (value, Apply("mul", (count, Apply("mul", (a.zero, b.zero))))))
        return value

    return tuple(Output(o.tensor, rewrite(o.value, change)) for o in form.outputs)
