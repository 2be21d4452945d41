"""Random variations of what models are made of: attention, normalisation, gelu, pooling, gates."""

from __future__ import annotations

import math

import anydim as ad
from anydim.compiler.frontends.builder import Value
from anydim.sizes import Size, as_size
from tests.fuzz.maker import Domain, Maker


def attention(m: Maker) -> Value | tuple[Value, ...]:
    """Scores, a mask perhaps, softmax, weighted sum; heads, layouts and lengths vary."""
    g = m.builder
    batch, heads = m.size(), m.one((as_size(1), as_size(2), as_size(3), m.size()))
    queries, keys = m.size(), m.size()
    depth, width = as_size(m.one((4, 8, 16, 20, 32))), as_size(m.one((8, 16, 17)))
    if m.chance(0.5):
        queries, width = keys, depth
    if m.chance(0.1):
        depth = m.size()
    dtype = m.float_type()
    q = head(m, batch, queries, heads, depth, dtype)
    k = head(m, batch, keys, heads, depth, dtype)
    v = head(m, batch, keys, heads, width, dtype)
    scores = g.matmul(q, g.transpose(k, perm=(0, 1, 3, 2)))
    scores = scaled(m, scores, depth)
    scores = masked(m, scores, batch, queries, keys)
    weights = softmax(m, scores)
    out = g.matmul(weights, v)
    if m.chance(0.6):
        out = g.transpose(out, perm=(0, 2, 1, 3))
        if m.chance(0.7):
            out = g.reshape(out, shape=(batch, queries, heads * width))
    return (out, weights) if m.chance(0.15) else out


def attention_of_one_projection(m: Maker) -> Value:
    """Queries, keys and values from one product, split; fewer heads of keys perhaps; a cache."""
    g, heads, depth = m.builder, m.one((1, 2, 4)), m.one((4, 8, 16))
    batch, length, width = m.size(), m.size(), m.one((6, 16, 33))
    shared = m.one([n for n in (1, 2, 4) if heads % n == 0])
    x = m.input((batch, length, as_size(width)), ad.float32)
    columns = [heads * depth, shared * depth, shared * depth]
    y = g.matmul(x, m.constant((width, sum(columns)), x.dtype))
    if m.chance(0.6):
        y = y + m.constant((sum(columns),), x.dtype)
    parts = g.split(y, axis=2, sizes=tuple(columns))
    q, k, v = (
        g.transpose(g.reshape(part, shape=(batch, length, -1, depth)), perm=(0, 2, 1, 3))
        for part in parts
    )
    keys = length
    if m.chance(0.4):
        past = m.size()
        k, v = (
            g.concat(m.input((batch, as_size(shared), past, as_size(depth)), x.dtype), new, axis=2)
            for new in (k, v)
        )
        keys = past + length
    if shared != heads:
        k, v = (repeated(m, heads // shared, new) for new in (k, v))
    scores = g.matmul(q, g.transpose(k, perm=(0, 1, 3, 2))) / math.sqrt(depth)
    scores = masked(m, scores, batch, length, keys)
    out = g.transpose(g.matmul(softmax(m, scores), v), perm=(0, 2, 1, 3))
    return g.reshape(out, shape=(batch, length, heads * depth))


def repeated(m: Maker, times: int, x: Value) -> Value:
    """Each head several times."""
    g, (batch, heads, length, depth) = m.builder, x.shape
    wide = g.expand(g.unsqueeze(x, axes=(2,)), shape=(batch, heads, times, length, depth))
    return g.reshape(wide, shape=(batch, heads * times, length, depth))


def projected(m: Maker) -> Value:
    """A product of rows seen as a matrix, and what models do with the result."""
    g, x = m.builder, m.float(3, 3)
    batch, length, width = x.shape
    heads, depth = m.one((2, 3)), m.one((4, 8))
    flat = g.reshape(x, shape=(batch * length, width)) if m.chance(0.5) else x
    if m.chance(0.2):
        flat = getattr(g, m.one(("relu", "neg")))(flat)
    y = g.matmul(flat, m.make((width, as_size(heads * depth)), x.dtype))
    if m.chance(0.6):
        y = y + m.constant((heads * depth,), x.dtype)
    if m.chance(0.3):
        y = y * 0.25
    y = g.reshape(y, shape=(batch, length, heads, depth))
    y = g.transpose(y, perm=m.one(((0, 2, 1, 3), (0, 2, 3, 1), (2, 0, 1, 3))))
    return y + m.mate(y, narrow=True) if m.chance(0.3) else y


def head(m: Maker, batch: Size, length: Size, heads: Size, depth: Size, dtype: ad.DType) -> Value:
    """[batch, heads, length, depth], perhaps made by a projection, perhaps laid out otherwise."""
    g, layout = m.builder, m.random.randrange(4)
    if layout == 0:
        return m.input((batch, heads, length, depth), dtype)
    if layout == 1:
        x = m.input((batch, length, heads, depth), dtype)
        return g.transpose(x, perm=(0, 2, 1, 3))
    x = m.input((batch, length, heads * depth), dtype)
    fixed = (heads * depth).constant
    if layout == 3 and fixed is not None:
        x = g.matmul(x, m.constant((fixed, fixed), dtype)) + m.constant((fixed,), dtype)
    return g.transpose(g.reshape(x, shape=(batch, length, heads, depth)), perm=(0, 2, 1, 3))


def scaled(m: Maker, scores: Value, depth: Size) -> Value:
    root = math.sqrt(depth.constant or 8)
    kind = m.random.randrange(4)
    if kind == 0:
        return scores
    if kind == 1:
        return scores * (1 / root)
    return scores / root


def masked(m: Maker, scores: Value, batch: Size, queries: Size, keys: Size) -> Value:
    """Scores with a mask added, or chosen by one, or none."""
    g, one = m.builder, as_size(1)
    shape = m.one(((batch, one, one, keys), (one, one, queries, keys), (queries, keys)))
    kind = m.random.randrange(5)
    if kind == 0:
        return scores + m.input(shape, scores.dtype)
    if kind == 1:
        return g.where(m.input(shape, ad.boolean), scores, m.number(scores.dtype, -1e9))
    if kind == 2:
        keep = g.cast(m.input(shape, ad.int64, Domain("index", as_size(2))), to=scores.dtype)
        return scores + (1.0 - keep) * -10000.0
    if kind == 3:
        rows = g.unsqueeze(g.range(count=queries, dtype=ad.int64), axes=(1,))
        seen = g.less_equal(g.range(count=keys, dtype=ad.int64), rows)
        lowest = m.number(scores.dtype, m.one((-1e9, -math.inf)))
        return g.where(seen, scores, lowest)
    return scores


def softmax(m: Maker, x: Value) -> Value:
    """Softmax of the last axis as an operator or written out."""
    g, kind = m.builder, m.random.randrange(4)
    if kind < 2:
        return g.softmax(x, axis=-1)
    e = g.exp(x - g.reduce_max(x, axes=(-1,), keepdims=True)) if kind == 2 else g.exp(x * 0.2)
    return e / g.reduce_sum(e, axes=(-1,), keepdims=True)


def written_softmax(m: Maker) -> Value:
    x = m.float(1)
    axis = m.random.randrange(len(x.shape))
    g = m.builder
    e = g.exp(x - g.reduce_max(x, axes=(axis,), keepdims=True))
    total = g.reduce_sum(e, axes=(axis,), keepdims=True)
    return e / (total + 1e-6) if m.chance(0.3) else e / total


def written_norm(m: Maker) -> Value:
    """Layer normalisation from reductions, in the ways that exporters write it."""
    g, x = m.builder, m.float(1)
    axes = (m.one((-1, m.random.randrange(len(x.shape)))),)
    if m.chance(0.3) and m.chance(0.5):
        x = x + m.mate(x, narrow=True)
    centred = x - g.reduce_mean(x, axes=axes, keepdims=True)
    kind = m.random.randrange(3)
    if kind == 0:
        square = g.pow(centred, m.number(x.dtype, 2.0))
    else:
        square = centred * centred
    variance = g.reduce_mean(square, axes=axes, keepdims=True)
    if kind == 2:
        y = centred * g.pow(variance + 1e-3, m.number(x.dtype, -0.5))
    else:
        y = centred / g.sqrt(variance + m.one((1e-5, 1e-3)))
    for _ in range(m.random.randint(0, 2)):
        operand = m.mate(y, narrow=True)
        y = y * operand if m.chance(0.5) else y + operand
    return y


def rms_norm(m: Maker) -> Value:
    g, x = m.builder, m.float(1)
    axes = (m.one((-1, m.random.randrange(len(x.shape)))),)
    mean = g.reduce_mean(x * x, axes=axes, keepdims=True)
    y = x * g.reciprocal(g.sqrt(mean + 1e-5))
    return y * m.mate(y, narrow=True) if m.chance(0.6) else y


def unit_rows(m: Maker) -> Value:
    """Rows of length 1."""
    g, x = m.builder, m.float(1)
    axes = (m.one((-1, m.random.randrange(len(x.shape)))),)
    length = g.reduce_l2(x, axes=axes, keepdims=True)
    if m.chance(0.5):
        length = g.maximum(length, m.number(x.dtype, 1e-5))
    return x / length


def gelu(m: Maker) -> Value:
    """Gelu as graphs spell it, with the factors in any order."""
    g, x = m.builder, m.float()
    if m.chance(0.4):
        x = x + m.mate(x)
    if m.chance(0.3):
        inner = 0.7978845608 * (x + 0.044715 * g.pow(x, m.number(x.dtype, 3.0)))
        one = g.tanh(inner) + 1.0
    else:
        root = x / 1.4142135 if m.chance(0.5) else x * 0.70710678
        one = g.erf(root) + 1.0
    parts = [x, one, m.number(x.dtype, 0.5)]
    m.random.shuffle(parts)
    return parts[0] * parts[1] * parts[2]


def pooled(m: Maker) -> Value:
    """The mean over the positions that a mask keeps."""
    g = m.builder
    x = m.pick(lambda v: v.dtype.is_float and len(v.shape) == 3)
    if x is None:
        x = m.input((m.size(), m.size(), m.size()), ad.float32)
    batch, length, _ = x.shape
    mask = m.input((batch, length), ad.int64, Domain("index", as_size(2)))
    weight = g.cast(g.unsqueeze(mask, axes=(2,)), to=x.dtype)
    if m.chance(0.4):
        weight = g.expand(weight, shape=x.shape)
    total = g.reduce_sum(x * weight, axes=(1,))
    count = g.reduce_sum(weight, axes=(1,))
    count = g.clip(count, m.scalar(x.dtype, 1e-9), m.scalar(x.dtype, 1e9))
    mean = total / count
    if m.chance(0.5):
        return mean
    return mean / g.reduce_l2(mean, axes=(1,), keepdims=True)


def gated(m: Maker) -> Value:
    """A product of two halves of a projection."""
    g, x = m.builder, m.float(2, 3)
    inner = x.shape[-1]
    half = as_size(m.one((3, 8, 16)))
    y = g.matmul(x, m.make((inner, half * 2), x.dtype))
    left, right = g.split(y, axis=len(y.shape) - 1, sizes=(half, half))
    return left * getattr(g, m.one(("sigmoid", "gelu", "swish", "tanh")))(right)


def rotary(m: Maker) -> Value:
    """x * cos + rotated(x) * sin, halves of the last axis swapped."""
    g, depth = m.builder, as_size(m.one((4, 8, 16)))
    x = m.input((m.size(), m.size(), depth), ad.float32)
    half = depth // 2
    first, second = g.split(x, axis=2, sizes=(half, half))
    rotated = g.concat(-second, first, axis=2)
    angles = m.make((x.shape[1], depth), x.dtype)
    return x * g.cos(angles) + rotated * g.sin(angles)


def embedding(m: Maker) -> Value:
    """Rows of tables by ids and by position, summed and perhaps normalised."""
    g, width = m.builder, m.one((3, 8, 16, 24))
    rows = as_size(m.one((7, 30)))
    batch, length = m.size(), m.one(m.dims)
    ids = m.input((batch, length), ad.int64, Domain("index", rows))
    x = g.gather(m.constant((rows.constant, width), ad.float32), ids)
    places = m.constant((40, width), ad.float32)
    hi = g._box.dim(str(length)).hi
    if hi is not None and hi <= 40:
        x = x + g.slice(places, starts=(0,), ends=(length,), axes=(0,))
    if m.chance(0.5):
        scale, bias = (m.constant((width,), ad.float32) for _ in range(2))
        x = g.layer_norm(x, scale, bias, axis=2)
    return x


def feed_forward(m: Maker) -> Value:
    """Two products with an activation between, and a residual."""
    g, x = m.builder, m.float(2, 3)
    width = x.shape[-1].constant
    if width is None:
        width = 8
        x = g.matmul(x, m.make((x.shape[-1], as_size(8)), x.dtype))
    wide = m.one((5, 16, 32))
    h = g.matmul(x, m.constant((width, wide), x.dtype)) + m.constant((wide,), x.dtype)
    h = getattr(g, m.one(("gelu", "relu", "swish")))(h)
    y = g.matmul(h, m.constant((wide, width), x.dtype)) + m.constant((width,), x.dtype)
    y = y + x
    if m.chance(0.5):
        y = g.layer_norm(y, m.constant((width,), x.dtype), m.constant((width,), x.dtype), axis=-1)
    return y
