"""Outlines an ONNX file: inputs, outputs and contents, read in milliseconds without an import."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

from anydim.base.errors import ModelError
from anydim.base.onnx_notation import ELEMENT_TYPES, OPEN
from anydim.base.records import dataclass
from anydim.base.sheet import Sheet, Shown, facts
from anydim.base.text import count_of
from anydim.compiler.frontends.onnx.file.dims import Declared, DimNames
from anydim.compiler.frontends.onnx.file.frame import Frame, Value, frame_of
from anydim.compiler.frontends.onnx.file.wire import map_file
from anydim.sizes import Box

_STRING = 8


@dataclass(frozen=True)
class Slot:
    """An input or output of a file: its element type and its axes, None if they are unknown.

    `kind` is "tensor", or a list or an optional: "sequence of tensor".
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[str, ...] | None

    def __str__(self) -> str:
        axes = "[...]" if self.shape is None else f"[{', '.join(self.shape)}]"
        tensor = f"{self.dtype}{axes}"
        holder = self.kind.removesuffix("tensor")
        return f"{self.name}: {holder}{tensor if self.kind.endswith('tensor') else ''}".rstrip()


@dataclass(frozen=True)
class Outline(Shown):
    """The declarations of an ONNX file; sizes in bytes.

    `dims` are those of the inputs, under the names that `dims=` and `--dim` accept; the axes of
    outputs are as the file has them. `producer` wrote the file. `opsets` are versions of operators
    by domain, '' is the standard's own; `operators` has the node count of each.
    """

    path: str
    name: str
    producer: str
    ir: int
    opsets: Mapping[str, int]
    dims: Box
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    operators: Mapping[str, int]
    constants: int
    weight_bytes: int

    def _sheet(self) -> Sheet:
        """The declarations of the file, and its node count per operator."""
        opsets = ", ".join(f"{domain} {version}".strip() for domain, version in self.opsets.items())
        weights = f"{self.weight_bytes} bytes in {count_of(self.constants, 'constant')}"
        return Sheet(
            f"{self.path}: {self.name}, {count_of(sum(self.operators.values()), 'node')}",
            (
                ("dims", str(self.dims) or "none"),
                *facts("inputs", map(str, self.inputs)),
                *facts("outputs", map(str, self.outputs)),
                ("weights", weights),
                ("operators", ", ".join(f"{name} {count}" for name, count in self._by_count)),
                ("written", f"{self.producer or 'unknown'}, opset {opsets}, IR {self.ir}"),
            ),
        )

    __str__ = Shown.__str__
    __repr__ = Shown.__repr__

    @property
    def _by_count(self) -> list[tuple[str, int]]:
        return sorted(self.operators.items(), key=lambda each: (-each[1], each[0]))


def outline(source: str | os.PathLike[str] | bytes) -> Outline:
    """Outline the ONNX file at a path, or its bytes.

    Operators are not checked: an outlined model may be unsupported. Raises ModelError for an
    invalid ONNX model.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _outline("the model", "the model", memoryview(source).cast("B"))
    path = Path(source)
    try:
        with map_file(path) as (data, _):
            return _outline(os.fspath(path), path.name, data)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelError(f"{path}: cannot be read: {reason}") from None


def _outline(path: str, name: str, data: memoryview) -> Outline:
    frame = frame_of(data, name)
    dims = DimNames(name)
    dims.read({v.name: v.shape for v in frame.inputs if v.kind == "tensor" and v.shape is not None})
    return Outline(
        path, frame.name or name, f"{frame.producer} {frame.version}".strip(), frame.ir,
        frame.opsets, dims.box(), tuple(_input(value, dims) for value in frame.inputs),
        tuple(_slot(value, _axes(value.shape)) for value in frame.outputs), frame.operators,
        len(frame.weights), _weight_bytes(frame),
    )  # fmt: skip


def _input(value: Value, dims: DimNames) -> Slot:
    known = dims.shapes.get(value.name)
    return _slot(value, _axes(value.shape) if known is None else tuple(map(str, known)))


def _slot(value: Value, shape: tuple[str, ...] | None) -> Slot:
    return Slot(value.name, value.kind, _dtype(value.element), shape)


def _axes(shape: Sequence[Declared] | None) -> tuple[str, ...] | None:
    if shape is None:
        return None
    return tuple("?" if str(axis).strip() in OPEN else str(axis) for axis in shape)


def _dtype(element: int) -> str:
    if element in ELEMENT_TYPES:
        return ELEMENT_TYPES[element].name
    return "string" if element == _STRING else f"type {element}"


def _weight_bytes(frame: Frame) -> int:
    total = 0
    for element, shape in frame.weights.values():
        if element in ELEMENT_TYPES:
            total += prod(shape) * ELEMENT_TYPES[element].bytes
    return total
