"""Forms of values as tensors, and the common form of two values.

Values that cross the boundary of a nested graph, or that come from one of two nested graphs, need
one form on both sides: a tensor, a list of a fixed number of tensors, a packed sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy

from anydim.base.dtypes import DType, int64
from anydim.base.onnx_notation import NUMBERS
from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.values.bindings import (
    Binding,
    Items,
    Known,
    Maybe,
    Packed,
    plain,
)
from anydim.compiler.frontends.onnx.values.emitter import Emitter
from anydim.lang.tree import TensorType
from anydim.sizes import Size, product

_WIDEST = 16


class Emits(Protocol):
    """An object that adds nodes: a call, or a nested graph."""

    emitter: Emitter
    source: str

    def emit(self, name: str, /, *inputs: str, **attributes: Any) -> str:
        """Add a node with one result and return the result."""


def add_known(emits: Emits, contents: Known) -> str:
    """Add a value with known contents."""
    name = emits.emitter.fresh(f"{emits.source}/constant")
    emits.emitter.add_known(name, contents, emits.source)
    return name


def vector(emits: Emits, sizes: Iterable[Size | int]) -> str:
    """An int64 vector of sizes."""
    return add_known(emits, Known.sizes(sizes))


@dataclass(frozen=True)
class Listing:
    """A list of `count` tensors."""

    count: int
    dtype: DType


@dataclass(frozen=True)
class Packing:
    """A packed sequence of tensors with `rank` axes; None: it has been empty so far."""

    rank: int | None
    dtype: DType


@dataclass(frozen=True)
class Option:
    """An optional value: present, with its form, or empty, without one."""

    inner: tuple[Kind, ...]


@dataclass(frozen=True)
class Chance:
    """An optional tensor whose presence is known only at run time."""

    rank: int | None
    dtype: DType


Kind: TypeAlias = "Listing | Packing | Option | Chance | None"  # None: a tensor


def kind_of(emitter: Emitter, held: Binding) -> Kind:
    if isinstance(held, Items):
        return Listing(len(held.values), held.dtype)
    if isinstance(held, Packed):
        return Packing(held.rank, emitter.types[held.elements].dtype)
    if not isinstance(held, Maybe):
        return None
    if isinstance(held.value, Packed) and held.single:
        return Chance(held.value.rank, emitter.types[held.value.elements].dtype)
    return Option(() if held.value is None else (kind_of(emitter, held.value),))


def common_form(left: Kind, right: Kind, kinds: Sequence[TensorType]) -> Kind:
    """The common form of two values; `kinds` are the types of the elements of lists among them."""
    if left == right:
        return left
    optional = (Option, Chance)
    if isinstance(left, optional) and isinstance(right, optional):
        inner = [f.inner[0] for f in (left, right) if isinstance(f, Option) and f.inner]
        if len(inner) == 2 and None not in inner:
            return Option((common_form(inner[0], inner[1], kinds),))
        met = {(kind.rank, kind.dtype) for kind in kinds}
        met |= {(f.rank or 0, f.dtype) for f in (left, right) if isinstance(f, Chance)}
        if len(met) == 1 and not any(inner):
            return Chance(*met.pop())
        if len(inner) == 1 and inner[0] is not None:
            raise Unsupported("an optional sequence whose presence is known only at run time")
        raise Unsupported("optional values that may be of different kinds")
    sequences = (Listing, Packing)
    if isinstance(left, sequences) and isinstance(right, sequences) and left.dtype == right.dtype:
        ranks = {kind.rank for kind in kinds}
        ranks |= {f.rank for f in (left, right) if isinstance(f, Packing) and f.rank is not None}
        ranks = ranks - {0} or ranks  # exporters also declare "no axes" for an empty sequence
        if len(ranks) > 1:
            raise Unsupported("a sequence of tensors that differ in rank and in number")
        return Packing(ranks.pop() if ranks else None, left.dtype)
    if isinstance(left, optional) or isinstance(right, optional):
        raise Unsupported("a value that is optional in one graph and not in the other")
    raise Unsupported("values of different kinds, or sequences of different element types")


def elements_of(emitter: Emitter, held: Binding) -> list[TensorType]:
    """The types of the elements of a list, or of the content of an optional."""
    if isinstance(held, Maybe):
        if isinstance(held.value, str):
            return [emitter.types[held.value]]
        return [] if held.value is None or held.single else elements_of(emitter, held.value)
    if isinstance(held, Items):
        return [emitter.types[name] for name in held.values]
    return []


def tensors_of(emits: Emits, held: Binding, form: Kind) -> list[str]:
    """The tensors that hold a value in a form, as they cross the border of a nested graph."""
    if form is None:
        if not isinstance(held, str):
            raise Unsupported("a tensor that is none in some iterations")
        return [held]
    if isinstance(form, Option):
        assert isinstance(held, Maybe)
        return tensors_of(emits, held.value, form.inner[0]) if held.value is not None else []
    if isinstance(form, Chance):
        assert isinstance(held, Maybe)
        inner = held.value if held.single else None
        own = () if held.value is None else (str(held.value),)
        packed = packed_of(emits, inner or Items(own, form.dtype), form.rank or 0)
        return [packed.elements, packed.shapes]
    if isinstance(form, Listing):
        assert isinstance(held, Items)
        return list(held.values)
    packed = packed_of(emits, held, form.rank or 0)
    return [packed.elements, packed.shapes]


def rebuild(form: Kind, names: list[str]) -> Binding:
    """The value of a form from its tensors, which are taken off the front of `names`."""
    if form is None:
        return names.pop(0)
    if isinstance(form, Listing):
        return Items(tuple(names.pop(0) for _ in range(form.count)), form.dtype)
    if isinstance(form, Packing):
        return Packed(names.pop(0), names.pop(0), form.rank)
    if isinstance(form, Chance):
        return Maybe(Packed(names.pop(0), names.pop(0), form.rank), True)
    return Maybe(rebuild(form.inner[0], names) if form.inner else None)


def width(form: Kind) -> int:
    """The number of tensors of a form."""
    if isinstance(form, Listing):
        return form.count
    if isinstance(form, Option):
        return width(form.inner[0]) if form.inner else 0
    return 1 if form is None else 2


def packed_of(emits: Emits, held: Binding, rank: int = 0) -> Packed:
    """Pack a sequence into two tensors; `rank` is the element rank if it is not known."""
    if isinstance(held, Packed):
        return with_rank(emits, held, rank) if rank and rank != held.rank else held
    if not isinstance(held, Items):
        raise Unsupported("an input is no sequence")
    types = [emits.emitter.types[name] for name in held.values]
    ranks = {kind.rank for kind in types} or {rank}
    if len(ranks) > 1:
        raise Unsupported("a sequence of tensors that differ in rank and in number")
    (rank,) = ranks
    if not types:
        none = add_known(emits, Known.of(numpy.zeros(0, held.dtype.numpy)))
        return Packed(none, add_known(emits, Known.of(numpy.zeros((0, rank), numpy.int64))), rank)
    flat = [
        emits.emit("reshape", name, shape=(product(kind.shape),))
        for name, kind in zip(held.values, types)
    ]
    sizes = numpy.empty((len(types), rank), object)
    for number, kind in enumerate(types):
        sizes[number] = kind.shape
    shapes = add_known(emits, Known(plain(sizes, int64), int64))
    return Packed(concatenate(emits, flat, 0), shapes, rank)


def with_rank(emits: Emits, packed: Packed, rank: int) -> Packed:
    """A packed sequence with tensors of `rank` axes; checked at run time.

    A sequence that is empty at run time may be declared with any rank.
    """
    count = emits.emitter.types[packed.shapes].shape[0]
    shapes = emits.emit("reshape", packed.shapes, shape=(count, rank))
    return Packed(packed.elements, shapes, rank)


def concatenate(emits: Emits, values: Sequence[str], axis: int) -> str:
    """Concatenate tensors, many of them in rounds to limit the nesting of expressions."""
    while len(values) > 1:
        parts = [values[at : at + _WIDEST] for at in range(0, len(values), _WIDEST)]
        values = [emits.emit("concat", *p, axis=axis) if len(p) > 1 else p[0] for p in parts]
    return values[0]


def proto_of(emitter: Emitter, held: Binding) -> TensorType | Any:
    """The type of a value for functions of the standard: of a tensor, or a TypeProto."""
    import onnx

    if isinstance(held, str):
        return emitter.types[held]
    proto = onnx.TypeProto()
    if isinstance(held, (Items, Packed)):
        dtype = held.dtype if isinstance(held, Items) else emitter.types[held.elements].dtype
        proto.sequence_type.elem_type.tensor_type.elem_type = NUMBERS[dtype]
    return proto
