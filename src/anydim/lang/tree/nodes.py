"""The tree of dense computation: scalar expressions, comprehensions, and groups of them.

This is the form after instantiation: ranks are known, ellipses are expanded, every index has a
range, and sizes are size expressions over the program's dims. The surface syntax is in
`surface/syntax.py`; `resolve/instantiate.py` converts it to this tree.

    Statement   y(i, j) +=! a(i, k) * b(k, j)   for i in 0:M, j in 0:N, k in 0:K
    Write       h(t, i) = h(t - 1, i) + x(t, i)   a partial or scattered write, also h(p(i)) +=
    Loop        for t in 0:T, in order          Branch   if t == 0 ... else ...
    Group       statements that run in order, with their inputs, outputs and temporaries
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, TypeAlias

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.sizes import Size
from anydim.sizes.guard import Guard


def _hash_once(self: Any) -> int:
    """The hash of an immutable node, cached: trees are looked up far more often than made."""
    state: dict[str, Any] = self.__dict__
    known: int | None = state.get("_hash")
    if known is None:
        known = state["_hash"] = hash((type(self), *state.values()))
    return known


@dataclass(frozen=True)
class TensorType:
    """Element type and shape; shape entries are size expressions, row-major order."""

    dtype: DType
    shape: tuple[Size, ...]

    __hash__ = _hash_once

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Literal:
    """A number. `dtype` None adapts to the other operands, as Python numbers do in numpy.

    With a dtype, `value` is the Python number of its kind. Two literals are equal when they are
    indistinguishable: 0.0 and -0.0 differ, 1 and 1.0 without a dtype differ, nan equals nan.
    """

    value: int | float | bool
    dtype: DType | None = None

    def __post_init__(self) -> None:
        if self.dtype is not None and type(self.value) is not _PYTHON[self.dtype.kind]:
            object.__setattr__(self, "value", _PYTHON[self.dtype.kind](self.value))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        return self.dtype == other.dtype and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        state = self.__dict__
        known: int | None = state.get("_hash")
        if known is None:
            known = state["_hash"] = hash((repr(self.value), self.dtype))
        return known


_PYTHON: dict[str, type] = {"float": float, "int": int, "uint": int, "bool": bool}


@dataclass(frozen=True)
class Index:
    """The current value of an axis, as an int64."""

    name: str

    __hash__ = _hash_once


@dataclass(frozen=True)
class SizeTerm:
    """A size expression used as an int64 value."""

    size: Size

    __hash__ = _hash_once


@dataclass(frozen=True)
class Read:
    """One element of a tensor: `x(i, j + 1)`, or by row-major offset when `flat`: `x[i*n + j]`.

    Indices are integer expressions; an index that reads another tensor is an indirect read. With
    `default`, an out-of-bounds position yields that value instead (a guarded read). Without it
    every position must be in bounds: proved when the tree is made, or guarded before.
    """

    tensor: str
    indices: tuple[Expr, ...]
    flat: bool = False
    default: Expr | None = None

    __hash__ = _hash_once


@dataclass(frozen=True)
class Apply:
    """A scalar function of `functions.py` ('add', 'exp', 'select', ...) on its arguments."""

    function: str
    arguments: tuple[Expr, ...]

    __hash__ = _hash_once


@dataclass(frozen=True)
class Cast:
    """Conversion to another element type, with the semantics of numpy's astype."""

    dtype: DType
    argument: Expr

    __hash__ = _hash_once


Expr: TypeAlias = Literal | Index | SizeTerm | Read | Apply | Cast


@dataclass(frozen=True)
class Axis:
    """An index of a statement and its half-open range 0:extent."""

    name: str
    extent: Size

    __hash__ = _hash_once


@dataclass(frozen=True)
class Statement:
    """target(axes...) combine= body, reduced over `reduced`.

    `combine` is '' for a plain assignment (then `reduced` is empty), or one of 'add', 'mul',
    'min', 'max': the result starts from the operator's identity and reductions may be reordered.
    The target's shape is the extents of `axes`, in order; axis names are unique in a statement.
    """

    target: str
    axes: tuple[Axis, ...]
    body: Expr
    combine: str = ""
    reduced: tuple[Axis, ...] = ()

    __hash__ = _hash_once

    @property
    def shape(self) -> tuple[Size, ...]:
        return tuple(axis.extent for axis in self.axes)

    def with_body(self, body: Expr) -> Statement:
        """The statement with another body; itself when it has that body."""
        if body is self.body:
            return self
        return Statement(self.target, self.axes, body, self.combine, self.reduced)


@dataclass(frozen=True)
class Write:
    """target(indices...) combine= body at every value of `axes` and `reduced`: a partial write.

    `indices` are index expressions over axes and loop variables; one that reads a tensor scatters.
    Values written to the same element combine in any order; without `combine` the last one in
    row-major order of `axes` wins. `fresh` starts each written element from the identity of
    `combine`; then elements and values of `axes` are one to one. Otherwise the body combines with
    the target's previous value. Out-of-bounds indices are checked as those of reads are.
    """

    target: str
    indices: tuple[Expr, ...]
    axes: tuple[Axis, ...]
    body: Expr
    combine: str = ""
    reduced: tuple[Axis, ...] = ()
    fresh: bool = False

    __hash__ = _hash_once


@dataclass(frozen=True)
class Loop:
    """for variable in start:stop:step, in this order; a negative step counts down.

    Iterations have the values start, start + step, ... before stop (`range` in Python). In the body
    the variable is a symbol of sizes, so indices, extents and proofs may depend on it as on dims.
    Bounds are int64 expressions: sizes, or reads of tensors.
    """

    variable: str
    start: Expr
    stop: Expr
    step: int
    body: tuple[OrderedStep, ...]

    __hash__ = _hash_once


@dataclass(frozen=True)
class Branch:
    """`then` where the scalar condition holds, else `otherwise`."""

    condition: Expr
    then: tuple[OrderedStep, ...]
    otherwise: tuple[OrderedStep, ...] = ()

    __hash__ = _hash_once


OrderedStep: TypeAlias = Statement | Write | Loop | Branch


@dataclass(frozen=True)
class Tensor:
    """A named tensor of a group."""

    name: str
    type: TensorType

    __hash__ = _hash_once


@dataclass(frozen=True)
class Group:
    """A set of statements: an instantiated operator, or a fused kernel.

    Each tensor is written by exactly one statement, before any statement that reads it. `inputs`
    come from outside, `outputs` are kept, `temporaries` exist only inside.

    A group in which a tensor is written more than once, in part, or in the order of a loop has
    `steps`, which run in order, and no `statements`. An input that such steps write starts with its
    given value; the caller's tensor is not changed.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    statements: tuple[Statement, ...]
    temporaries: tuple[Tensor, ...] = ()
    guards: tuple[Guard, ...] = field(default=())
    steps: tuple[OrderedStep, ...] = ()

    __hash__ = _hash_once

    def type_of(self, name: str) -> TensorType:
        """The type of a tensor of this group; KeyError if there is none of that name."""
        for tensor in (*self.inputs, *self.outputs, *self.temporaries):
            if tensor.name == name:
                return tensor.type
        raise KeyError(name)
