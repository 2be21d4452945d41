"""Texts of the operators that move blocks of places into channels and back."""

from __future__ import annotations

from anydim.base.errors import GraphError
from anydim.graph.operator import Attributes, Types, Written
from anydim.ops.writing import definition, expect_inputs, expect_rank
from anydim.sizes import Box, Guard, as_size


def depth_to_space(types: Types, attributes: Attributes, box: Box) -> Written:
    """Channels spread over blocks of places; the block is the outer part of a channel's number,
    or the inner one with `inner`."""
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
    """Blocks of places become channels; the place in the block is the outer part of a channel's
    number, or the inner one with `inner`."""
    block = _block("space_to_depth", types, attributes)
    guards = tuple(
        Guard(size, "==", size // block * block, "whole blocks of places")
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
