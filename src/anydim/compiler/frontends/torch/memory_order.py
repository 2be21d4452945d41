"""The order in which the elements of a tensor of torch lie in memory, by its traced strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from anydim.base.records import dataclass
from anydim.compiler.frontends.torch.refusal import Refused
from anydim.compiler.frontends.torch.sizes import size_of
from anydim.sizes import Size


def memory_order(traced: Any) -> tuple[int, ...]:
    """The axes of a traced tensor from the outermost in memory to the innermost.

    Raises Refused for a tensor that shares elements, or skips some: its memory is that of another.
    """
    hints = [(_hint(size), _hint(stride)) for size, stride in zip(traced.shape, traced.stride())]
    sizes = [size for size, stride in hints if size is not None and stride is not None]
    strides = [stride for size, stride in hints if size is not None and stride is not None]
    if len(sizes) < len(hints):
        return tuple(range(len(hints)))
    order = tuple(sorted(range(len(sizes)), key=lambda axis: (-strides[axis], axis)))
    expected = 1
    for axis in reversed(order):
        if sizes[axis] > 1 and strides[axis] != expected:
            raise Refused("elements by strides of a tensor that is a view")
        expected *= max(sizes[axis], 1)
    if _hint(traced.storage_offset()) not in (0, None):
        raise Refused("elements by strides of a tensor that is a view")
    return order


@dataclass(frozen=True)
class Gaps:
    """Strides of a tensor that skips elements; `places` are (placeholder, axis) of the symbols in
    them: an axis of a tensor, or None for a number."""

    strides: tuple[Size | int, ...]
    places: Mapping[str, tuple[int, int | None]]

    def lay_out(self, tensor: torch.Tensor, arguments: Sequence[Any]) -> torch.Tensor:
        """A copy of a tensor with the strides for the arguments of a call."""
        sizes = {name: arguments[place] if axis is None else arguments[place].shape[axis]
                 for name, (place, axis) in self.places.items()}  # fmt: skip
        strides = [each if isinstance(each, int) else each.evaluate(sizes) for each in self.strides]
        made = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype)
        return made.copy_(tensor)


def memory_gaps(node: torch.fx.Node) -> Gaps:
    """The gaps of a computed tensor that skips elements. Raises Refused if it shares elements."""
    traced = node.meta["val"]
    hints = [(_hint(stride), _hint(size)) for size, stride in zip(traced.shape, traced.stride())]
    least = 1
    for stride, size in sorted(hints, key=lambda pair: (pair[0] or 0, pair[1] or 0)):
        if stride is None or size is None or (size > 1 and stride < least):
            raise Refused("elements by strides of a tensor that shares them")
        least = max(least, stride * size)
    places = _symbol_places(node.graph)
    known = {name: Size.symbol(name) for name in places}
    strides = [size_of(each.node.expr, known) if isinstance(each, torch.SymInt) else int(each)
               for each in traced.stride()]  # fmt: skip
    used = {name for each in strides if isinstance(each, Size) for name in each.symbols}
    return Gaps(tuple(strides), {name: places[name] for name in used})


def _symbol_places(graph: torch.fx.Graph) -> dict[str, tuple[int, int | None]]:
    """Where the placeholders of a graph have the symbols of sizes: the placeholder and its axis."""
    found: dict[str, tuple[int, int | None]] = {}
    given = (node.meta.get("val") for node in graph.nodes if node.op == "placeholder")
    for place, value in enumerate(given):
        parts: list[tuple[int | None, Any]] = [(None, value)]
        if isinstance(value, torch.Tensor):
            parts = list(enumerate(value.shape))
        for axis, size in parts:
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                found.setdefault(size.node.expr.name, (place, axis))
    return found


def _hint(size: Any) -> int | None:
    """The size in the traced call; None if data decide it."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    found = size.node.expr.xreplace(size.node.shape_env.backed_var_to_val)
    return int(found) if found.is_number else None
