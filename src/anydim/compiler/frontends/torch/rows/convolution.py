"""Rows of convolutions, pooling and resampling of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from anydim.base.dtypes import float64, int64
from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import Build, Sizes, TorchBuilder
from anydim.compiler.frontends.torch.refusal import Refused
from anydim.sizes import Size, as_size, ceil_div, maximum, minimum, product

Numbers: TypeAlias = "int | Sequence[int]"


def convolution(
    g: TorchBuilder, x: Value, weight: Value, bias: Value | None, stride: Numbers,
    padding: Numbers, dilation: Numbers, transposed: bool, output_padding: Numbers, groups: int,
    *_: Any,
) -> Value:  # fmt: skip
    """x may come without a batch. Lists of one number stand for all axes."""
    rank = len(weight.shape) - 2
    if len(x.shape) == rank + 1:
        made = convolution(g, g.unsqueeze(x, axes=(0,)), weight, bias, stride, padding, dilation,
                           transposed, output_padding, groups)  # fmt: skip
        return g.squeeze(made, axes=(0,))
    stride, padding, dilation, output_padding = (
        per_axis(numbers, rank) for numbers in (stride, padding, dilation, output_padding)
    )
    if not transposed:
        attributes = {"strides": stride, "dilations": dilation, "pads": (*padding, *padding)}
        if groups > 1 and weight.shape[0].constant is None:
            return _by_group(g, x, weight, bias, groups, attributes)
        given = [x, weight] if bias is None else [x, weight, bias]
        return g.conv(*given, groups=groups, **attributes)
    sizes = tuple(
        (own - 1) * step - 2 * pad + spread * (kernel - 1) + more + 1
        for own, step, pad, spread, kernel, more in zip(
            x.shape[2:], stride, padding, dilation, weight.shape[2:], output_padding
        )
    )
    given = [x, weight] if bias is None else [x, weight, bias]
    return g.conv_transpose(*given, strides=stride, dilations=dilation, groups=groups,
                            before=padding, sizes=sizes)  # fmt: skip


def _by_group(
    g: TorchBuilder, x: Value, weight: Value, bias: Value | None, groups: int,
    attributes: dict[str, Any],
) -> Value:  # fmt: skip
    """A convolution of each group's channels, if their number is free."""
    outputs, inner = weight.shape[0], weight.shape[1]
    share = outputs // groups
    g.require(outputs, "==", share * groups, "the output channels are a multiple of the groups")
    g.require(x.shape[1], "==", inner * groups, "x has the channels of the weight in each group")

    def part(value: Value, axis: int, size: Size, group: int) -> Value:
        return g.slice(value, starts=(size * group,), ends=(size * (group + 1),), axes=(axis,))

    made = []
    for group in range(groups):
        given = [part(x, 1, inner, group), part(weight, 0, share, group)]
        given += [] if bias is None else [part(bias, 0, share, group)]
        made.append(g.conv(*given, groups=1, **attributes))
    return g.concat(*made, axis=1)


def per_axis(numbers: int | Numbers, rank: int) -> tuple[int, ...]:
    given = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    return given * rank if len(given) == 1 else given


# ---- pooling -----------------------------------------------------------------------------------


def to_batch(g: TorchBuilder, x: Value, rank: int) -> tuple[Value, tuple[Size, ...]]:
    """Reshapes x to [batch, channels, ...]; also returns its leading axes."""
    lead = x.shape[:-rank]
    if len(lead) == 2:
        return x, lead
    return g.reshape(x, shape=(1, product(lead), *x.shape[-rank:])), lead


def from_batch(g: TorchBuilder, value: Value, lead: tuple[Size, ...]) -> Value:
    if len(lead) == 2:
        return value
    return g.reshape(value, shape=(*lead, *value.shape[2:]))


def average_pool(rank: int) -> Build:
    def build(
        g: TorchBuilder, x: Value, kernel: Numbers, stride: Numbers = (), padding: Numbers = 0,
        ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:  # fmt: skip
        (x,) = g.to_working(x)
        own, lead = to_batch(g, x, rank)
        kernel, padding = per_axis(kernel, rank), per_axis(padding, rank)
        strides = per_axis(stride, rank) if stride else kernel
        whole = divisor_override and x.dtype.is_integer
        own = g.cast(own, to=float64) if whole else own
        if divisor_override and ceil_mode:  # zeros, so that every window is whole
            own = _pad_last_window(g, own, kernel, strides, padding)
        made = g.average_pool(
            own, kernel=kernel, strides=strides, pads=(*padding, *padding),
            ceil=ceil_mode and not divisor_override,
            count_padding=count_include_pad or bool(divisor_override),
        )  # fmt: skip
        if divisor_override:
            made = g.mul(made, float(math.prod(kernel)) / divisor_override)
        if whole:  # 2**-40: a rounded mean of integers stays above the quotient that it is
            made = g.trunc(g.mul(made, 1 + 2.0**-40))
        return from_batch(g, g.as_type(made, x.dtype), lead)

    return build


def _pad_last_window(
    g: TorchBuilder, x: Value, kernel: tuple[int, ...], strides: tuple[int, ...],
    padding: tuple[int, ...],
) -> Value:  # fmt: skip
    """Zero-pads x to the end of the last window of `ceil_mode`."""
    after: list[Size | int] = [0, 0]
    for size, width, step, pad in zip(x.shape[2:], kernel, strides, padding):
        count = minimum(ceil_div(size + 2 * pad - width, step) + 1, ceil_div(size + pad, step))
        after.append(maximum((count - 1) * step + width - size - 2 * pad, 0))
    return g.pad(x, before=(0,) * len(after), after=tuple(after))


def max_pool(rank: int, indices: bool = True) -> Build:
    """(largest elements, their indices in the plane of a channel)."""

    def build(
        g: TorchBuilder, x: Value, kernel: Numbers, stride: Numbers = (), padding: Numbers = 0,
        dilation: Numbers = 1, ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        own, lead = to_batch(g, x, rank)
        kernel, padding = per_axis(kernel, rank), per_axis(padding, rank)
        wanted = indices and g.is_used(1)
        made = g.max_pool(
            own, kernel=kernel, strides=per_axis(stride, rank) if stride else kernel,
            dilations=per_axis(dilation, rank), pads=(*padding, *padding), ceil=ceil_mode,
            indices=wanted,
        )  # fmt: skip
        if not wanted:
            return from_batch(g, made, lead)
        plane = g.scalar(product(own.shape[2:]), int64)
        places = g.mod(made[1], g.maximum(plane, 1))
        return [from_batch(g, made[0], lead), from_batch(g, places, lead)]

    return build


def adaptive_average(rank: int) -> Build:
    """Means of windows that cover the axis: an axis after the other, since windows are boxes."""

    def build(g: TorchBuilder, x: Value, sizes: Sizes) -> Value:
        (x,) = g.to_working(x)
        by_axis = {axis: as_size(size) for axis, size in enumerate(sizes, len(x.shape) - rank)}
        whole = tuple(axis for axis, size in by_axis.items() if size.constant == 1)
        if whole:
            x = g.reduce_mean(x, axes=whole, keepdims=True)
        for axis, size in by_axis.items():
            if not g.proved(x.shape[axis], "==", size):
                x = along(g, "adaptive_mean", x, axis, S=size)
        return x

    return build


def adaptive_max(rank: int) -> Build:
    """(largest elements of windows that cover the axes, their indices in a plane)."""

    def build(g: TorchBuilder, x: Value, sizes: Sizes) -> list[Value]:
        lead, plane = x.shape[:-rank], x.shape[-rank:]
        places = g.positions(product(plane))
        places = g.expand(g.reshape(places, shape=(*(1,) * len(lead), *plane)), shape=x.shape)
        for axis, size in reversed(list(enumerate(sizes, start=len(x.shape) - rank))):
            index = along(g, "adaptive_place", x, axis, S=as_size(size))
            x, places = (g.gather_elements(each, index, axis=axis) for each in (x, places))
        return [x, places]

    return build


def fractional_max(rank: int) -> Build:
    """(largest elements of windows at random distances, their indices in a plane)."""

    def build(
        g: TorchBuilder, x: Value, kernel: Numbers, sizes: Sizes, samples: Value
    ) -> list[Value]:
        lead, plane = x.shape[:-rank], x.shape[-rank:]
        kernel = per_axis(kernel, rank)
        rows = product(lead)
        samples = g.reshape(g.as_type(samples, x.dtype), shape=(rows, rank))
        columns = (1, 0) if rank == 2 else range(rank)  # torch has the sample of the width first
        starts = [
            _random_starts(g, size, width, as_size(count), samples, column)
            for size, width, count, column in zip(plane, kernel, sizes, columns)
        ]
        missing = 3 - rank
        starts = [g.fill_shape((rows, 1), 0, int64)] * missing + starts
        whole = g.reshape(x, shape=(rows, *(1,) * missing, *plane))
        widths = dict(zip("KLM", (*(1,) * missing, *kernel)))
        made = g.call_definition("max_of_boxes", whole, *starts, **widths)
        return [g.reshape(each, shape=(*lead, *sizes)) for each in made]

    return build


def _random_starts(
    g: TorchBuilder, size: Size, width: int, count: Size, samples: Value, column: int
) -> Value:
    """Where the windows of each row begin along an axis [rows, count]; the last ends with it."""
    dtype = samples.dtype
    sample = g.slice(samples, starts=(column,), ends=(column + 1,), axes=(1,))
    distance = g.div(g.scalar(size - width, dtype), g.scalar(maximum(count - 1, 1), dtype))
    place = g.positions(count)
    moved = g.mul(g.add(g.cast(place, to=dtype), sample), distance)
    made = g.sub(g.cast(moved, to=int64), g.cast(g.mul(sample, distance), to=int64))
    last = g.equal(place, g.scalar(count - 1, int64))
    return g.where(last, g.scalar(size - width, int64), made)


def along(g: TorchBuilder, name: str, x: Value, axis: int, **sizes: Size) -> Value:
    """Applies a definition of [rows, n, columns] along an axis."""
    before, after = product(x.shape[:axis]), product(x.shape[axis + 1 :])
    parts = g.reshape(x, shape=(before, x.shape[axis], after))
    made = g.call_definition(name, parts, **sizes)
    return g.reshape(made, shape=(*x.shape[:axis], made.shape[1], *x.shape[axis + 1 :]))


def max_unpool(rank: int) -> Build:
    def build(g: TorchBuilder, x: Value, indices: Value, sizes: Sizes, *_: Any) -> Value:
        """Elements at their places in a plane, 0 elsewhere."""
        lead = x.shape[:-rank]
        plane = product(sizes)
        flat = (product(lead), product(x.shape[-rank:]))
        zeros = g.fill_shape((flat[0], plane), 0, x.dtype)
        places, own = (g.reshape(each, shape=flat) for each in (indices, x))
        made = g.scatter_elements(zeros, places, own, axis=1, from_end=False)
        return g.reshape(made, shape=(*lead, *sizes))

    return build


# ---- resampling --------------------------------------------------------------------------------


def upsample(mode: str, coordinates: str = "half_pixel", **own: Any) -> Build:
    """Resample all axes after the channel. Scales decide coordinates if they are given."""

    def build(g: TorchBuilder, x: Value, sizes: Sizes, *rest: Any) -> Value:
        rank = len(sizes)
        corners, scales = _read_scales(rest, mode, rank)
        where = "align_corners" if corners else coordinates
        given = [None if scale is None else float(scale) for scale in scales]
        attributes: dict[str, Any] = {}
        if not corners and any(scale is not None for scale in given):
            if any(scale is None for scale in given):
                raise Refused("a scale for some axes only")
            attributes["scales"] = (1.0, 1.0, *given)
        (x,) = g.to_working(x) if x.dtype.is_float else (x,)
        return g.resize(
            x, sizes=(*x.shape[:2], *sizes), mode=mode, coordinates=where, **attributes, **own
        )

    return build


def _read_scales(rest: Sequence[Any], mode: str, rank: int) -> tuple[bool, list[Any]]:
    """(align_corners, scales) of the arguments after the sizes."""
    corners = mode != "nearest" and bool(rest[0])
    scales = list(rest[0 if mode == "nearest" else 1 :])
    if len(scales) == 1 and isinstance(scales[0], (list, tuple)):
        scales = list(scales[0])
    return corners, scales or [None] * rank


def grid_sample(
    g: TorchBuilder, x: Value, grid: Value, mode: int, padding: int, corners: bool
) -> Value:
    """Modes are numbers: bilinear, nearest, bicubic; zeros, border, reflection."""
    x, grid = g.to_working(x, grid)
    return g.grid_sample(
        x, grid, mode=("linear", "nearest", "cubic")[mode],
        padding=("zeros", "border", "reflection")[padding], corners=corners,
    )  # fmt: skip


def affine_grid(g: TorchBuilder, theta: Value, sizes: Sizes, corners: bool) -> Value:
    return g.affine_grid(theta, sizes=tuple(sizes[2:]), corners=corners)


def columns(
    g: TorchBuilder, x: Value, kernel: Numbers, dilation: Numbers, padding: Numbers, stride: Numbers
) -> Value:
    """Windows of an image as columns: [batch, channels * kernel, positions]."""
    own, lead = to_batch(g, x, 2)
    kernel, dilation, padding, stride = (
        per_axis(n, 2) for n in (kernel, dilation, padding, stride)
    )
    batch, channels, *_ = own.shape
    own = g.pad(own, before=(0, 0, *padding), after=(0, 0, *padding))
    for axis in (2, 3):
        own = _windows(g, own, axis, kernel[axis - 2], dilation[axis - 2], stride[axis - 2])
    # [batch, channels, rows, columns, kernel rows, kernel columns]
    rows, width = own.shape[2], own.shape[3]
    turned = g.transpose(own, perm=(0, 1, 4, 5, 2, 3))
    made = g.reshape(turned, shape=(batch, channels * math.prod(kernel), rows * width))
    return made if len(lead) == 2 else g.squeeze(made, axes=(0,))


def _windows(
    g: TorchBuilder, x: Value, axis: int, kernel: int, dilation: int, stride: int
) -> Value:
    """Windows along an axis; their elements become the last axis."""
    count = (x.shape[axis] - dilation * (kernel - 1) - 1) // stride + 1
    starts = g.mul(g.positions(count), stride)
    steps = g.mul(g.positions(kernel), dilation)
    made = g.gather(x, g.add(g.unsqueeze(starts, axes=(1,)), steps), axis=axis)
    rank = len(made.shape)
    return g.transpose(made, perm=(*range(axis + 1), *range(axis + 2, rank), axis + 1))


def image(
    g: TorchBuilder, x: Value, sizes: Sizes, kernel: Numbers, dilation: Numbers, padding: Numbers,
    stride: Numbers,
) -> Value:  # fmt: skip
    """The sum of columns at the places that they were taken from."""
    lead = x.shape[:-2]
    own = x if lead else g.unsqueeze(x, axes=(0,))
    kernel, dilation, padding, stride = (
        per_axis(n, 2) for n in (kernel, dilation, padding, stride)
    )
    batch, width, _ = own.shape
    counts = [
        (as_size(size) + 2 * pad - spread * (k - 1) - 1) // step + 1
        for size, pad, spread, k, step in zip(sizes, padding, dilation, kernel, stride)
    ]
    parts = g.reshape(own, shape=(batch, width // math.prod(kernel), *kernel, *counts))
    made = g.fold(
        parts, sizes=tuple(sizes), strides=stride, dilations=dilation, pads=(*padding, *padding)
    )
    return made if lead else g.squeeze(made, axes=(0,))


def channel_shuffle(g: TorchBuilder, x: Value, groups: int) -> Value:
    batch, channels, *rest = x.shape
    parts = g.reshape(x, shape=(batch, groups, channels // groups, *rest))
    turned = g.transpose(parts, perm=(0, 2, 1, *range(3, len(rest) + 3)))
    return g.reshape(turned, shape=x.shape)


_NEAREST = {"coordinates": "asymmetric", "rounding": "floor"}
_SMOOTH: dict[str, Any] = {"antialias": True, "exclude_outside": True}
_EXACT = {"coordinates": "half_pixel", "rounding": "round_prefer_ceil"}

ROWS: dict[str, Build] = {
    "convolution.default": convolution,
    "_convolution.default": convolution,
    **{f"avg_pool{n}d.default": average_pool(n) for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices.default": max_pool(n) for n in (1, 2, 3)},
    **{f"max_pool{n}d.default": max_pool(n, indices=False) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d.default": adaptive_average(n) for n in (1, 2, 3)},
    **{f"_adaptive_avg_pool{n}d.default": adaptive_average(n) for n in (2, 3)},
    **{f"adaptive_max_pool{n}d.default": adaptive_max(n) for n in (1, 2, 3)},
    **{f"fractional_max_pool{n}d.default": fractional_max(n) for n in (2, 3)},
    **{f"max_unpool{n}d.default": max_unpool(n) for n in (2, 3)},
    **{f"upsample_nearest{n}d.default": upsample("nearest", **_NEAREST) for n in (1, 2, 3)},
    **{f"_upsample_nearest_exact{n}d.default": upsample("nearest", **_EXACT) for n in (1, 2, 3)},
    "upsample_linear1d.default": upsample("linear"),
    "upsample_bilinear2d.default": upsample("linear"),
    "upsample_trilinear3d.default": upsample("linear"),
    "upsample_bicubic2d.default": upsample("cubic"),
    "_upsample_bilinear2d_aa.default": upsample("linear", **_SMOOTH),
    "_upsample_bicubic2d_aa.default": upsample("cubic", cubic=-0.5, **_SMOOTH),
    "grid_sampler_2d.default": grid_sample, "grid_sampler_3d.default": grid_sample,
    "affine_grid_generator.default": affine_grid,
    "im2col.default": columns, "col2im.default": image,
    "channel_shuffle.default": channel_shuffle,
    "native_channel_shuffle.default": channel_shuffle,
}  # fmt: skip
