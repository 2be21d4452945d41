"""Operators that other families lack: writes at indices, transforms, optimisers, places."""

from __future__ import annotations

import anydim as ad
from anydim.base.dtypes import bfloat16, boolean, float8_e4m3fn, float8_e5m2
from anydim.compiler.frontends.builder import Value
from anydim.sizes import as_size
from tests.fuzz.maker import Domain, Maker
from tests.fuzz.positions import index

REDUCTIONS = ("none", "none", "add", "mul", "max", "min")
SAME_WIDTH = {
    ad.float32: (ad.int32, ad.uint32), ad.int32: (ad.float32,), ad.int64: (ad.float64,),
    ad.float64: (ad.int64,), boolean: (ad.uint8,), ad.int8: (ad.uint8,), ad.uint8: (ad.int8,),
    ad.float16: (ad.int16, bfloat16), bfloat16: (ad.int16,), ad.int16: (ad.uint16,),
}  # fmt: skip


def acosh(m: Maker) -> Value:
    return m.builder.acosh(m.builder.abs(m.float()) + 1.2)


def bits(m: Maker) -> Value | None:
    """Bits of integers, or of booleans."""
    g, x = m.builder, m.pick(lambda v: v.dtype.is_integer or v.dtype == boolean)
    if x is None:
        return None
    kind = "logical" if x.dtype == boolean else "bit"
    y = m.mate(x)
    return m.keep_exact(getattr(g, f"{kind}_{m.one(('and', 'or', 'xor'))}")(x, y), x, y)


def bit_cast(m: Maker) -> Value | None:
    """Of what rounding cannot move; floats made of any bits are read as bits again alone."""
    x = m.pick(lambda v: v.name in m.exact and v.dtype in SAME_WIDTH)
    if x is None or m.specials:
        return None
    to = m.one(SAME_WIDTH[x.dtype])
    made = m.keep_exact(m.builder.bit_cast(x, to=to), x)
    if not to.is_float:
        return made
    return m.keep_exact(m.builder.bit_cast(made, to=x.dtype), x)


def cast_saturated(m: Maker) -> Value | None:
    """Of exact numbers through 8 bits and back."""
    x = m.pick(lambda v: v.name in m.exact and v.dtype == ad.float32)
    if x is None:
        return None
    narrow = m.builder.cast_saturated(x, to=m.one((float8_e4m3fn, float8_e5m2)))
    return m.keep_exact(m.builder.cast(narrow, to=ad.float32), x)


def counted(m: Maker) -> Value:
    """Numbers that an axis counts, each of which stays what it is."""
    extent = m.size()
    x = index(m, m.shape(0, 2), extent, ad.int64)
    m.domains[x.name] = Domain("index", extent)
    return m.keep_exact(m.builder.counted(x, count=extent), x)


def scatter_elements(m: Maker) -> Value | None:
    x = m.pick(lambda v: 1 <= len(v.shape) <= 3 and v.dtype != boolean)
    if x is None:
        return None
    axis = m.random.randrange(len(x.shape))
    shape = list(x.shape)
    shape[axis] = m.one((as_size(1), as_size(3), x.shape[axis]))
    places, updates = index(m, tuple(shape), x.shape[axis]), m.make(shape, x.dtype)
    made = m.builder.scatter_elements(x, places, updates, axis=axis, reduction=_reduction(m, x))
    return m.keep_exact(made, x, updates)


def scatter_nd(m: Maker) -> Value | None:
    x = m.pick(lambda v: 1 <= len(v.shape) <= 3 and v.dtype != boolean)
    if x is None:
        return None
    depth, outer = m.random.randint(1, min(2, len(x.shape))), m.shape(1, 1)
    places = [
        m.builder.unsqueeze(index(m, outer, e, ad.int64), axes=(-1,)) for e in x.shape[:depth]
    ]
    joined = m.builder.concat(*places, axis=1) if depth > 1 else places[0]
    updates = m.make((*outer, *x.shape[depth:]), x.dtype)
    made = m.builder.scatter_nd(x, joined, updates, reduction=_reduction(m, x))
    return m.keep_exact(made, x, updates)


def _reduction(m: Maker, x: Value) -> str:
    """Sums of floats are no longer exact."""
    return str(m.one(("none", "max", "min") if x.dtype.is_float else REDUCTIONS))


def tensor_scatter(m: Maker) -> Value:
    """New rows of a cache that goes round."""
    batch, rows, dtype = m.size(), m.one((3, 8, 17)), m.float_type()
    width = m.size()
    cache, new = m.make((batch, rows, width), dtype), m.make((batch, m.one((1, 3)), width), dtype)
    places = index(m, (batch,), as_size(rows), ad.int64)
    m.domains[places.name] = Domain("index", as_size(rows))
    made = m.builder.tensor_scatter(cache, places, new, axis=1, circular=True)
    return m.keep_exact(made, cache, new)


def reverse_sequence(m: Maker) -> Value | None:
    x = m.pick(lambda v: 2 <= len(v.shape) <= 4)
    if x is None:
        return None
    time, batch = m.random.sample(range(2), 2)
    lengths = index(m, (x.shape[batch],), x.shape[time] + 1, ad.int64)
    m.domains[lengths.name] = Domain("index", x.shape[time] + 1)
    return m.keep_exact(m.builder.reverse_sequence(x, lengths, time=time, batch=batch), x)


def rotary(m: Maker) -> Value:
    batch, rows, half, dtype = m.size(), m.size(), m.one((1, 2, 4, 8, 17)), ad.float32
    x = m.make((batch, m.one((1, 2, 3)), rows, 2 * half + m.one((0, 0, 3))), dtype)
    angles = m.make((batch, rows, half), dtype)
    return m.builder.rotary_embedding(
        x, m.builder.cos(angles), m.builder.sin(angles), interleaved=m.chance(0.4), width=2 * half
    )


def det(m: Maker) -> Value:
    rank = m.one((0, 1, 2, 3))
    return m.builder.det(m.make((*m.shape(0, 2), rank, rank), ad.float32))


def dft(m: Maker) -> Value | None:
    """Of real or complex numbers along the axis before the last.

    Of finite ones: how far a NaN spreads depends on the factors of the length.
    """
    if m.specials:
        return None
    length, inverse = m.one((1, 2, 5, 8, 17)), m.chance(0.4)
    x = m.make((m.size(), m.size(), 2 if inverse else m.one((1, 2))), ad.float32)
    onesided = not inverse and x.shape[2].constant == 1 and m.chance(0.5)
    return m.builder.dft(x, length=length, axis=1, inverse=inverse, onesided=onesided)


def window(m: Maker) -> Value:
    return m.builder.cosine_window(size=m.size(), periodic=m.chance(0.5))


def fold(m: Maker) -> Value:
    """Windows of a picture put back; as many as there are."""
    high, wide, kernel, stride = m.one((4, 7)), m.one((5, 8)), m.one((1, 2, 3)), m.one((1, 2))
    counts = [(size - kernel) // stride + 1 for size in (high, wide)]
    x = m.make((m.size(), m.size(), kernel, kernel, *counts), ad.float32)
    return m.builder.fold(x, sizes=(high, wide), strides=(stride, stride))


def affine_grid(m: Maker) -> Value:
    sizes = (m.size(), m.size())
    return m.builder.affine_grid(
        m.make((m.size(), 2, 3), ad.float32), sizes=sizes, corners=m.chance(0.5)
    )


def deform_conv(m: Maker) -> Value:
    """Moved by little, so that no read leaves its pixels for others by rounding alone."""
    g, kernel, channels = m.builder, m.one((1, 3)), m.one((1, 2, 4))
    batch, high, wide = m.size(), m.one((3, 5, 8)), m.one((4, 7))
    x = m.make((batch, channels, high, wide), ad.float32)
    w = m.constant((m.one((1, 3, 8)), channels, kernel, kernel), ad.float32)
    shape = (batch, 2 * kernel * kernel, high - kernel + 1, wide - kernel + 1)
    moved = g.tanh(m.make(shape, ad.float32)) * 0.9
    return g.deform_conv(x, w, moved)


def training(m: Maker) -> tuple[Value, ...]:
    """A step of an optimiser."""
    x = m.float(0, 3)
    rate, count = m.scalar(x.dtype, 0.1), m.builder.constant(m.one((0, 1, 7)))
    gradient, speed, square = (m.make(x.shape, x.dtype) for _ in range(3))
    kind = m.one(("adagrad", "adam", "momentum"))
    states = {"adagrad": [m.builder.abs(square)], "momentum": [speed],
              "adam": [speed, m.builder.abs(square)]}[kind]  # fmt: skip
    more = {} if kind == "momentum" else {"epsilon": 0.01}
    return tuple(getattr(m.builder, kind)(rate, count, x, gradient, *states, norm=0.1, **more))


FAMILY = (
    (0.4, acosh), (0.5, bits), (0.4, bit_cast), (0.3, cast_saturated), (0.3, counted),
    (0.6, scatter_elements), (0.6, scatter_nd), (0.4, tensor_scatter), (0.4, reverse_sequence),
    (0.4, rotary), (0.3, det), (0.3, dft), (0.2, window), (0.3, fold), (0.3, affine_grid),
    (0.3, deform_conv), (0.3, training),
)  # fmt: skip
