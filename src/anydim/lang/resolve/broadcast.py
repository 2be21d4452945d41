"""Broadcasting: the sizes of ellipses that several parameters share.

The dimensions at each position must be equal or 1. What is undecided while sizes are symbolic
becomes a guard, and the result's size an expression that is right in every case.
"""

from __future__ import annotations

from anydim.lang.resolve.binding import Binding, spread_axes
from anydim.lang.tree import Axis
from anydim.sizes import Size, Truth, as_size, broadcast_distance, broadcast_size, prove


def broadcast(binding: Binding) -> None:
    """Set the extents of every ellipsis by broadcasting the dimensions at each position."""
    for name, axes in binding.ellipses.items():
        operands: list[list[tuple[str, Size]]] = [[] for _ in axes]
        for parameter in binding.definition.parameters:
            own_axes = spread_axes(binding, parameter, name)
            shape = binding.tensors[parameter.name].shape
            for offset, axis in enumerate(reversed(own_axes), start=1):
                operands[-offset].append((parameter.name, shape[axis]))
        binding.ellipses[name] = tuple(
            Axis(axis.name, _common_size(binding, name, sizes))
            for axis, sizes in zip(axes, operands)
        )


def _common_size(binding: Binding, ellipsis: str, operands: list[tuple[str, Size]]) -> Size:
    """The common size of several broadcast dimensions."""
    distinct: list[tuple[str, Size]] = []
    for tensor, size in operands:
        if size.constant != 1 and not any(binding.is_proved(size, "==", s) for _, s in distinct):
            distinct.append((tensor, size))
    if not distinct:
        return as_size(1)
    if len(distinct) == 1:
        return distinct[0][1]
    result = _wide(binding, [size for _, size in distinct])
    for position, (tensor, size) in enumerate(distinct):
        others = [(t, s) for t, s in distinct[:position] if result is None]
        if result is not None and size != result:
            others = [next((t, s) for t, s in distinct if s == result)]
        for other, other_size in others:
            _compatible(binding, ellipsis, (other, other_size), (tensor, size))
    if result is not None:
        return result
    return broadcast_size((size for _, size in distinct), binding.box)


def _wide(binding: Binding, sizes: list[Size]) -> Size | None:
    """One of these sizes that is never 1, hence the result; constants first."""
    ordered = sorted(sizes, key=lambda size: size.constant is None)
    for size in ordered:
        if prove(size, "==", 1, binding.box) is Truth.REFUTED:
            return size
    return None


def _compatible(
    binding: Binding, ellipsis: str, left: tuple[str, Size], right: tuple[str, Size]
) -> None:
    (a_name, a), (b_name, b) = left, right
    what = f"'...{ellipsis}': {a} of {a_name} and {b} of {b_name}"
    pairs = ((a, b), (a, as_size(1)), (b, as_size(1)))
    if all(prove(one, "==", other, binding.box) is Truth.REFUTED for one, other in pairs):
        position = binding.definition.position
        raise binding.error(position, f"cannot broadcast {what}")
    condition = broadcast_distance(a, b, binding.box)
    if not binding.is_proved(condition, "==", 0):
        binding.guard(condition, "==", as_size(0), f"can broadcast {what}")
