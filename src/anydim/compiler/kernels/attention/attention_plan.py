"""The plan of an attention kernel: its decisions, and its scratch layout."""

from __future__ import annotations

from functools import cached_property

from anydim.base.dtypes import boolean, float32
from anydim.base.records import dataclass
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.attention_form import AttentionForm
from anydim.compiler.kernels.codegen.scalar_lowering import ScalarLowering
from anydim.compiler.kernels.codegen.writer import Buffer, Writer
from anydim.compiler.kernels.ir import register, select, variables
from anydim.compiler.kernels.matmul.product_axes import Factor
from anydim.lang.tree import Axis
from anydim.sizes import Size, align_up, as_size, ceil_div, minimum, product

LINE = 64
MAX_HEADS = 64  # most heads of a group: a unit has scratch memory for the rows of each


@dataclass(frozen=True)
class LoopVariables:
    """Variables of the loops: a block of `count` keys from `block` on, in `panels` panels.

    A tile has `tile` queries from `first` on, `at` after the first of the unit, `unit_first`. Its
    first `keys` keys are multiplied, `whole` of them in whole vectors; `mixed_keys` have powers.
    `head` is the head of a group whose queries the tile has; a tile with a query of each head
    (`Plan.turned`) begins with head `first`.
    """

    key_count: ir.Var
    unit_first: ir.Var
    block: ir.Var
    count: ir.Var
    panels: ir.Var
    tile: ir.Var
    first: ir.Var
    head: ir.Var
    at: ir.Var
    keys: ir.Var
    whole: ir.Var
    mixed_keys: ir.Var
    out_query: ir.Var


LOOP = variables(LoopVariables)
TURNED = ir.Var(ir.FLAG, "is_turned")  # whether tiles have the only query of several heads
SEEN = register("seen")  # keys up to the last one that is not masked


@dataclass(frozen=True)
class ScratchPart:
    """A part of the scratch memory: float32 elements, from a byte offset on."""

    name: str
    elements: Size
    offset: Size


@dataclass(frozen=True)
class Plan:
    """The plan: units of `tiles` tiles of at most `rows` queries, with blocks of `key_block` keys.

    `blocks`: the keys may need more than one block. `copies`: values are packed along with the
    keys.
    """

    form: AttentionForm
    library: ir.Library
    rows: int
    tiles: int
    lanes: int
    key_block: int
    l2_bytes: int
    blocks: bool
    copies: bool

    @property
    def pairs(self) -> bool:
        """Whether factors are words of two bfloat16; scores and sums are float32."""
        return self.form.rounds

    def is_narrow(self, factor: Factor) -> bool:
        """Whether a factor, or the result, is stored as bfloat16."""
        return factor.tensor in self.form.narrow

    def has_words(self, factor: Factor) -> bool:
        """Whether pairs of elements along a row of a factor are words in memory."""
        return self.pairs and self.is_narrow(factor) and are_words(factor)

    @property
    def words(self) -> int:
        """Elements of a packed query or key."""
        return self.depth // 2 if self.pairs else self.depth

    @property
    def depth(self) -> int:
        """Columns of queries and keys."""
        return int(self.form.depth.extent.constant or 0)

    @property
    def width(self) -> int:
        """Columns of values and results."""
        return int(self.form.width.extent.constant or 0)

    @property
    def padded(self) -> int:
        """The width, rounded up to whole vectors."""
        return -(-self.width // self.lanes) * self.lanes

    @cached_property
    def group(self) -> Axis | None:
        """The axis of heads that share their keys and values."""
        return shared_heads(self.form)

    @property
    def heads(self) -> int:
        """Heads of a group."""
        return heads_of(self.form)

    @property
    def batch(self) -> tuple[Axis, ...]:
        """The axes of positions: each has its own keys."""
        return tuple(axis for axis in self.form.batch if axis != self.group)

    def row(self, unit: ScalarLowering, number: ir.Value) -> ScalarLowering:
        """Lowering for a row of the tile."""
        query = LOOP.first + number
        if self.group is None:
            return unit.inner({self.form.query.name: query})
        return unit.inner({
            self.form.query.name: select(TURNED, 0, query),
            self.group.name: select(TURNED, query, LOOP.head),
        })  # fmt: skip

    @property
    def vector(self) -> ir.Type:
        return ir.Type(float32, self.lanes)

    @property
    def inside(self) -> ir.Var:
        """The mask of the last vector of keys."""
        return ir.Var(ir.Type(boolean, self.lanes), "inside_keys")

    @property
    def stride(self) -> int:
        """Elements between rows of scores: a vector more than a block, to spread cache sets."""
        return self.key_block + self.lanes

    @property
    def chunks(self) -> Size:
        """Units per position of the batch."""
        return ceil_div(self.form.query.extent, self.rows * self.tiles)

    @property
    def operand_bytes(self) -> Size:
        """Bytes of queries, keys and values, each counted once."""
        depth, width = self.form.depth.extent, self.form.width.extent
        row = self.form.query.extent * depth + self.form.key.extent * (depth + width)
        return product(axis.extent for axis in self.form.batch) * row * float32.bytes

    @cached_property
    def parts(self) -> tuple[ScratchPart, ...]:
        """The scratch memory of a thread; each part begins at a cache line."""
        rows = self.rows * self.tiles * self.heads
        keys = align_up(self.form.key.extent, self.lanes)
        if self.blocks:
            keys = minimum(keys, as_size(self.key_block))
        entries: list[tuple[str, Size | int]] = [
            ("scores", self.rows * self.stride),
            ("mixed", self.rows * self.padded),
            ("tops", rows),
            ("totals", rows),
        ]
        if self.blocks:
            entries += [("news", self.rows), ("keeps", self.rows), ("sums", rows * self.padded)]
        entries.append(("packed_keys", keys * self.words))
        if self.copies:
            # Values are read in place where their rows are whole vectors: a copy gains nothing.
            rows_of_values = ceil_div(keys, 2) if self.pairs else keys
            entries.append(("packed_values", rows_of_values * self.padded))
        if self.pairs and not self.has_words(self.form.queries):
            entries.append(("packed_queries", self.rows * self.words))
        parts: list[ScratchPart] = []
        for name, elements in entries:
            parts.append(ScratchPart(name, as_size(elements), _end(parts)))
        return tuple(parts)

    def tops(self, code: Writer, row: ir.Value) -> Buffer:
        """Return the largest scores from a row of the tile on, including the current block."""
        if self.blocks:
            return Buffer(code, "news", float32).part(row)
        return Buffer(code, "tops", float32).part(LOOP.at + row)

    @property
    def scratch(self) -> Size:
        """Bytes of all parts."""
        return _end(list(self.parts))


def are_words(factor: Factor) -> bool:
    """Whether rows of 16-bit elements begin at words."""
    at = factor.address
    steps = (at.constant, *(step for _, step in at.terms))
    ones = [step for step in steps if step.divide_exactly(2) is None]
    return [step.constant for step in ones] == [1]


def shared_heads(form: AttentionForm) -> Axis | None:
    """The innermost axis of a few queries that have the same keys and values."""
    for axis in reversed(form.batch):
        count = axis.extent.constant
        users = [f for f in (form.keys, form.values) if axis.name in f.address.indices]
        if not users and count is not None and 1 < count <= MAX_HEADS:
            return axis if axis.name in form.queries.address.indices else None
    return None


def heads_of(form: AttentionForm) -> int:
    """The number of heads that share their keys and values."""
    group = shared_heads(form)
    return 1 if group is None else int(group.extent.constant or 1)


def _end(parts: list[ScratchPart]) -> Size:
    if not parts:
        return as_size(0)
    return parts[-1].offset + align_up(parts[-1].elements * float32.bytes, LINE)
