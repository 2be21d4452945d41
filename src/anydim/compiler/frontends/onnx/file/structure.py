"""The structure of a model file: all of it but the contents of its weights.

Weights are the initializers of the model of more than one element whose type is a float, or one
that quantised tensors have; they may be in files of external data. Constant nodes of the model's
graph are initializers, too (`wire.constants_of`). Two files of one structure have
the same graph, with weights of the same names, types and shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy

from anydim.base.digest import sha256
from anydim.base.dtypes import DType
from anydim.base.onnx_notation import ELEMENT_TYPES
from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.wire import Irregular, Span, constants_of, fields, varint

_TYPES = frozenset(("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32"))
_GRAPH, _INITIALIZER, _SPARSE = 7, 5, 15  # fields of ModelProto, GraphProto
_DIMS, _TYPE, _FLOATS, _NAME, _RAW = 1, 2, 4, 8, 9  # fields of TensorProto
_SEGMENT, _EXTERNAL, _LOCATION = 3, 13, 14
_FLOAT = 1  # TensorProto.FLOAT
_MOST_DIGITS = 18  # of an offset


def is_weight(dtype: DType, count: int) -> bool:
    """Whether an initializer is a weight."""
    return dtype.name in _TYPES and count > 1


@dataclass(frozen=True)
class StoredWeight:
    """A weight of a file: its name, type, shape, and the span of its bytes.

    `place` is the location of the file of external data that has them, '' the model's file.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    span: Span
    place: str = ""


@dataclass(frozen=True)
class Structure:
    """The digest of a file without the contents of weights, and these, by number.

    `others` are by number the further initializers in external data, whose contents belong to the
    structure.
    """

    digest: str
    weights: dict[int, StoredWeight]
    others: dict[int, StoredWeight]


def structure_of(data: memoryview) -> Structure | None:
    """The structure of a file; None for one with an unexpected layout or without weights."""
    parts: list[bytes] = []
    found = Structure("", {}, {})
    try:
        graphs = 0
        for number, whole, content in fields(data, Span(0, len(data))):
            if number == _GRAPH and content is not None:
                graphs += 1
                parts += (b"graph", *_graph(data, content, found), b"end")
            else:
                parts.append(_field(data, whole))
    except (Irregular, UnicodeDecodeError):
        return None
    if graphs != 1 or not found.weights:
        return None
    if b"sparse" in parts and (found.others or any(each.place for each in found.weights.values())):
        return None  # their parts may be in external data, too
    state = sha256(size=sum(map(len, parts)))
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return Structure(state.hexdigest(), found.weights, found.others)


def _graph(data: memoryview, span: Span, made: Structure) -> Iterator[bytes]:
    tensors: list[tuple[str, Span]] = []
    constants = constants_of(data, span)
    for number, whole, content in fields(data, span):
        if number == _INITIALIZER and content is not None:
            tensors.append(("", content))
        elif whole.start not in constants:
            yield from (b"sparse",) * (number == _SPARSE)
            yield _field(data, whole)
    tensors += [(name.decode(), content) for name, content in constants.values()]
    for count, (name, content) in enumerate(tensors):
        found = _Initializer(data, content, name)
        weight = found.weight()
        if weight is not None:
            made.weights[count] = weight
            yield from (b"weight", name.encode(), *found.rest)
        elif found.is_external:
            made.others[count] = found.outside()
            yield from (b"other", *found.rest)
        else:
            yield from (b"tensor", name.encode(), _field(data, content))


class _Initializer:
    """The fields of a TensorProto; `rest` are those without the content.

    `name` is that of a Constant node, '' for initializers, which have their own.
    """

    def __init__(self, data: memoryview, span: Span, name: str = "") -> None:
        """Raises Irregular, UnicodeDecodeError."""
        self._dims: list[int] = []
        self.rest: list[bytes] = []
        self._kind, self._name = 0, ""
        self._content: list[tuple[int, Span]] = []
        self._entries: dict[str, str] = {}  # of external data
        self._is_plain, self.is_external = True, False
        for number, whole, inner in fields(data, span):
            if number in (_RAW, _FLOATS) and inner is not None:
                self._content.append((number, inner))
            elif number == _EXTERNAL and inner is not None:
                self._entries.update([_entry(data, inner)])
                self.is_external = True
            else:
                self.rest.append(_field(data, whole))
                self._add(data, number, whole, inner)
        self._name = name or self._name

    def _add(self, data: memoryview, number: int, whole: Span, inner: Span | None) -> None:
        if number in (_SEGMENT, _FLOATS):
            self._is_plain = False
        elif number == _NAME and inner is not None:
            self._name = _text(data, inner)
        elif number == _DIMS and inner is not None:
            self._dims += _numbers(data, inner)
        elif number in (_DIMS, _TYPE, _LOCATION):
            at = varint(data, whole.start, whole.stop)[1]
            value = varint(data, at, whole.stop)[0]
            if number == _DIMS:
                self._dims.append(value)
            elif number == _TYPE:
                self._kind = value
            else:
                self.is_external = self.is_external or value == 1

    def weight(self) -> StoredWeight | None:
        """The weight; None for another tensor."""
        dtype = ELEMENT_TYPES.get(self._kind)
        if dtype is None or not is_weight(dtype, prod(self._dims)) or not self._is_plain:
            return None
        return self.inside()

    def inside(self) -> StoredWeight | None:
        """Where its content is; None for one in another form than bytes. Raises Irregular."""
        dtype = ELEMENT_TYPES[self._kind]
        if self.is_external:
            return self.outside()
        if len(self._content) != 1:
            return None
        ((how, inner),) = self._content
        if len(inner) != dtype.bytes * prod(self._dims) or (
            how == _FLOATS and self._kind != _FLOAT
        ):
            return None
        return StoredWeight(self._name, dtype, tuple(self._dims), inner)

    def outside(self) -> StoredWeight:
        """Where its content in external data is. Raises Irregular."""
        dtype = ELEMENT_TYPES.get(self._kind)
        if dtype is None or dtype.bits < 8 or self._content or not self._is_plain:
            raise Irregular
        start, bytes = _whole(self._entries.get("offset", "0")), dtype.bytes * prod(self._dims)
        if _whole(self._entries.get("length", str(bytes))) != bytes:
            raise Irregular
        place, span = self._entries.get("location", ""), Span(start, start + bytes)
        if not place:
            raise Irregular
        return StoredWeight(self._name, dtype, tuple(self._dims), span, place)


def _entry(data: memoryview, span: Span) -> tuple[str, str]:
    """The key and the value of a StringStringEntryProto."""
    texts = {n: _text(data, inner) for n, _, inner in fields(data, span) if inner is not None}
    return texts.get(1, ""), texts.get(2, "")


def _text(data: memoryview, span: Span) -> str:
    return bytes(data[span.start : span.stop]).decode()


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > _MOST_DIGITS:
        raise Irregular
    return int(text)


def _numbers(data: memoryview, span: Span) -> Iterator[int]:
    at = span.start
    while at < span.stop:
        value, at = varint(data, at, span.stop)
        yield value


def _field(data: memoryview, span: Span) -> bytes:
    return bytes(data[span.start : span.stop])


def read_weight(content: memoryview, stored: StoredWeight) -> numpy.ndarray:
    """The array of a weight with this content, a view that may be unaligned."""
    flat = numpy.frombuffer(content, numpy.uint8)
    return flat.view(stored.dtype.numpy).reshape(stored.shape)
