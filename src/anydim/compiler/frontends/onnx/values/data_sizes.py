"""Data-dependent sizes: elements of integer tensors become dims of the graph.

Elements that come from shapes and constants stay the sizes they are. Any other element becomes a
dim when it is first used as a size, and is the same dim wherever it is used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from anydim.base.dtypes import int64
from anydim.compiler.frontends.onnx.file.tensors import Unsupported
from anydim.compiler.frontends.onnx.values.emitter import Emitter
from anydim.compiler.frontends.onnx.values.forms import Emits, vector
from anydim.compiler.graph.nodes import Node
from anydim.sizes import Size, as_size

Element = tuple[str, int]  # a tensor and a row-major index in it
_MOST_ELEMENTS = 64


class Finds(Emits, Protocol):
    """An object that adds nodes and dims."""

    def dim(self, stem: str, low: int = 0, high: int | None = None) -> Size:
        """Declare a new dim."""

    def find(self, value: str, dims: Sequence[Size]) -> None:
        """Bind new dims to the elements of an int64 value."""


def elements(
    emitter: Emitter, nodes: Sequence[Node], name: str, count: int | None = None
) -> list[Size | Element]:
    """The elements of a vector or scalar: each a size, or else (tensor, index).

    `nodes` are nodes that are not part of the graph yet; `count` is the required element count.
    Unsupported if the element count is open.
    """
    if emitter.is_static(name) and emitter.types[name].rank <= 1:
        contents = emitter.contents(name).reshape(-1)
        if contents.dtype.kind in "iuO":
            return [as_size(size) for size in contents.tolist()]
    kind = emitter.types[name]
    open_size = kind.rank == 1 and emitter.constant(kind.shape[0]) is None
    if count is not None and open_size and kind.dtype.is_integer:
        return [emitter.elements.get((name, at), (name, at)) for at in range(count)]
    count = _count(emitter, name)
    outside = {own: outer for outer, own in emitter.captured.items()}.get(name)
    if outside is not None and emitter.outer is not None:
        known = elements(emitter.outer, (), outside)
        return [
            item if isinstance(item, Size) else emitter.elements.get((name, index), (name, index))
            for index, item in enumerate(known)
        ]
    made = {output: node for node in nodes for output in node.outputs}
    node = made.get(name) or emitter.makers.get(name)
    traced = _trace(emitter, nodes, node, count) if node is not None else None
    if traced is None:
        traced = [(name, index) for index in range(count)]
    return [
        emitter.elements.get(item, item) if isinstance(item, tuple) else item for item in traced
    ]


def _count(emitter: Emitter, name: str) -> int:
    kind = emitter.types[name]
    count = emitter.constant(kind.shape[0]) if kind.rank == 1 else 1
    if kind.rank > 1 or not kind.dtype.is_integer:
        raise Unsupported(f"its input '{name}' is {kind}, expected a vector of integers")
    if count is None or count > _MOST_ELEMENTS:
        raise Unsupported(f"its input '{name}' has {kind.shape[0]} elements, which decide a rank")
    return count


def _trace(
    emitter: Emitter, nodes: Sequence[Node], node: Node, count: int
) -> list[Size | Element] | None:
    """The elements of a node that only moves elements; None for other nodes."""
    inputs = [name for name in node.given if emitter.types[name].rank <= 1]
    if len(inputs) != len(node.given) or not inputs:
        return None
    if not all(emitter.types[name].dtype.is_integer for name in inputs):
        return None
    try:
        parts = [elements(emitter, nodes, name) for name in inputs]
    except Unsupported:
        return None
    if node.operator in ("concat", "reshape", "squeeze", "unsqueeze", "identity", "cast"):
        joined = [item for part in parts for item in part]
        if node.operator == "cast":
            joined = _cast(emitter, node, joined)
        return joined if len(joined) == count else None
    if node.operator == "gather" and all(isinstance(item, Size) for item in parts[1]):
        indices = [item.constant for item in parts[1] if isinstance(item, Size)]
        extent = len(parts[0])
        if all(index is not None and -extent <= index < extent for index in indices):
            return [parts[0][index] for index in indices if index is not None]
    return None


def _cast(emitter: Emitter, node: Node, items: list[Size | Element]) -> list[Size | Element]:
    """Elements in another type: unchanged if it holds them, new ones if they may wrap."""
    (output,) = node.outputs
    source, target = emitter.types[node.given[0]].dtype, emitter.types[output].dtype
    wider = target.range[0] <= source.range[0] and source.range[1] <= target.range[1]
    found: list[Size | Element] = []
    for index, item in enumerate(items):
        held = item if wider else None
        if held is None and isinstance(item, Size):
            held = emitter.held_in(item, target, node.source)
        found.append((output, index) if held is None else held)
    return found


def element(emitter: Emitter, nodes: Sequence[Node], name: str) -> Size | Element:
    """The single element of a tensor; Unsupported for another count."""
    items = elements(emitter, nodes, name, 1)
    if len(items) != 1:
        raise Unsupported(f"its input '{name}' has {len(items)} elements, expected 1")
    return items[0]


def sizes_of(
    finds: Finds, nodes: Sequence[Node], name: str, count: int | None = None
) -> tuple[Size, ...]:
    """The elements of a tensor as sizes; unknown ones become dims of at least 0."""
    emitter = finds.emitter
    items = elements(emitter, nodes, name, count)
    open_indices = [index for index, item in enumerate(items) if not isinstance(item, Size)]
    if not open_indices:
        return tuple(item for item in items if isinstance(item, Size))
    dims = [finds.dim("size", 0, _max_value(emitter, items[index])) for index in open_indices]
    finds.find(gather_elements(finds, name, open_indices, len(items)), dims)
    for index, dim in zip(open_indices, dims):
        item = items[index]
        assert isinstance(item, tuple)
        emitter.elements[item] = dim
        items[index] = dim
    return tuple(item for item in items if isinstance(item, Size))


def _max_value(emitter: Emitter, item: Size | Element) -> int | None:
    """The maximum of the narrow type of an element; None for wide types."""
    assert isinstance(item, tuple)
    dtype = emitter.types[item[0]].dtype
    return dtype.range[1] if dtype.bits <= 16 else None


def gather_elements(emits: Emits, name: str, indices: Sequence[int], count: int) -> str:
    """Gather elements of an integer vector or scalar into an int64 vector; all without indices."""
    kind = emits.emitter.types[name]
    value = name if kind.dtype == int64 else emits.emit("cast", name, to=int64)
    if not indices:
        return value
    if kind.rank == 0 or kind.shape[0].constant is None:
        value = emits.emit("reshape", value, shape=(count,))
    if list(indices) == list(range(count)):
        return value
    return emits.emit("gather", value, vector(emits, indices), axis=0)


def scalar_size(finds: Finds, nodes: Sequence[Node], name: str, stem: str) -> Size:
    """A number used as a count: known, or a dim; negative run-time values count as 0."""
    item = element(finds.emitter, nodes, name)
    if isinstance(item, Size):
        return item
    dim = finds.dim(stem)
    value = gather_elements(finds, name, (0,), 1)
    finds.find(finds.emit("maximum", value, vector(finds, (0,))), (dim,))
    return dim
