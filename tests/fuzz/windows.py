"""Random convolutions, pools, resized grids, blocks of places, running sums, places of extremes."""

from __future__ import annotations

from typing import Any

import anydim as ad
from anydim.base.dtypes import boolean
from anydim.compiler.frontends.builder import Value
from anydim.sizes import Size, Truth, as_size, maximum, prove
from tests.fuzz.maker import Maker


def image(m: Maker, rank: int = 0) -> Value:
    """[batch, channels, places...] with a constant number of channels."""
    rank = rank or m.random.choice((3, 4, 4))
    found = m.pick(
        lambda v: v.dtype.is_float and len(v.shape) == rank and 0 < (v.shape[1].constant or 0) <= 16
    )
    if found is not None:
        return found
    channels = as_size(m.one((1, 2, 3, 4, 6, 8)))
    shape = (m.size(), channels, *(m.size() for _ in range(rank - 2)))
    return m.input(shape, m.float_type())


def window(m: Maker, rank: int, widest: int = 3) -> dict[str, Any]:
    """Attributes of a window over `rank` axes: strides, dilations and pads."""
    attributes: dict[str, Any] = {}
    if m.chance(0.4):
        attributes["strides"] = tuple(m.random.randint(1, 3) for _ in range(rank))
    if m.chance(0.25):
        attributes["dilations"] = tuple(m.random.randint(1, 2) for _ in range(rank))
    if m.chance(0.3):
        attributes["pads"] = m.one(("same_upper", "same_lower", "valid"))
    elif m.chance(0.7):
        attributes["pads"] = tuple(m.random.randint(0, widest - 1) for _ in range(2 * rank))
    return attributes


def conv(m: Maker) -> Value:
    """A convolution: grouped, depthwise or plain, with a bias and an activation perhaps."""
    x = image(m)
    rank, channels = len(x.shape) - 2, x.shape[1].constant or 1
    groups = m.one([g for g in (1, 1, channels) if channels % g == 0])
    outputs = groups * m.one((1, 2, 3)) if groups > 1 else m.one((1, 3, 8, 17))
    kernel = [m.random.randint(1, 3) for _ in range(rank)]
    operands = [x, m.make([as_size(s) for s in (outputs, channels // groups, *kernel)], x.dtype)]
    if m.chance(0.5):
        operands.append(m.make((as_size(outputs),), x.dtype))
    y = m.builder.conv(*operands, groups=groups, **window(m, rank))
    if m.chance(0.4):
        y = getattr(m.builder, m.one(("relu", "swish", "hard_swish")))(y)
    return y + x if y.shape == x.shape and m.chance(0.6) else y


def conv_transpose(m: Maker) -> Value:
    x = image(m)
    rank, channels = len(x.shape) - 2, x.shape[1].constant or 1
    groups = m.one([g for g in (1, 1, 2) if channels % g == 0])
    kernel = [m.random.randint(1, 3) for _ in range(rank)]
    strides = tuple(m.random.randint(1, 2) for _ in range(rank))
    before = tuple(m.random.randint(0, k - 1) for k in kernel)
    sizes = tuple(
        maximum((n - 1) * s + k - b, 0) for n, s, k, b in zip(x.shape[2:], strides, kernel, before)
    )
    w = m.make([as_size(s) for s in (channels, m.one((1, 2, 5)), *kernel)], x.dtype)
    return m.builder.conv_transpose(
        x, w, strides=strides, before=before, sizes=sizes, groups=groups
    )


def pool(m: Maker) -> Value:
    x = image(m)
    rank = len(x.shape) - 2
    kernel = tuple(m.random.randint(1, 3) for _ in range(rank))
    attributes = {**window(m, rank, min(kernel)), "kernel": kernel, "ceil": m.chance(0.25)}
    name = m.one(("max_pool", "average_pool", "average_pool", "lp_pool"))
    if name == "average_pool":
        attributes["count_padding"] = m.chance(0.4)
    made = getattr(m.builder, name)(x, **attributes)
    return m.keep_exact(made, x) if name == "max_pool" else made


def never_empty(m: Maker, x: Value) -> bool:
    """Whether x has elements at every size."""
    return all(prove(size, ">=", 1, m.builder._box) is Truth.PROVED for size in x.shape)


def resize(m: Maker) -> Value | None:
    x = image(m)
    if not never_empty(m, x):
        return None
    sizes: list[Size] = list(x.shape[:2])
    for own in x.shape[2:]:
        sizes.append(m.one((own * 2, own * 2, own * 3, m.size(), own)))
    mode = m.one(("nearest", "nearest", "linear", "cubic"))
    attributes: dict[str, Any] = {"mode": mode, "sizes": tuple(sizes)}
    attributes["coordinates"] = m.one(
        ("asymmetric", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners")
    )
    if mode == "nearest":
        attributes["rounding"] = m.one(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    else:
        attributes["exclude_outside"] = m.chance(0.3)
    made = m.builder.resize(x, **attributes)
    return m.keep_exact(made, x) if mode == "nearest" else made


def grid_sample(m: Maker) -> Value | None:
    """x at places that an input says, outside as well; only numbers are places."""
    x = image(m)
    if m.specials:
        return None
    rank = len(x.shape) - 2
    places = (x.shape[0], *(m.size() for _ in range(rank)), as_size(rank))
    grid = m.input(places, ad.float32)
    mode = m.one(("nearest", "linear", "linear", "cubic"))
    padding = m.one(("zeros", "border", "reflection")) if never_empty(m, x) else "zeros"
    made = m.builder.grid_sample(x, grid, mode=mode, padding=padding, corners=m.chance(0.5))
    return m.keep_exact(made, x) if mode == "nearest" else made


def blocks(m: Maker) -> Value:
    """Channels to places or back."""
    g, block = m.builder, m.one((2, 2, 3))
    if m.chance(0.5):
        shape = (m.size(), as_size(block * block * m.one((1, 2))), m.size(), m.size())
        x = m.input(shape, ad.float32)
        return m.keep_exact(g.depth_to_space(x, block=block, inner=m.chance(0.5)), x)
    shape = (m.size(), as_size(m.one((1, 3))), m.size() * block, m.size() * block)
    x = m.input(shape, ad.float32)
    return m.keep_exact(g.space_to_depth(x, block=block, inner=m.chance(0.5)), x)


def channel_norm(m: Maker) -> Value:
    x = image(m)
    if m.chance(0.4):
        return m.builder.local_response_norm(x, count=m.one((1, 2, 3, 5)), alpha=0.1)
    scale, bias = (m.make((x.shape[1],), x.dtype) for _ in range(2))
    return m.builder.instance_norm(x, scale, bias)


def running(m: Maker) -> Value:
    x = m.pick(lambda v: v.dtype != boolean and 1 <= len(v.shape) <= 3)
    if x is None:
        x = m.input(m.shape(1, 3), ad.float32)
    made = m.builder.cum_sum(
        x, axis=m.random.randrange(len(x.shape)), exclusive=m.chance(0.4), reverse=m.chance(0.4)
    )
    return m.keep_exact(made, x) if x.dtype.is_integer else made


def extreme(m: Maker) -> Value | None:
    """The place of the largest or smallest element; only where rounding moves nothing."""
    x = m.pick(lambda v: v.name in m.exact and v.dtype != boolean and 1 <= len(v.shape) <= 4)
    if x is None:
        return None
    axis = m.random.randrange(len(x.shape))
    if m.chance(0.25):
        return m.keep_exact(m.builder.hardmax(x, axis=axis), x)
    name = m.one(("arg_max", "arg_min"))
    made = getattr(m.builder, name)(x, axis=axis, keepdims=m.chance(0.5), last=m.chance(0.3))
    return m.keep_exact(made, x)


def eye(m: Maker) -> Value:
    made = m.builder.eye(
        rows=m.size(), columns=m.size(), k=m.random.randint(-2, 2),
        dtype=m.one((ad.float32, ad.int64)),
    )  # fmt: skip
    m.exact.add(made.name)
    return made
