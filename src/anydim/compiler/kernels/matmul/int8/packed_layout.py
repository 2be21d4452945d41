"""Layout of the packed bytes of an int8 product, and their signs.

Bytes along k are stored in words of four (bfloat16: of two, without sums); a tap is padded with
zeros to whole words. A row of a is its words and their sum; a panel of b has one word per column
for each word index, then the columns' sums:

    a   [row][tap][word]           + one int32 a row
    b   [panel][tap][word][column] + one int32 a column

Constant rows of bfloat16 are panels of `height` rows, as those of columns, unless tile registers
take them: by a few columns, vectors run along rows.

A sum is already multiplied by the other operand's zero point if that is a constant. Where a machine
takes `depth` words at once, a panel is padded with zeros to a multiple of `depth`, and so is the
stride of a row; the padding of a row is multiplied by those zeros.

The instruction takes one unsigned and one signed operand: bytes of the other sign are flipped by
128, which moves their zero point too. With a' = a + shift the sums are

    sum of a' b' - a_zero' * (sum of b') - b_zero' * (sum of a') + count * a_zero' * b_zero'
"""

from __future__ import annotations

from anydim.base.dtypes import int32
from anydim.base.records import dataclass
from anydim.compiler.kernels.launch import are_known, known_number
from anydim.compiler.kernels.matmul.epilogue import PRODUCT, Output
from anydim.compiler.kernels.matmul.int8.int8_form import Int8Factor, Int8Form
from anydim.compiler.kernels.matmul.int8.kept_taps import KeptTaps, kept_taps_of
from anydim.compiler.kernels.matmul.int8.word_types import PAIRS, WordType
from anydim.compiler.kernels.matmul.register_tile import Tile
from anydim.lang.tree import Apply, Cast, Expr, Group, Index, Literal, Read, SizeTerm
from anydim.lang.tree.affine import rewrite
from anydim.sizes import Size, align_up, as_size, maximum, product

_LINE = 16  # words of a cache line
ROW_SUMS, COLUMN_SUMS = "sums of rows", "sums of columns"
PANEL_VECTORS = 3  # of rows in a panel: as many sums at once hide the latency of a product


@dataclass(frozen=True)
class OperandSign:
    """The sign of one factor: `flipped` bytes are shifted by 128, and `zero` with them."""

    flipped: bool
    zero: Expr

    @property
    def has_zero(self) -> bool:
        """Whether the other operand's sums are needed."""
        return self.zero != Literal(0, int32)

    @property
    def factor(self) -> int:
        """The factor that the stored sums of the other operand include."""
        return int(self.zero.value) if isinstance(self.zero, Literal) else 1


@dataclass(frozen=True)
class Layout:
    """`words` of a row (without its sum), columns of a panel, and both operands.

    A product takes `depth` words of a type at once. Sums add the `kept` taps. Each of `parts` of
    the numbers has `part` words, whole products of them if there are several. Rows of a that are
    read where they lie are `stride` words apart.
    """

    a: OperandSign
    b: OperandSign
    a_unsigned: bool
    words: Size
    width: int
    a_packed: bool
    b_packed: bool
    depth: int
    word: WordType
    kept: KeptTaps
    height: int
    parts: int
    part: Size
    stride: Size | None

    @property
    def a_copied(self) -> bool:
        """Whether rows of a are packed on use."""
        return not self.a_packed and self.stride is None

    @property
    def row(self) -> Size:
        """int32 elements between rows of a.

        Rows of pairs begin with a line, and an odd number of lines apart, so that the rows of a
        tile lie in different sets of a cache.
        """
        if self.stride is not None:
            return self.stride
        if self.word == PAIRS and self.depth == 1 and not self.a_packed:
            return align_up(maximum(self.words - _LINE, 0), 2 * _LINE) + _LINE
        return align_up(self.words + 1, self.depth)

    def first_word(self, form: Int8Form) -> tuple[Size, list[tuple[str, Size]]]:
        """Return the offset of the first row in its tensor, and the strides of loops, in words."""
        assert form.a.parts is not None
        loops = zip(form.loops_of(form.a), form.a.parts.loops)
        count = form.word.count
        return form.a.start // count, [(walk.name, by // count) for walk, (_, by) in loops]

    @property
    def whole(self) -> Size:
        """Words of a panel, with padding."""
        return align_up(self.words, self.depth)

    @property
    def panel(self) -> Size:
        """int32 elements between panels of b."""
        return (self.whole + 1) * self.width

    @property
    def rows_panel(self) -> Size:
        """int32 elements between panels of rows of a."""
        return (self.words + 1) * self.height


def layout_of(
    form: Int8Form, tile: Tile, depth: int, constants: frozenset[str], group: Group
) -> Layout:
    """Return the layout: constant rows keep their sign if b is packed at run time; else columns do.

    A constant with strides is packed at load time.
    """
    a_packed, b_packed = (_is_packed(each, form.word, constants) for each in (form.a, form.b))
    a_unsigned = not a_packed or b_packed
    image = (form.a if b_packed else form.b).read
    whole = depth > 1 or a_packed == b_packed  # tiles take whole panels
    height = PANEL_VECTORS * tile.lanes
    turned = a_packed and form.word.is_pair and depth == 1 and height % tile.rows == 0
    parts, part = 1, form.tap_count * form.tap_words
    if form.word.split:
        parts = known_number(form.taps[0][1])
        part = align_up(product(extent for _, extent in form.taps[1:]) * form.tap_words, depth)
    return Layout(
        a=_sign_of(form.a, a_unsigned),
        b=_sign_of(form.b, not a_unsigned),
        a_unsigned=a_unsigned,
        words=part * parts,
        width=tile.width,
        a_packed=a_packed,
        b_packed=b_packed,
        depth=depth,
        word=form.word,
        kept=kept_taps_of(form, image, group.type_of(image.tensor).shape, whole),
        height=height if turned else 1,
        parts=parts,
        part=part,
        stride=None if a_packed or depth > 1 else _stride_of_words(form),
    )


def _stride_of_words(form: Int8Form) -> Size | None:
    """Return the words between rows of a whose numbers are words in memory: bfloat16 along k."""
    parts, count = form.a.parts, form.word.count
    if form.a.dtype != form.word.element or not form.word.is_pair or form.taps or form.rows:
        return None
    if parts is None or not parts.k or parts.k[-1][1].constant != 1:
        return None
    loops = [walk.extent for walk in form.loops_of(form.a)]
    if loops != [extent for extent, _ in parts.loops]:
        return None  # merged loops: packing counts those of the statement
    row = parts.own[-1][1] if parts.own else as_size(0)
    steps = (form.k, form.a.start, row, *(by for _, by in parts.loops))
    if any(step.constant is None or step.constant % count for step in steps):
        return None
    return row // count


def _is_packed(factor: Int8Factor, word: WordType, constants: frozenset[str]) -> bool:
    if factor.read.tensor not in constants or factor.parts is None:
        return False
    if factor.dtype.is_float and factor.dtype != word.element:
        return False  # packing moves numbers, it does not round them
    return factor.start.constant is not None and are_known(*factor.parts.all)


def _sign_of(factor: Int8Factor, unsigned: bool) -> OperandSign:
    """Return a factor's sign: types that fit both signs (none negative, or up to 127) are kept."""
    shift = 0
    if factor.dtype.is_float:
        return OperandSign(False, Literal(0, int32))
    if unsigned and factor.dtype.kind == "int":
        shift = 128
    elif not unsigned and factor.dtype.range[1] > 127:
        shift = -128
    zero = factor.zero or Literal(0, int32)
    if isinstance(zero, Literal):
        return OperandSign(bool(shift), Literal(int(zero.value) + shift, int32))
    return OperandSign(bool(shift), Apply("add", (zero, Literal(shift, int32))) if shift else zero)


def correct_outputs(form: Int8Form, layout: Layout) -> tuple[Output, ...]:
    """Return the outputs in terms of the raw sums, corrected for flipped bytes and zero points."""
    a, b = layout.a, layout.b
    row = Apply("mul", (Index("m"), SizeTerm(layout.row)))
    at_row = Apply("add", (row, Index("row_sums_at")))
    rows = Read(ROW_SUMS, (at_row,), flat=True)
    columns = Read(COLUMN_SUMS, (Apply("add", (Index("n"), Index("column_sums_at"))),), flat=True)

    def change(expr: Expr) -> Expr | None:
        if not (isinstance(expr, Read) and expr.tensor == PRODUCT):
            return None
        value: Expr = expr
        for sign, sums in ((a, columns), (b, rows)):
            if sign.has_zero:
                known = isinstance(sign.zero, Literal)
                value = Apply("sub", (value, sums if known else Apply("mul", (sign.zero, sums))))
        if a.has_zero and b.has_zero:
            count = Cast(int32, SizeTerm(form.tap_count * form.k))
            value = Apply("add", (value, Apply("mul", (count, Apply("mul", (a.zero, b.zero))))))
        return value

    return tuple(Output(o.tensor, rewrite(o.value, change)) for o in form.outputs)
