"""The dims of a model in any exporter's notation, and the names by which users refer to them.

An axis of an input is a number, a name, an expression over names (`past + seq`), or open: blank,
-1, 0, `?`. Names with dots are kept; other characters that a size cannot contain become
underscores. An unnamed axis is named after its input and index: `x_2`.

A user refers to a dim by its name in the file, by its name in the model, or by input and axis:
`x.2`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from anydim.base.errors import ModelError, OptionError, UserError
from anydim.base.onnx_notation import OPEN, is_open
from anydim.base.records import dataclass
from anydim.base.text import quote_list, suggestion
from anydim.compiler.frontends.onnx.file.tensors import MOST_AXES
from anydim.sizes import Box, Dim, Size, Truth, as_size, parse, prove

Declared = int | str  # an axis as declared in a file
_NAME = re.compile(r"[^\W\d]\w*(?:\.\w+)*")


def axes_of(shape: Any) -> tuple[Declared, ...]:
    """The axes of a TensorShapeProto."""
    return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param for d in shape.dim)


def input_shapes(graph: Any) -> dict[str, tuple[Declared, ...]]:
    """The axes of a GraphProto's input tensors without initializers."""
    constants = {tensor.name for tensor in graph.initializer}
    return {
        value.name: axes_of(value.type.tensor_type.shape)
        for value in graph.input
        if value.name not in constants and value.type.tensor_type.HasField("shape")
    }


@dataclass
class DimNames:
    """The dims of a model in order of appearance, and the shapes of its inputs in terms of them.

    `given` are bounds by any name that a user may use. An axis that is an expression in the file is
    that size, unless a user gives it bounds, which makes it a dim of its own.
    """

    model: str
    given: Mapping[str, Dim] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)  # our name -> the file's name
    usual: dict[str, Dim] = field(default_factory=dict)  # bounds other than from 0 up
    shapes: dict[str, tuple[Size, ...]] = field(default_factory=dict)  # of the inputs
    _plain: set[str] = field(default_factory=set)

    def read(self, shapes: Mapping[str, Sequence[Declared]]) -> None:
        """Read the shapes of inputs; raises ModelError for an invalid size."""
        self._plain = {
            axis for shape in shapes.values() for axis in shape
            if isinstance(axis, str) and axis not in OPEN and _NAME.fullmatch(axis)
        }  # fmt: skip
        for name, shape in shapes.items():
            if len(shape) > MOST_AXES:
                problem = f"{len(shape)} axes, at most {MOST_AXES} are possible"
                raise ModelError(f"{self.model}: input '{name}' has {problem}")
            self.shapes[name] = tuple(
                self._size(axis, name, number, len(shape)) for number, axis in enumerate(shape)
            )

    def _size(self, axis: Declared, name: str, number: int, rank: int) -> Size:
        if isinstance(axis, int):
            if axis < -1:
                raise ModelError(f"{self.model}: input '{name}' has a size of {axis}")
            return as_size(axis) if axis > 0 else self.add(f"{name}_{number}")
        text = axis.strip()
        if is_open(text):
            return self.add(f"{name}_{number}")
        requested = {text, f"{name}.{number}", f"{name}.{number - rank}"} & self.given.keys()
        formula = None if requested or text in self._plain else self._formula(text)
        return self.add(text) if formula is None else formula

    def _formula(self, text: str) -> Size | None:
        """Parse an expression over dims that other axes name; None for a name."""
        try:
            size = parse(text)
        except UserError:
            return None
        return size if size.symbols and size.symbols <= self._plain else None

    def add(self, given: str, usual: Dim | None = None) -> Size:
        """The dim for a name in the file."""
        name = given if _NAME.fullmatch(given) else re.sub(r"\W", "_", given)
        if name[0].isdigit():
            name = f"_{name}"
        while self.known.get(name, given) != given:
            name += "_"
        self.known[name] = given
        if usual is not None:
            self.usual[name] = usual
        return Size.symbol(name)

    # ---- names in user calls ----

    def find(self, name: str) -> str | Size | None:
        """Resolve a user's name to a dim, or the size of an axis without one; None if unknown."""
        for ours, theirs in self.known.items():
            if name == theirs:
                return ours
        for ours in self.known:
            if name in (ours, re.sub(r"\W", "_", ours)):
                return ours
        value, _, axis = name.rpartition(".")
        shape = self.shapes.get(value)
        if shape is None or not re.fullmatch(r"-?\d+", axis) or len(axis) > 4:
            return None
        if not -len(shape) <= int(axis) < len(shape):
            return None
        size = shape[int(axis)]
        return str(size) if str(size) in self.known else size

    def resolve(self) -> dict[str, Dim]:
        """The given bounds by our names; OptionError for an unknown dim."""
        found: dict[str, Dim] = {}
        names: dict[str, str] = {}
        for name, dim in self.given.items():
            own = self.find(name)
            if own is None:
                raise OptionError(f"{self.model} has no dim '{name}'", self._hint(name))
            if isinstance(own, Size):
                if own.constant is None or not dim.lo == own.constant == dim.hi:
                    raise OptionError(f"{self.model}: '{name}' has the size {own}, which is no dim")
                continue
            if found.setdefault(own, dim) != dim:
                twice = f"as '{names[own]}' and as '{name}'"
                raise OptionError(f"{self.model}: dim '{own}' is given twice, {twice}")
            names[own] = name
        return found

    def _hint(self, name: str) -> str:
        close = suggestion(name, {*self.known, *self.known.values()})
        return close or f"its dims are {quote_list(self.known)}"

    def box(self) -> Box:
        """All sizes inside the given bounds; a dim without bounds starts at 0."""
        given = self.resolve()
        dims = [given.get(name, self.usual.get(name, Dim(0))).named(name) for name in self.known]
        box = Box(tuple(dims))
        sizes = dict.fromkeys(size for shape in self.shapes.values() for size in shape)
        below = (size for size in sizes if prove(size, ">=", 0, box) is not Truth.PROVED)
        return box.also(constraints=tuple(below))
