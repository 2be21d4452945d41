"""Steps of loop IR: the statements of a function, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import TypeAlias

from anydim.base.dtypes import DType
from anydim.base.records import SHOWN_IF_SET, dataclass
from anydim.compiler.kernels.ir.values import Value, Var


@dataclass(frozen=True)
class Let:
    """Name a value; evaluated here, once."""

    name: str
    value: Value


def let(variable: Var, value: Value) -> Let:
    """Give a variable of a record its value."""
    return Let(variable.name, value)


@dataclass(frozen=True)
class Declare:
    """A register (mutable local) and its first value."""

    name: str
    value: Value


@dataclass(frozen=True)
class Assign:
    """A new value for a register."""

    name: str
    value: Value


@dataclass(frozen=True)
class Store:
    """Write the lanes of `value` from `offset` on; only lanes where `mask` is true.

    A `nontemporal` store bypasses the caches: it writes a whole vector at a multiple of its bytes,
    without a mask, and other threads see it after a `Fence`.
    """

    buffer: str
    offset: Value
    value: Value
    mask: Value | None = None
    nontemporal: bool = field(default=False, repr=False, kw_only=True, metadata=SHOWN_IF_SET)


@dataclass(frozen=True)
class Prefetch:
    """A hint that the line at `offset` will be read (or written) soon. Any offset is harmless.

    A `far` prefetch loads the line into the second-level cache.
    """

    buffer: str
    offset: Value
    write: bool = False
    far: bool = field(default=False, repr=False, kw_only=True, metadata=SHOWN_IF_SET)


@dataclass(frozen=True)
class For:
    """variable = start; while variable < stop: body; variable += step (step > 0).

    An `unrolled` loop has constant bounds: a target that keeps small arrays in registers unrolls
    it.
    """

    variable: str
    start: Value
    stop: Value
    step: Value
    body: tuple[Step, ...]
    unrolled: bool = field(default=False, repr=False, kw_only=True, metadata=SHOWN_IF_SET)


@dataclass(frozen=True)
class While:
    """while condition: body; the condition is evaluated before every iteration, the first
    included."""

    condition: Value
    body: tuple[Step, ...]


@dataclass(frozen=True)
class If:
    """Run `then` when the scalar condition holds, else `otherwise`.

    `rare` marks the condition as unlikely: `then` is placed out of line.
    """

    condition: Value
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...] = ()
    rare: bool = field(default=False, repr=False, kw_only=True, metadata=SHOWN_IF_SET)


@dataclass(frozen=True)
class Switch:
    """Run the case whose number equals `value`; if there is none, do nothing."""

    value: Value
    cases: tuple[tuple[int, tuple[Step, ...]], ...]


@dataclass(frozen=True)
class Call:
    """Call a function: by name (of this module or another), or through an address.

    `result` names the returned value where it is used. A system function may return a type that the
    IR lacks; such a call has no `result`.
    """

    function: str | Value
    arguments: tuple[Value, ...]
    result: Var | None = field(default=None, repr=False, metadata=SHOWN_IF_SET)


@dataclass(frozen=True)
class Return:
    """Leave the function, with its result if it has one. The last step of its body or branch."""

    value: Value | None = None


@dataclass(frozen=True)
class StoreAt:
    """Write a scalar at an address, plus `offset` elements of its type."""

    address: Value
    offset: Value
    value: Value


@dataclass(frozen=True)
class Atomic:
    """An atomic operation on the int64 at an address, sequentially consistent.

    `operation` is one of ATOMIC; `result` names the previous value.
    """

    operation: str
    address: Value
    arguments: tuple[Value, ...] = ()
    result: Var | None = None


# argument counts: store: the new value; add: the addend; exchange_if: expected and new value
ATOMIC = {"load": 0, "store": 1, "add": 1, "exchange_if": 2}


@dataclass(frozen=True)
class Fence:
    """Full barrier: no load or store moves across; all threads see fences and `Atomic`s in one
    order."""


@dataclass(frozen=True)
class Pause:
    """A hint that this thread spins, waiting for another one."""


@dataclass(frozen=True)
class Barrier:
    """Reached by all work-items of the group or by none; writes before it are visible after it.

    Between two barriers no work-item accesses an element that another one writes.
    """


@dataclass(frozen=True)
class Fragments:
    """sums += left @ right, for small matrices whose elements are distributed over a warp.

    Sums are 16 x 8, left 16 x d, right d x 8; `mma_fragments.py` gives d and the elements of each
    thread. 16-bit factors are packed in pairs, the earlier one in the low half; float32 factors are
    rounded to 11 bits, ties away from zero. Sums are float32 registers; the rounding of their terms
    is up to the machine. All work-items of a group execute it together.
    """

    dtype: DType
    sums: tuple[str, ...]
    left: tuple[Value, ...]
    right: tuple[Value, ...]


@dataclass(frozen=True)
class WarpExchange:
    """Name the value that the work-item whose number differs in the bits of `distance` has.

    `distance` is a power of two below the size of a warp. All work-items of a warp execute it
    together.
    """

    name: str
    value: Value
    distance: int


@dataclass(frozen=True)
class CopyWide:
    """A copy of `count` elements, 2 to 16 bytes, by one load and one store: both addresses are
    multiples of these bytes. One side is a `Stack` array."""

    buffer: str
    offset: Value
    source: str
    source_offset: Value
    dtype: DType
    count: int


@dataclass(frozen=True)
class CopyAside:
    """An async copy of `count` elements from a source to a `Local` array: the first `valid`
    elements, then zeros. The copy is 4, 8 or 16 bytes, and both offsets are multiples of that."""

    buffer: str
    offset: Value
    source: str
    source_offset: Value
    dtype: DType
    count: int
    valid: Value


@dataclass(frozen=True)
class CopiesEnd:
    """Commit the async copies issued so far as one group."""


@dataclass(frozen=True)
class CopiesWait:
    """Wait until at most the last `left` commit groups are pending."""

    left: int = 0


@dataclass(frozen=True)
class Tiles:
    """Enable or disable (`wanted` false) the TILES matrix registers of 16 x 16 int32, here and in
    called functions; their initial contents are undefined."""

    wanted: bool


@dataclass(frozen=True)
class TileZero:
    """Set a tile to zeros."""

    tile: int


@dataclass(frozen=True)
class TileMemory:
    """Load a tile from memory, or with `store` store it: int32s, rows `row` elements apart."""

    tile: int
    buffer: str
    offset: Value
    row: Value
    store: bool = False


@dataclass(frozen=True)
class TileDots:
    """sums[i, j] += 'dot_bytes' of left[i, k] and right[k, j], over k; all three are tiles.

    The bytes of `left` are unsigned and those of `right` signed, or vice versa.
    """

    sums: int
    left: int
    right: int
    unsigned: bool


@dataclass(frozen=True)
class TilePairs:
    """sums[i, j] += products of bfloat16 left[i, k] and right[k, j], over k, as float32.

    A number of 32 bits holds two k. The sums of even and of odd k start from 0; each product is
    added with one rounding. Their sum is added to `sums`. Subnormal numbers are zeros everywhere.
    """

    sums: int
    left: int
    right: int


TILES, TILE = 8, 16  # tiles, and their rows and columns


@dataclass(frozen=True)
class Stack:
    """A local array of `count` elements, 64-byte aligned, contents undefined."""

    name: str
    dtype: DType
    count: int


@dataclass(frozen=True)
class Table:
    """A constant array of int32 numbers, 64-byte aligned; it is not written."""

    name: str
    numbers: tuple[int, ...]


Step: TypeAlias = (
    Let | Declare | Assign | Store | Prefetch | For | While | If | Switch | Call | Stack | Table
    | Return | StoreAt | Atomic | Fence | Pause | Barrier | Fragments | WarpExchange | CopyWide
    | CopyAside | CopiesEnd | CopiesWait | Tiles | TileZero | TileMemory | TileDots | TilePairs
)  # fmt: skip


# ---- nested steps -------------------------------------------------------------------------------


def blocks_of(step: Step) -> tuple[tuple[Step, ...], ...]:
    """The body of a loop or the branches of a conditional; empty for other steps."""
    if isinstance(step, (For, While)):
        return (step.body,)
    if isinstance(step, If):
        return step.then, step.otherwise
    if isinstance(step, Switch):
        return tuple(body for _, body in step.cases)
    return ()


def every_step(steps: Iterable[Step]) -> Iterator[Step]:
    """Steps and all steps nested in them, in program order."""
    for step in steps:
        yield step
        for block in blocks_of(step):
            yield from every_step(block)


def assigned_registers(steps: Iterable[Step]) -> Iterator[str]:
    """Names of the registers that steps assign."""
    for step in every_step(steps):
        if isinstance(step, Assign):
            yield step.name
        elif isinstance(step, Fragments):
            yield from step.sums
