"""The records of a model with strings: its inputs and outputs, and the steps around its code.

strings.json            these records
strings/early.onnx      a part with operators that only onnx's reference evaluator has
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy

from anydim.base.dtypes import DTYPES
from anydim.base.errors import ArtefactError
from anydim.base.records import dataclass
from anydim.runtime.string_operators import HOST, READERS, HostNode, HostSteps, fill_vector

STRINGS = "strings.json"
_TEXT = "text"
_MOST_AXES = 32


@dataclass(frozen=True)
class SavedPort:
    """An input or output.

    `reader` is a key of `READERS`, `type` as onnxruntime writes it, `element` the number of the
    element type of a tensor, else 0. Axes are numbers, names or empty.
    """

    name: str
    type: str
    reader: str = ""
    element: int = 0
    axes: tuple[str, ...] = ()
    has_shape: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.type}" + (f"[{', '.join(self.axes)}]" if self.axes else "")

    @property
    def shape(self) -> list[int | str | None]:
        """The axes as a session shows them."""
        return [int(axis) if axis.isdecimal() else axis or None for axis in self.axes]


@dataclass(frozen=True)
class SavedValue:
    """An attribute or a constant.

    `kind` is "int", "float", "text", these with an "s", or "tensor". Floats are hexadecimal; the
    elements of a tensor of `dtype` are the hexadecimal digits in `texts`, or texts.
    """

    kind: str
    ints: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    dtype: str = ""


@dataclass(frozen=True)
class SavedNode:
    """An operator of the host, its operands and result by name."""

    domain: str
    operator: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, SavedValue] = field(default_factory=dict)


@dataclass(frozen=True)
class SavedSteps:
    """A part that runs in numpy."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[SavedNode, ...]
    constants: Mapping[str, SavedValue] = field(default_factory=dict)


@dataclass(frozen=True)
class SavedStrings:
    """A model with strings, besides its native part; a part that is None is a member."""

    name: str
    inputs: tuple[SavedPort, ...]
    outputs: tuple[SavedPort, ...]
    early: SavedSteps | None
    late: SavedSteps | None


def onnx_member(part: str) -> str:
    """The name of a part in the form of ONNX: 'early' or 'late'."""
    return f"strings/{part}.onnx"


# ---- writing -------------------------------------------------------------------------------------


def saved_steps(steps: HostSteps) -> SavedSteps:
    """The record of a part."""
    nodes = (
        SavedNode(
            node.domain, node.operator, node.inputs, node.output,
            {name: saved_value(value) for name, value in sorted(node.attributes.items())},
        )
        for node in steps.nodes
    )  # fmt: skip
    constants = {name: saved_value(value) for name, value in sorted(steps.constants.items())}
    return SavedSteps(steps.inputs, steps.outputs, tuple(nodes), constants)


def saved_value(value: Any) -> SavedValue:
    """The record of an attribute or constant."""
    if isinstance(value, numpy.ndarray):
        shape = tuple(value.shape)
        if value.dtype == object:
            return SavedValue("tensor", shape, tuple(value.reshape(-1).tolist()), _TEXT)
        return SavedValue("tensor", shape, (value.tobytes().hex(),), value.dtype.name)
    if isinstance(value, tuple):
        first = value[0] if value else 0
        if isinstance(first, str):
            return SavedValue("texts", texts=value)
        if isinstance(first, float):
            return SavedValue("floats", texts=tuple(map(float.hex, value)))
        return SavedValue("ints", value)
    if isinstance(value, str):
        return SavedValue("text", texts=(value,))
    if isinstance(value, float):
        return SavedValue("float", texts=(value.hex(),))
    return SavedValue("int", (int(value),))


# ---- reading -------------------------------------------------------------------------------------


def steps_of(name: str, saved: SavedSteps) -> HostSteps:
    """The part of a record; ArtefactError if it is inconsistent."""
    known = {*saved.inputs, *saved.constants}
    for node in saved.nodes:
        if (node.domain, node.operator) not in HOST or not known.issuperset(node.inputs):
            raise _wrong(f"operator '{node.operator}'")
        known.add(node.output)
    if not known.issuperset(saved.outputs):
        raise _wrong("outputs")
    nodes = [
        HostNode(
            node.domain, node.operator, node.inputs, node.output,
            {key: _value(value) for key, value in node.attributes.items()},
        )
        for node in saved.nodes
    ]  # fmt: skip
    constants = {key: _value(value) for key, value in saved.constants.items()}
    try:
        return HostSteps(name, saved.inputs, saved.outputs, nodes, constants)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise _wrong(f"attributes ({error})") from None


def check_ports(saved: SavedStrings) -> None:
    """Raise ArtefactError for an unknown kind of input."""
    for port in saved.inputs:
        if port.reader not in READERS:
            raise _wrong(f"input '{port.name}'")


def _value(saved: SavedValue) -> Any:
    try:
        return _READ[saved.kind](saved)
    except (KeyError, ValueError, IndexError, TypeError, OverflowError) as error:
        raise _wrong(f"value of kind '{saved.kind}' ({error})") from None


def _tensor(saved: SavedValue) -> numpy.ndarray:
    if len(saved.ints) > _MOST_AXES or any(size < 0 for size in saved.ints):
        raise ValueError("shape")
    if saved.dtype == _TEXT:
        return fill_vector(saved.texts).reshape(saved.ints)
    dtype = DTYPES[saved.dtype].numpy
    return numpy.frombuffer(bytes.fromhex(saved.texts[0]), dtype).reshape(saved.ints)


_READ = {
    "int": lambda saved: saved.ints[0],
    "ints": lambda saved: saved.ints,
    "float": lambda saved: float.fromhex(saved.texts[0]),
    "floats": lambda saved: tuple(map(float.fromhex, saved.texts)),
    "text": lambda saved: saved.texts[0],
    "texts": lambda saved: saved.texts,
    "tensor": _tensor,
}


def _wrong(what: str) -> ArtefactError:
    return ArtefactError(f"the records of strings are inconsistent: {what}")
