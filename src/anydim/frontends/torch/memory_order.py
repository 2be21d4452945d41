"""The order in which the elements of a tensor of torch lie in memory, by its traced strides."""

from __future__ import annotations

from typing import Any

import torch

from anydim.frontends.torch.refusal import Refused


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


def _hint(size: Any) -> int | None:
    """The size in the traced call; None if data decide it."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    found = size.node.expr.xreplace(size.node.shape_env.backed_var_to_val)
    return int(found) if found.is_number else None
