"""Functions of loop IR, libraries of functions, and kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import cached_property

from anydim.base.dtypes import DType, boolean, float32, float64, int8, int32, int64, uint8
from anydim.base.records import SHOWN_IF_SET, dataclass
from anydim.compiler.kernels.ir.steps import Step
from anydim.compiler.kernels.ir.values import INDEX, Type

PORTABLE = (float32, float64)  # their code gains nothing from features beyond a processor level
_PORTABLE_OPERANDS = frozenset((*PORTABLE, int32, int64, boolean))
_BYTES = frozenset((int8, uint8))  # kernels that only move bytes gain from byte permutations


@dataclass(frozen=True)
class Pointer:
    """A pointer parameter; pointers of one function never alias unless `alias` is set.

    Other work-items write only the local memory of the group while a function runs.
    """

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
    """A function; one with a `result` ends with a `Return` on every path.

    `public` functions can be called from other modules. A `quick` function runs rarely and is
    mostly straight-line code: it is compiled for compile time, not for speed.
    """

    name: str
    parameters: tuple[Pointer | Scalar, ...]
    body: tuple[Step, ...]
    public: bool = False
    result: Type | None = field(default=None, repr=False, metadata=SHOWN_IF_SET)
    quick: bool = field(default=False, repr=False, metadata=SHOWN_IF_SET)


@dataclass(frozen=True, eq=False)
class Library:
    """A module of functions: micro-kernels that many kernels call, or host code.

    `identity` distinguishes it from every library of other functions; '' means that functions are
    compared. With an identity, `made` may build the functions at the first access. A `portable`
    library gains nothing from features beyond its processor's level: it is compiled for that level
    (`Processor.level`), so that one object serves many machines. One with `dots` of bytes is
    compiled for the level with instructions for them, where the processor has these.
    """

    name: str
    made: tuple[Function, ...] | Callable[[], tuple[Function, ...]]
    identity: str = ""
    portable: bool = False
    dots: bool = False

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
    """A tensor that a kernel reads or writes, by the name its functions use."""

    name: str
    dtype: DType
    written: bool = False


@dataclass(frozen=True)
class Local:
    """An array of `count` elements shared by the work-items of a group; contents undefined."""

    name: str
    dtype: DType
    count: int


@dataclass(frozen=True)
class Kernel:
    """Compiled once per distinct text, launched at any size.

    `main` is the last of `functions`. Its parameters are, in order: a Pointer for each of
    `operands`, an int64 Scalar for each of `sizes`, then int64 `start`, `stop` (the part of the
    parallel range that this call runs), a Pointer `scratch` (uint8, private to the calling thread)
    and one for each of `locals`. With `group` > 0 a work-group of that size runs it once for each
    index of the parallel range, which counts work-groups: `start` is the group, and `stop` is
    `start` + 1. With 0 one thread runs it on any part of the range. `identity` distinguishes it
    from every kernel of another text; '' means that texts are compared.
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

    @property
    def portable(self) -> bool:
        """Whether it gains nothing from features beyond its processor's level; see `Library`."""
        dtypes = {operand.dtype for operand in self.operands}
        if not dtypes.isdisjoint(_BYTES) and float32 in dtypes:
            dtypes -= _BYTES
        return dtypes <= _PORTABLE_OPERANDS and all(each.portable for each in self.libraries)
