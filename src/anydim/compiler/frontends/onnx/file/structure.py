"""The structure of a model file: all of it but the contents of its weights.

Weights are the initializers of the model of more than one element whose type is a float, or one
that quantised tensors have. Two files of one structure have the same graph, with weights of the
same names, types and shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy

from anydim.base.digest import sha256
from anydim.base.dtypes import DType
from anydim.base.onnx_notation import ELEMENT_TYPES
from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.wire import Irregular, Span, fields, varint

_TYPES = frozenset(("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32"))
_GRAPH, _INITIALIZER = 7, 5  # fields of ModelProto, GraphProto
_DIMS, _TYPE, _FLOATS, _NAME, _RAW = 1, 2, 4, 8, 9  # fields of TensorProto
_ELSEWHERE = (3, 13, 14)  # segments, external data
_FLOAT = 1  # TensorProto.FLOAT


def is_weight(dtype: DType, count: int) -> bool:
    """Whether an initializer is a weight."""
    return dtype.name in _TYPES and count > 1


@dataclass(frozen=True)
class StoredWeight:
    """A weight of a file: its name, type, shape, and the span of its bytes."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    span: Span


@dataclass(frozen=True)
class Structure:
    """The digest of a file without the contents of weights, and these, by number."""

    digest: str
    weights: dict[int, StoredWeight]


def structure_of(data: memoryview) -> Structure | None:
    """The structure of a file; None for one with an unexpected layout or without weights."""
    parts: list[bytes] = []
    weights: dict[int, StoredWeight] = {}
    try:
        graphs = 0
        for number, whole, content in fields(data, Span(0, len(data))):
            if number == _GRAPH and content is not None:
                graphs += 1
                parts += (b"graph", *_graph(data, content, weights), b"end")
            else:
                parts.append(_field(data, whole))
    except (Irregular, UnicodeDecodeError):
        return None
    if graphs != 1 or not weights:
        return None
    state = sha256(size=sum(map(len, parts)))
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return Structure(state.hexdigest(), weights)


def _graph(data: memoryview, span: Span, weights: dict[int, StoredWeight]) -> Iterator[bytes]:
    count = 0
    for number, whole, content in fields(data, span):
        if number != _INITIALIZER or content is None:
            yield _field(data, whole)
            continue
        found = _weight(data, content)
        if found is None:
            yield _field(data, whole)
        else:
            weights[count], rest = found
            yield from (b"weight", *rest)
        count += 1


def _weight(data: memoryview, span: Span) -> tuple[StoredWeight, list[bytes]] | None:
    """A weight, and its fields without the content; None for another tensor."""
    dims: list[int] = []
    rest: list[bytes] = []
    kind, name = 0, ""
    content: list[tuple[int, Span]] = []
    for number, whole, inner in fields(data, span):
        if number in (_RAW, _FLOATS) and inner is not None:
            content.append((number, inner))
            continue
        if number in _ELSEWHERE or number == _FLOATS:
            return None
        rest.append(_field(data, whole))
        if number == _NAME and inner is not None:
            name = bytes(data[inner.start : inner.stop]).decode()
        elif number == _DIMS and inner is not None:
            dims += _numbers(data, inner)
        elif number in (_DIMS, _TYPE):
            at = varint(data, whole.start, whole.stop)[1]
            value = varint(data, at, whole.stop)[0]
            kind = value if number == _TYPE else kind
            dims += [value] if number == _DIMS else []
    dtype = ELEMENT_TYPES.get(kind)
    if dtype is None or not is_weight(dtype, prod(dims)) or len(content) != 1:
        return None
    ((how, inner),) = content
    if len(inner) != dtype.bytes * prod(dims) or (how == _FLOATS and kind != _FLOAT):
        return None
    return StoredWeight(name, dtype, tuple(dims), inner), rest


def _numbers(data: memoryview, span: Span) -> Iterator[int]:
    at = span.start
    while at < span.stop:
        value, at = varint(data, at, span.stop)
        yield value


def _field(data: memoryview, span: Span) -> bytes:
    return bytes(data[span.start : span.stop])


def read_weight(data: memoryview, stored: StoredWeight) -> numpy.ndarray:
    """The array of a weight, an aligned view or a copy."""
    flat = numpy.frombuffer(data[stored.span.start : stored.span.stop], numpy.uint8)
    array = flat.view(stored.dtype.numpy).reshape(stored.shape)
    return array if array.flags.aligned else array.copy()
