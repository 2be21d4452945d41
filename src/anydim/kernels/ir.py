"""Loop IR: what code is made of, whole in one file. A target renders it, nothing else.

`functions/` makes the functions, conversions and element types that a target lacks of those that
it has, before it renders.

Expressions have a `Type` (element type and vector lanes; lanes 1 is a scalar). Functions named in
`Op` are those of `lang/functions.py` plus 'fma', 'fast_min', 'fast_max' (which may lose a NaN),
'exp_nonpositive' (e^x for x at most 0),
'copysign' (of floats a, b: a's magnitude with b's sign),
'dot_bytes' (of int32 a, b, c: c plus the products of a's four bytes, unsigned, and b's, signed),
'ones' (how many bits are 1), 'trailing_zeros' (bits of 0 below the lowest 1; all, of 0) and
'leading_zeros' (above the highest 1), these three of unsigned integers, and 'add_overflows' and
'mul_overflows' (whether what int64 scalars make does not fit), applied lane by lane. Integers that
address memory are int64 scalars. Buffers are pointer parameters, `Stack` arrays or `scratch`;
offsets count elements of the type that is loaded or stored, those of `Address` elements of the
buffer. Names are unique within a function. A masked-off lane touches no memory.

Kernels know memory by buffers, which a target may tell apart. Host code (`native/`) is the same IR
with more: memory at an address that is an int64 like any other (`LoadAt`, `StoreAt`, aligned, at
liberty to be any other), functions with a result, calls through an address, and steps between
threads (`Atomic`, `Fence`, `Pause`).

Accelerators run kernels of groups: `group` items run the same function together, tell each other
apart by `Item`, meet at `Barrier`s and share the `Local` arrays of the kernel. Warps of them
multiply `Fragments` of matrices together, and copies to local arrays may go on beside other work.
Processors with tiles (`Tiles`) multiply matrices of bytes that they hold as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import TypeAlias

from anydim.base.dtypes import DType, boolean, int64
from anydim.base.records import dataclass


@dataclass(frozen=True)
class Type:
    """Element type and number of vector lanes."""

    dtype: DType
    lanes: int = 1

    def __str__(self) -> str:
        return f"{self.dtype}x{self.lanes}" if self.lanes > 1 else str(self.dtype)

    @cached_property
    def _text(self) -> str:
        return f"Type(dtype={self.dtype!r}, lanes={self.lanes!r})"

    def __repr__(self) -> str:  # kernels' names hash texts that have it in every line
        return self._text


INDEX = Type(int64)
FLAG = Type(boolean)


# ---- expressions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Const:
    """A number; in every lane when the type has lanes. 0.0 and -0.0 differ."""

    type: Type
    value: int | float | bool

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Const) or self.type != other.type:
            return False
        if self.value == 0 == other.value:
            return str(self.value)[0] == str(other.value)[0]
        return self.value == other.value or self.value is other.value


@dataclass(frozen=True)
class Var:
    """A parameter, a loop variable or a `Let` of that name."""

    type: Type
    name: str


@dataclass(frozen=True)
class Get:
    """The present value of a register made by `Declare`."""

    type: Type
    name: str


@dataclass(frozen=True)
class Op:
    """A scalar function applied lane by lane."""

    type: Type
    function: str
    arguments: tuple[Value, ...]


@dataclass(frozen=True)
class Convert:
    """Lane by lane conversion to another element type (numpy's astype).

    A float that `fits` is no NaN and inside the range of the integer type wanted; what becomes of
    another one is any number.
    """

    type: Type
    argument: Value
    fits: bool = False


@dataclass(frozen=True)
class Bitcast:
    """The same bits as another element type of equal width.

    Flags are a bit each: those of 8, 16, 32 or 64 lanes are one unsigned integer, lane 0 lowest.
    """

    type: Type
    argument: Value


@dataclass(frozen=True)
class Load:
    """`lanes` consecutive elements from `offset`; lanes where `mask` is false yield 0."""

    type: Type
    buffer: str
    offset: Value
    mask: Value | None = None


@dataclass(frozen=True)
class Gather:
    """One element per lane from a vector of int64 offsets; masked lanes yield 0."""

    type: Type
    buffer: str
    offsets: Value
    mask: Value | None = None


@dataclass(frozen=True)
class Splat:
    """A scalar in every lane."""

    type: Type
    argument: Value


@dataclass(frozen=True)
class Iota:
    """0, 1, 2, ... lanes-1."""

    type: Type


@dataclass(frozen=True)
class Reduce:
    """All lanes combined by 'add', 'mul', 'min', 'max' into a scalar (any order)."""

    type: Type
    function: str
    argument: Value


@dataclass(frozen=True)
class Shuffle:
    """Lanes picked from left (0..n-1) and right (n..2n-1)."""

    type: Type
    left: Value
    right: Value
    lanes: tuple[int, ...]


@dataclass(frozen=True)
class Extract:
    """One lane as a scalar."""

    type: Type
    argument: Value
    lane: int


@dataclass(frozen=True)
class Address:
    """Where an element lies: an int64, or the argument for a pointer parameter of a `Call`."""

    buffer: str
    offset: Value

    @property
    def type(self) -> Type:
        return INDEX


@dataclass(frozen=True)
class LoadAt:
    """The scalar at an address, `offset` elements of its type further."""

    type: Type
    address: Value
    offset: Value


@dataclass(frozen=True)
class Item:
    """Which item of its group runs this: 0, 1, ... `Kernel.group` - 1."""

    @property
    def type(self) -> Type:
        return INDEX


Value: TypeAlias = (
    Const | Var | Get | Op | Convert | Bitcast | Load | Gather | Splat | Iota | Reduce | Shuffle
    | Extract | Address | LoadAt | Item
)  # fmt: skip


# ---- statements --------------------------------------------------------------------------------


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
    """Write the lanes of `value` from `offset` on; only lanes where `mask` is true."""

    buffer: str
    offset: Value
    value: Value
    mask: Value | None = None


@dataclass(frozen=True)
class Prefetch:
    """A hint that the line at `offset` will be read (or written) soon. Any offset is harmless."""

    buffer: str
    offset: Value
    write: bool = False


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

    `rare` says that it seldom holds, for where the code lies: no part of a kernel's identity.
    """

    condition: Value
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...] = ()
    rare: bool = field(default=False, repr=False, kw_only=True)


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
    result: Var | None = field(default=None, repr=False)


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

    Sums are 16 x 8, left 16 x d, right d x 8; `fragments.py` says d, and which items have which
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


# ---- functions and kernels ---------------------------------------------------------------------


@dataclass(frozen=True)
class Pointer:
    """A pointer parameter; pointers of one function never alias unless `alias` is set."""

    name: str
    dtype: DType
    alias: bool = False


@dataclass(frozen=True)
class Scalar:
    """A scalar parameter."""

    name: str
    type: Type = INDEX


@dataclass(frozen=True)
class Function:
    """A function; one with a `result` ends with `Return`s, whatever way it goes.

    `public` ones can be called from other modules. A `quick` one runs so seldom, and so straight,
    that what counts is how fast it is compiled.
    """

    name: str
    parameters: tuple[Pointer | Scalar, ...]
    body: tuple[Step, ...]
    public: bool = False
    result: Type | None = field(default=None, repr=False)  # kernels' names hash what is printed
    quick: bool = field(default=False, repr=False)


@dataclass(frozen=True, eq=False)
class Library:
    """A module of functions: micro-kernels that many kernels call, or host code.

    `identity` tells it apart from every library of other functions; '' where only they can tell.
    A library that has one may be `made` when its functions are first asked for.
    """

    name: str
    made: tuple[Function, ...] | Callable[[], tuple[Function, ...]]
    identity: str = ""

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        return self.made() if callable(self.made) else self.made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Library):
            return NotImplemented
        if (self.name, self.identity) != (other.name, other.identity):
            return False
        return bool(self.identity) or self.functions == other.functions

    def __hash__(self) -> int:
        return hash((self.name, self.identity))


@dataclass(frozen=True)
class Operand:
    """A tensor a kernel reads or writes, by the name its functions use."""

    name: str
    dtype: DType
    written: bool = False


@dataclass(frozen=True)
class Local:
    """An array of `count` elements that the items of a group share; contents undefined."""

    name: str
    dtype: DType
    count: int


@dataclass(frozen=True)
class Kernel:
    """Compiled once per distinct text, launched at any size.

    `main` is the last of `functions`. Its parameters are, in order: a Pointer for each of
    `operands`, an int64 Scalar for each of `sizes`, then int64 `start`, `stop` (the part of the
    parallel range this call does), a Pointer `scratch` (uint8, private to the calling thread) and
    one for each of `locals`. `group` items run it together, once for each place of the parallel
    range, which is the number of groups: `start` is the group then, and `stop` one more; 0 is a
    kernel that runs by itself on any part of the range. `identity` tells it apart from every
    kernel of another text; '' where only the text can tell.
    """

    name: str
    operands: tuple[Operand, ...]
    sizes: tuple[str, ...]
    functions: tuple[Function, ...]
    libraries: tuple[Library, ...] = ()
    identity: str = ""
    group: int = 0
    locals: tuple[Local, ...] = ()

    @property
    def main(self) -> Function:
        return self.functions[-1]
