"""The row of `convolution_backward`: the gradients of a convolution by x, weight and bias.

With dy the gradient of y, along one axis and without groups:

    y(n,m,o)  +=! x(n,c, o * stride + k * dilation - padding) * w(m,c,k)
    dx(n,c,i) +=! dy(n,m,o) * w(m,c,k)     where i == o * stride + k * dilation - padding
    dw(m,c,k) +=! dy(n,m,o) * x(n,c, o * stride + k * dilation - padding)
    db(m)     +=! dy(n,m,o)

dx is the transposed convolution of dy. The gradient of a transposed convolution by x is the
convolution of dy; by the weight, it is dw with x and dy exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import Build, TorchBuilder
from anydim.compiler.frontends.torch.refusal import Refused
from anydim.compiler.frontends.torch.rows.convolution import Numbers, convolution, per_axis
from anydim.lang.surface.parser import parse_definition
from anydim.lang.surface.syntax import Definition
from anydim.sizes import as_size


def convolution_backward(
    g: TorchBuilder, dy: Value, x: Value, weight: Value, bias_sizes: object, stride: Numbers,
    padding: Numbers, dilation: Numbers, transposed: bool, output_padding: Numbers, groups: int,
    mask: Sequence[bool],
) -> list[Value | None]:  # fmt: skip
    """(dx [batch, channels, ...] as x, dw as weight, db [channels]); `mask`: which are needed."""
    rank = len(weight.shape) - 2
    stride, padding, dilation = (per_axis(numbers, rank) for numbers in (stride, padding, dilation))
    by_x = by_weight = by_bias = None
    if mask[0]:
        by_x = _by_x(g, dy, x, weight, stride, padding, dilation, transposed, groups)
    if mask[1]:
        inner, outer = (dy, x) if transposed else (x, dy)
        by_weight = _by_weight(g, outer, inner, weight, stride, padding, dilation, groups)
    if mask[2]:
        by_bias = g.reduce_sum(dy, axes=(0, *range(2, rank + 2)))
    return [by_x, by_weight, by_bias]


def _by_x(
    g: TorchBuilder, dy: Value, x: Value, weight: Value, stride: tuple[int, ...],
    padding: tuple[int, ...], dilation: tuple[int, ...], transposed: bool, groups: int,
) -> Value:  # fmt: skip
    if not transposed:
        return g.conv_transpose(dy, weight, strides=stride, dilations=dilation, groups=groups,
                                before=padding, sizes=x.shape[2:])  # fmt: skip
    made = convolution(g, dy, weight, None, stride, padding, dilation, False, 0, groups)
    for axis, (found, size) in enumerate(zip(made.shape[2:], x.shape[2:]), start=2):
        if not g.proved(found, "==", size):  # an output padding of a stride or more
            made = g.slice(made, starts=(0,), ends=(size,), axes=(axis,))
    return made


def _by_weight(
    g: TorchBuilder, outer: Value, inner: Value, weight: Value, stride: tuple[int, ...],
    padding: tuple[int, ...], dilation: tuple[int, ...], groups: int,
) -> Value:  # fmt: skip
    """`outer` has the channels of the weight's first axis, `inner` those of the second."""
    rank = len(weight.shape) - 2
    sizes = {f"W{axis}": size for axis, size in enumerate(weight.shape[2:])}
    sizes |= {f"P{axis}": as_size(number) for axis, number in enumerate(padding)}
    if groups == 1:
        return g.call(_definition(rank, stride, dilation, ""), outer, inner, **sizes)
    channels, width = weight.shape[0].constant, weight.shape[1].constant
    if channels is None or width is None or channels % groups:
        raise Refused(f"{weight.shape[0]} channels in {groups} groups")
    share = channels // groups
    block = "m" if share == 1 else f"m // {share}"
    channel = block if width == 1 else f"({block}) * {width} + c"
    definition = _definition(rank, stride, dilation, channel)
    return g.call(definition, outer, inner, C=weight.shape[1], **sizes)


@cache
def _definition(
    rank: int, stride: tuple[int, ...], dilation: tuple[int, ...], channel: str
) -> Definition:
    """The gradient by the weight; `channel`: that of `x` for m and c, "" without groups."""
    axes = range(rank)
    places = [
        f"{_times(f'o{axis}', stride[axis])} + {_times(f'k{axis}', dilation[axis])} - P{axis}"
        for axis in axes
    ]
    results = [f"Y{axis}" for axis in axes]
    inner = [f"X{axis}" for axis in axes]
    steps = [f"k{axis}" for axis in axes]
    sizes = [*(["C"] if channel else []), *(f"{word}{axis}" for word in "WP" for axis in axes)]
    ranges = ", ".join(f"k{axis} in 0:W{axis}" for axis in axes)
    text = f"""def convolution_weight_gradient(
  T(N,M,{",".join(results)}) dy, T(N,{"Z" if channel else "C"},{",".join(inner)}) x;
  {", ".join(f"size {size}" for size in sizes)}) -> (dw)
{{
  dw(m,c,{",".join(steps)}) +=! dy(n,m,{",".join(f"o{axis}" for axis in axes)})
    * (x(n,{channel or "c"},{", ".join(places)}) else 0) where c in 0:C, {ranges}
}}
"""
    return parse_definition(text, "convolution_weight_gradient")


def _times(index: str, number: int) -> str:
    return index if number == 1 else f"{index} * {number}"


ROWS: dict[str, Build] = {"convolution_backward.default": convolution_backward}
