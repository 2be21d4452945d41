"""TC texts of the operators that move blocks of pixels to channels and back."""

from __future__ import annotations

from anydim.base.errors import GraphError
from anydim.compiler.graph.operator import Attributes, Types, Written
from anydim.compiler.ops.writing import (
    declared,
    definition,
    expect_inputs,
    expect_rank,
    numbered,
    pads_of,
    parameter,
    ranges,
    read,
    steps_of,
    target,
)
from anydim.sizes import Box, Guard, as_size


def depth_to_space(types: Types, attributes: Attributes, box: Box) -> Written:
    """Move channels to blocks of pixels; the offset in the block is the outer part of a channel.

    With `inner` it is the inner part.
    """
    block = _block("depth_to_space", types, attributes)
    channels = types[0].shape[1]
    count = channels // (block * block)
    guard = Guard(channels, "==", count * (block * block), "whole blocks of channels")
    part = f"(h % {block}) * {block} + w % {block}"
    channel = f"c * {block * block} + {part}" if attributes["inner"] else f"({part}) * D + c"
    body = (
        f"y(n,c,h,w) = x(n, {channel}, h // {block}, w // {block})"
        f" where n in 0:N, c in 0:D, h in 0:H * {block}, w in 0:W * {block}"
    )
    text = definition("depth_to_space", ["T(N,C,H,W) x"], [body], ["size D"])
    return Written(text, {"D": count}, (guard,))


def space_to_depth(types: Types, attributes: Attributes, box: Box) -> Written:
    """Move blocks of pixels to channels; the offset in the block is the outer part of a channel.

    With `inner` it is the inner part.
    """
    block = _block("space_to_depth", types, attributes)
    guards = tuple(
        Guard(size, "==", size // block * block, "whole blocks of pixels")
        for size in types[0].shape[2:]
    )
    area = block * block
    channel, part = (f"c // {area}", f"c % {area}") if attributes["inner"] else ("c % C", "c // C")
    body = (
        f"y(n,c,h,w) = x(n, {channel}, h * {block} + ({part}) // {block},"
        f" w * {block} + ({part}) % {block})"
        f" where n in 0:N, c in 0:C * {area}, h in 0:H // {block}, w in 0:W // {block}"
    )
    return Written(definition("space_to_depth", ["T(N,C,H,W) x"], [body]), guards=guards)


def _block(name: str, types: Types, attributes: Attributes) -> int:
    expect_inputs(name, types, 1, 1)
    expect_rank(name, types[0], 4, "x")
    block = as_size(attributes["block"]).constant
    if block is None or block < 1:
        raise GraphError(f"operator '{name}': block {attributes['block']}, expected a number > 0")
    return block


def fold(types: Types, attributes: Attributes, box: Box) -> Written:
    """Sum of the windows x[n, c, k..., o...], each added back at the pixels a pool would read.

    `sizes` are the sizes of the result. `pads` count before, then after the axes; they are dropped.
    """
    expect_inputs("fold", types, 1, 1)
    sizes = [as_size(size) for size in attributes["sizes"]]
    rank = len(sizes)
    expect_rank("fold", types[0], 2 + 2 * rank, "x")
    strides, dilations = (
        steps_of("fold", attributes, key, rank) for key in ("strides", "dilations")
    )
    pads = pads_of("fold", attributes["pads"], rank)
    guards = []
    outer, steps, positions, conditions = numbered("o", rank), numbered("k", rank), [], []
    for axis, (stride, dilation) in enumerate(zip(strides, dilations)):
        kernel, count = types[0].shape[2 + axis], types[0].shape[2 + rank + axis]
        slack = sizes[axis] + pads[axis] + pads[rank + axis] - (kernel - 1) * dilation - 1
        guards.append(Guard(slack // stride + 1, "==", count, f"windows along axis {axis}"))
        position = f"(o{axis} + {pads[axis]} - k{axis} * {dilation})"
        conditions += [] if stride == 1 else [f"{position} % {stride} == 0"]
        positions.append(position if stride == 1 else f"{position} // {stride}")
    value = f"({read('x', ['n', 'c', *steps, *positions])} else 0)"
    if conditions:
        value = f"({' && '.join(conditions)} ? {value} : 0)"
    where = ranges([
        ("n", "N"), ("c", "C"), *zip(outer, numbered("S", rank)), *zip(steps, numbered("K", rank)),
    ])  # fmt: skip
    own = parameter("x", ["N", "C", *numbered("K", rank), *numbered("O", rank)])
    body = f"{target('y', ['n', 'c', *outer])} +=! {value}{where}"
    text = definition("fold", [own], [body], declared(numbered("S", rank)))
    values = {f"S{axis}": size for axis, size in enumerate(sizes)}
    return Written(text, values, tuple(guards))
