"""Reads the declarations of a model file in milliseconds, without the onnx package.

Fields are those of onnx.proto: ModelProto, GraphProto, TensorProto, ValueInfoProto, TypeProto.
Contents of weights are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from anydim.base.errors import ModelError
from anydim.base.records import dataclass
from anydim.compiler.frontends.onnx.file.dims import Declared
from anydim.compiler.frontends.onnx.file.wire import Irregular, Span, fields, no_model, varint

_KINDS = {1: "tensor", 4: "sequence", 5: "map", 8: "sparse tensor", 9: "optional"}
_HOLDERS = (4, 9)
_DEEPEST = 8


@dataclass(frozen=True)
class Value:
    """An input or output as declared in the file; `shape` is None if it declares none.

    `kind` is "tensor", or with its containers: "sequence of tensor". `element` is the number of the
    element type.
    """

    name: str
    kind: str
    element: int
    shape: tuple[Declared, ...] | None


@dataclass
class Frame:
    """The declarations of a model; `opsets` by domain, `weights` as (element type, shape)."""

    name: str = ""
    producer: str = ""
    version: str = ""
    ir: int = 0
    opsets: dict[str, int] = field(default_factory=dict)
    operators: dict[str, int] = field(default_factory=dict)  # node count by operator
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    weights: dict[str, tuple[int, tuple[int, ...]]] = field(default_factory=dict)


def frame_of(data: memoryview, name: str) -> Frame:
    """Read the frame of a ModelProto; raises ModelError for other bytes."""
    frame = Frame()
    try:
        graphs = _model(_Message(data, Span(0, len(data))), frame)
    except (Irregular, UnicodeDecodeError, RecursionError):
        raise no_model(data, name) from None
    if not graphs:
        raise ModelError(f"{name} holds no graph", "it may be truncated or no ONNX model at all")
    frame.inputs = [value for value in frame.inputs if value.name not in frame.weights]
    return frame


class _Message:
    """A message or a number in the bytes of a file; a number's span includes its key."""

    def __init__(self, data: memoryview, span: Span, keyed: bool = False) -> None:
        self.data = data
        self.span = span
        self.keyed = keyed

    def __iter__(self) -> Iterator[tuple[int, _Message]]:
        for number, whole, content in fields(self.data, self.span):
            yield (
                number,
                _Message(self.data, whole if content is None else content, content is None),
            )

    @property
    def text(self) -> str:
        """The value of a string field."""
        return bytes(self.data[self.span.start : self.span.stop]).decode()

    @property
    def numbers(self) -> list[int]:
        """The values of an integer field: one, or several packed ones."""
        at, found = self.span.start, []
        while at < self.span.stop:
            value, at = varint(self.data, at, self.span.stop)
            found.append(value - (1 << 64) if value >> 63 else value)
        return found[1:] if self.keyed else found

    @property
    def number(self) -> int:
        """The value of a field with one integer."""
        return next(iter(self.numbers), 0)


def _model(message: _Message, frame: Frame) -> int:
    graphs = 0
    for number, part in message:
        if number == 1:
            frame.ir = part.number
        elif number == 2:
            frame.producer = part.text
        elif number == 3:
            frame.version = part.text
        elif number == 7:
            graphs += 1
            _graph(part, frame)
        elif number == 8:
            entry = dict(part)
            domain = entry[1].text if 1 in entry else ""
            frame.opsets[domain] = entry[2].number if 2 in entry else 0
    return graphs


def _graph(message: _Message, frame: Frame) -> None:
    for number, part in message:
        if number == 1:
            _node(part, frame)
        elif number == 2:
            frame.name = part.text
        elif number == 5:
            _weight(part, frame.weights)
        elif number in (11, 12):
            (frame.inputs if number == 11 else frame.outputs).append(_value(part))


def _node(message: _Message, frame: Frame) -> None:
    """Count the operator; the value of a Constant is a weight like an initializer."""
    parts = dict(message)
    operator, domain = (parts[key].text if key in parts else "" for key in (4, 7))
    name = operator if domain in ("", "ai.onnx") else f"{domain}.{operator}"
    frame.operators[name] = frame.operators.get(name, 0) + 1
    if name == "Constant" and 5 in parts:
        value = dict(parts[5]).get(5)
        if value is not None:
            _weight(value, frame.weights, parts[2].text if 2 in parts else "")


def _weight(
    message: _Message, weights: dict[str, tuple[int, tuple[int, ...]]], name: str = ""
) -> None:
    """Record a tensor under the given name, or else its own."""
    element, shape = 0, list[int]()
    for number, part in message:
        if number == 1:
            shape += part.numbers
        elif number == 2:
            element = part.number
        elif number == 8:
            name = name or part.text
    weights[name] = element, tuple(shape)


def _value(message: _Message) -> Value:
    parts = dict(message)
    name = parts[1].text if 1 in parts else ""
    kinds: list[str] = []
    inner = parts.get(2)
    while inner is not None and len(kinds) < _DEEPEST:
        number, inner = next(((n, p) for n, p in inner if n in _KINDS), (0, None))
        kinds.append(_KINDS.get(number, "nothing"))
        if inner is None or number not in _HOLDERS:
            break
        inner = dict(inner).get(1)  # the element type of the container
    element, shape = _tensor(inner) if inner is not None and kinds[-1] == "tensor" else (0, None)
    return Value(name, " of ".join(kinds) or "nothing", element, shape)


def _tensor(message: _Message) -> tuple[int, tuple[Declared, ...] | None]:
    parts = dict(message)
    element = parts[1].number if 1 in parts else 0
    if 2 not in parts:
        return element, None
    return element, tuple(_axis(dict(axis)) for number, axis in parts[2] if number == 1)


def _axis(parts: Mapping[int, _Message]) -> Declared:
    if 1 in parts:
        return parts[1].number
    return parts[2].text if 2 in parts else ""
