"""Keeps large tensors out of the protobuf decoder: cuts them out of the file to read them in place.

A model file is nearly all weights, and a decoder would copy each of them twice. `without_weights`
walks the wire format (https://protobuf.dev/programming-guides/encoding) of ModelProto.graph
.initializer and returns the file without the large `raw_data` fields, with their spans. Constant
nodes of the graph with a tensor in this form become initializers after the others (`constants_of`).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anydim.base.errors import ModelError
from anydim.base.read_files import open_regular
from anydim.base.records import dataclass


@contextmanager
def map_file(path: Path) -> Iterator[tuple[memoryview, os.stat_result]]:
    """The bytes of a file, and its stat data.

    Raises ModelError if it is empty, OSError if it cannot be read, as a pipe.
    """
    with open_regular(str(path)) as file:
        found = os.fstat(file.fileno())
        if not found.st_size:
            raise ModelError(f"{path} is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
            data = memoryview(memory)
            try:
                yield data, found
            finally:
                data.release()


_FIRST = 64  # bytes
_WEIGHTS = "it is a file of weights: ad.language_model opens the folder of a language model"
_MARKS = {
    b"version https://git-lfs": "it is a pointer of Git LFS: `git lfs pull` brings the model",
    b"manifest.json": "it is a model that anydim saved: ad.load takes it",
    b"gguf": "it is a language model: ad.language_model opens it, or `anydim chat`",
    b'{"__metadata__': _WEIGHTS,
    b'"dtype":"': _WEIGHTS,
    b"html": "it is a web page, perhaps an error of the download",
    b"pk\3\4": "it is an archive, such as torch.save writes: torch.onnx.export makes ONNX models",
}


def no_model(data: bytes | memoryview, name: str) -> ModelError:
    """The error for bytes that are no ONNX model."""
    first = bytes(data[:_FIRST]).lower()
    hint = next((hint for mark, hint in _MARKS.items() if mark in first), "")
    return ModelError(f"{name} is not an ONNX model, or the file is truncated", hint)


_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # fields of ModelProto, GraphProto, TensorProto
_NODE, _GRAPH_INPUT, _VALUE_NAME, _TENSOR_NAME = 1, 11, 1, 8  # of GraphProto, ValueInfoProto, same
_OUTPUT, _OPERATOR, _ATTRIBUTE, _DOMAIN = 2, 4, 5, 7  # of NodeProto
_INPUT, _NAME, _TENSOR, _REFERENCE = 1, 1, 5, 21  # of NodeProto; of AttributeProto
_CONSTANT = b"Constant"
_SMALLEST = 4096
_MESSAGE = 2  # wire type of strings, bytes and messages
_FIXED = {1: 8, 5: 4}


@dataclass(frozen=True)
class Span:
    """A range of bytes in a file."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


class Irregular(Exception):
    """The layout is not the expected one; the decoder reports any error."""


def without_weights(data: memoryview) -> tuple[bytes, dict[int, Span]]:
    """(the file without large weights, their spans by number of the initializer).

    A file with an unexpected layout is returned whole, without spans.
    """
    try:
        return _model(data)
    except Irregular:
        return bytes(data), {}


def _model(data: memoryview) -> tuple[bytes, dict[int, Span]]:
    parts: list[bytes] = []
    spans: dict[int, Span] = {}
    graphs = 0
    for number, whole, content in fields(data, Span(0, len(data))):
        if number == _GRAPH and content is not None:
            graphs += 1
            body, spans = _graph(data, content)
            parts.append(_message(_GRAPH, body))
        else:
            parts.append(bytes(data[whole.start : whole.stop]))
    if graphs > 1:
        raise Irregular
    return b"".join(parts), spans


def _graph(data: memoryview, span: Span) -> tuple[bytes, dict[int, Span]]:
    parts: list[bytes] = []
    tensors: list[tuple[bytes, Span]] = []
    constants = constants_of(data, span)
    for number, whole, content in fields(data, span):
        if number == _INITIALIZER and content is not None:
            tensors.append((b"", content))
        elif whole.start not in constants:
            parts.append(bytes(data[whole.start : whole.stop]))
    spans: dict[int, Span] = {}
    for count, (name, content) in enumerate([*tensors, *constants.values()]):
        body, weight = bytes(data[content.start : content.stop]), None
        if len(content) >= _SMALLEST:
            body, weight = _tensor(data, content)
        parts.append(_message(_INITIALIZER, body + (_message(_TENSOR_NAME, name) if name else b"")))
        if weight is not None:
            spans[count] = weight
    return b"".join(parts), spans


def constants_of(data: memoryview, graph: Span) -> dict[int, tuple[bytes, Span]]:
    """Constant nodes that can be initializers, by their start: the name and the tensor of each.

    Those with the name of an input are not, as a call may give inputs with initializers.
    """
    found: dict[int, tuple[bytes, Span]] = {}
    inputs: set[bytes] = set()
    for number, whole, content in fields(data, graph):
        if number == _GRAPH_INPUT and content is not None:
            inputs |= {_bytes(data, name) for name in _parts(data, content).get(_VALUE_NAME, ())}
        if number == _NODE and content is not None:
            made = _constant(data, content)
            if made is not None:
                found[whole.start] = made
    return {start: made for start, made in found.items() if made[0] not in inputs}


def _constant(data: memoryview, node: Span) -> tuple[bytes, Span] | None:
    """The name and the tensor of a Constant node whose tensor is in `raw_data`; None for others."""
    if _CONSTANT not in bytes(data[node.start : min(node.stop, node.start + _SMALLEST)]):
        return None
    try:
        parts = _parts(data, node)
        names = [_bytes(data, each) for each in parts.get(_OUTPUT, ())]
        kinds = [_bytes(data, each) for each in parts.get(_OPERATOR, ())]
        domains = {_bytes(data, each) for each in parts.get(_DOMAIN, ())}
        given = parts.get(_ATTRIBUTE, ())
        if kinds != [_CONSTANT] or len(names) != 1 or not names[0] or len(given) != 1:
            return None
        attribute = _parts(data, given[0])
        tensors = attribute.get(_TENSOR, ())
        if [_bytes(data, each) for each in attribute.get(_NAME, ())] != [b"value"]:
            return None
        if 1 in parts or 21 in attribute or len(tensors) != 1 or not domains <= {b"", b"ai.onnx"}:
            return None
        return (
            (names[0], tensors[0])
            if len(_parts(data, tensors[0]).get(_RAW_DATA, ())) == 1
            else None
        )
    except Irregular:
        return None


def _parts(data: memoryview, span: Span) -> dict[int, list[Span]]:
    """The contents of the strings and messages of a message, by field number."""
    found: dict[int, list[Span]] = {}
    for number, _, content in fields(data, span):
        if content is not None:
            found.setdefault(number, []).append(content)
    return found


def _bytes(data: memoryview, span: Span) -> bytes:
    return bytes(data[span.start : span.stop])


def _tensor(data: memoryview, span: Span) -> tuple[bytes, Span | None]:
    parts: list[bytes] = []
    weight: Span | None = None
    for number, whole, content in fields(data, span):
        if number == _RAW_DATA and content is not None:
            if weight is not None:
                raise Irregular
            weight = content
        else:
            parts.append(bytes(data[whole.start : whole.stop]))
    return b"".join(parts), weight


def fields(data: memoryview, span: Span) -> Iterator[tuple[int, Span, Span | None]]:
    """(field number, span of the field, span of a string's or message's content) of a message."""
    at = span.start
    while at < span.stop:
        start = at
        key, at = varint(data, at, span.stop)
        wire = key & 7
        content: Span | None = None
        if wire == _MESSAGE:
            length, at = varint(data, at, span.stop)
            content = Span(at, at + length)
            at += length
        elif wire in _FIXED:
            at += _FIXED[wire]
        elif wire == 0:
            _, at = varint(data, at, span.stop)
        else:
            raise Irregular
        if at > span.stop:
            raise Irregular
        yield key >> 3, Span(start, at), content


def varint(data: memoryview, at: int, stop: int) -> tuple[int, int]:
    """(a number, its end offset); raises Irregular if it does not end before `stop`."""
    value = shift = 0
    while at < stop and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise Irregular


def _message(number: int, body: bytes) -> bytes:
    return _encode(number << 3 | _MESSAGE) + _encode(len(body)) + body


def _encode(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
