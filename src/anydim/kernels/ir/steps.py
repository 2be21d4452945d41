"""Steps of loop IR: what a function does, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import TypeAlias

from anydim.base.dtypes import DType
from anydim.base.records import SHOWN_IF_SET, dataclass
from anydim.kernels.ir.values import Value, Var


@dataclass(frozen=True)
class Let:
    """Name a value; evaluated here, once."""

    name: str
    value: Value


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
    """variable = start; while variable < stop: body; variable += step (step > 0)."""

    variable: str
    start: Value
    stop: Value
    step: Value
    body: tuple[Step, ...]


@dataclass(frozen=True)
class While:
    """while condition: body; the condition is looked at before every iteration, the first
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
    """Run the case whose number equals `value`; no case: nothing."""

    value: Value
    cases: tuple[tuple[int, tuple[Step, ...]], ...]


@dataclass(frozen=True)
class Call:
    """Call a function: by name one of this module or of another, or one that an address leads to.

    `result` names what it returns, where that is wanted; functions of a system may return what is
    no IR type, and are only called without.
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
    """Write a scalar at an address, `offset` elements of its type further."""

    address: Value
    offset: Value
    value: Value


@dataclass(frozen=True)
class Atomic:
    """A step on the int64 at an address; all threads see all of them in one order.

    `operation` is one of ATOMIC; `result` names what was there before.
    """

    operation: str
    address: Value
    arguments: tuple[Value, ...] = ()
    result: Var | None = None


# how many arguments: the new value; what is added; what has to be there, and the new value
ATOMIC = {"load": 0, "store": 1, "add": 1, "exchange_if": 2}


@dataclass(frozen=True)
class Fence:
    """No load or store moves across; all threads see all fences and `Atomic`s in one order."""


@dataclass(frozen=True)
class Pause:
    """A hint that this thread waits in a loop for another one."""


@dataclass(frozen=True)
class Barrier:
    """All items of the group reach it, or none; what each wrote before it, all see after it.

    Between two barriers no item touches what another one writes.
    """


@dataclass(frozen=True)
class Fragments:
    """sums += left @ right, of small matrices whose elements the items of a warp share out.

    Sums are 16 x 8, left 16 x d, right d x 8; `mma_fragments.py` says d, and which items have which
    elements. Factors of 16 bits are words of two, the earlier in the low half; those of float32 are
    rounded to 11 bits, ties away from zero. Sums are registers of float32; how their terms are
    rounded is the machine's own. All items of a group run it together.
    """

    dtype: DType
    sums: tuple[str, ...]
    left: tuple[Value, ...]
    right: tuple[Value, ...]


@dataclass(frozen=True)
class CopyAside:
    """`count` elements of a source go to a `Local` array, beside what follows: the first `valid`
    ones, then zeros. They are 4, 8 or 16 bytes, both places are multiples of that."""

    buffer: str
    offset: Value
    source: str
    source_offset: Value
    dtype: DType
    count: int
    valid: Value


@dataclass(frozen=True)
class CopiesEnd:
    """The copies aside that an item has begun since the last one are a lot."""


@dataclass(frozen=True)
class CopiesWait:
    """All lots of copies that an item has begun are done, but for the last `left` ones."""

    left: int = 0


@dataclass(frozen=True)
class Tiles:
    """From here on there are TILES registers of 16 x 16 int32, here and in what is called, which
    hold nothing yet; or, where they are not `wanted`, no longer."""

    wanted: bool


@dataclass(frozen=True)
class TileZero:
    """A tile of zeros."""

    tile: int


@dataclass(frozen=True)
class TileMemory:
    """A tile from memory, or with `store` to it: int32s, `row` of them from one row to the next."""

    tile: int
    buffer: str
    offset: Value
    row: Value
    store: bool = False


@dataclass(frozen=True)
class TileDots:
    """sums[i, j] += 'dot_bytes' of left[i, k] and right[k, j], over k; of other tiles.

    The bytes of `left` are unsigned and those of `right` signed, or the other way round.
    """

    sums: int
    left: int
    right: int
    unsigned: bool


TILES, TILE = 8, 16  # tiles, and their rows and columns


@dataclass(frozen=True)
class Stack:
    """A local array of `count` elements, 64-byte aligned, contents undefined."""

    name: str
    dtype: DType
    count: int


Step: TypeAlias = (
    Let | Declare | Assign | Store | Prefetch | For | While | If | Switch | Call | Stack
    | Return | StoreAt | Atomic | Fence | Pause | Barrier | Fragments | CopyAside | CopiesEnd
    | CopiesWait | Tiles | TileZero | TileMemory | TileDots
)  # fmt: skip


# ---- steps inside of steps ----------------------------------------------------------------------


def blocks_of(step: Step) -> tuple[tuple[Step, ...], ...]:
    """The bodies of a loop, the sides of a branch; none of other steps."""
    if isinstance(step, (For, While)):
        return (step.body,)
    if isinstance(step, If):
        return step.then, step.otherwise
    if isinstance(step, Switch):
        return tuple(body for _, body in step.cases)
    return ()


def every_step(steps: Iterable[Step]) -> Iterator[Step]:
    """Steps, and all that stand in them, in the order of the text."""
    for step in steps:
        yield step
        for block in blocks_of(step):
            yield from every_step(block)


def assigned(steps: Iterable[Step]) -> Iterator[str]:
    """Names of the registers that steps give new values to."""
    for step in every_step(steps):
        if isinstance(step, Assign):
            yield step.name
        elif isinstance(step, Fragments):
            yield from step.sums
