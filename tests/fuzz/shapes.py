"""Random movement: views, joins, parts, repeats."""

from __future__ import annotations

from anydim.compiler.frontends.builder import Value
from anydim.sizes import Size, Truth, as_size, minimum, prove
from tests.fuzz.maker import MOST_RANK, Maker


def moved(m: Maker, x: Value, made: Value) -> Value:
    """Movement keeps exact what is exact."""
    return m.keep_exact(made, x)


def transpose(m: Maker) -> Value | None:
    x = m.pick(lambda v: len(v.shape) >= 2)
    if x is None:
        return None
    perm = list(range(len(x.shape)))
    if m.chance(0.4):
        perm[-1], perm[-2] = perm[-2], perm[-1]
    else:
        m.random.shuffle(perm)
    return moved(m, x, m.builder.transpose(x, perm=tuple(perm)))


def reshape(m: Maker) -> Value | None:
    """Axes merged, split, regrouped, or all flat."""
    x = m.pick(lambda v: len(v.shape) >= 1)
    if x is None:
        return None
    shape = list(x.shape)
    for _ in range(m.random.randint(1, 3)):
        m.one((merge_axes, merge_axes, split_axis, swap_sizes, unit_axis))(m, shape)
    if len(shape) > MOST_RANK:
        return None
    if shape and m.chance(0.2):
        shape[m.random.randrange(len(shape))] = as_size(-1)
    return moved(m, x, m.builder.reshape(x, shape=tuple(shape)))


def merge_axes(m: Maker, shape: list[Size]) -> None:
    if len(shape) >= 2:
        at = m.random.randrange(len(shape) - 1)
        shape[at : at + 2] = [shape[at] * shape[at + 1]]


def split_axis(m: Maker, shape: list[Size]) -> None:
    """A factor of an axis becomes an axis of its own."""
    if not shape:
        return
    at = m.random.randrange(len(shape))
    factors = [as_size(f) for f in (2, 3, 4, 8)] + list(m.dims)
    fitting = [f for f in factors if shape[at].divide_exactly(f) is not None]
    if fitting:
        factor = m.random.choice(fitting)
        parts = [shape[at].divide_exactly(factor), factor]
        m.random.shuffle(parts)
        shape[at : at + 1] = parts


def swap_sizes(m: Maker, shape: list[Size]) -> None:
    if len(shape) >= 2:
        at = m.random.randrange(len(shape) - 1)
        shape[at], shape[at + 1] = shape[at + 1], shape[at]


def unit_axis(m: Maker, shape: list[Size]) -> None:
    shape.insert(m.random.randint(0, len(shape)), as_size(1))


def flatten(m: Maker) -> Value | None:
    x = m.pick()
    if x is None:
        return None
    axis = m.random.randint(-len(x.shape), len(x.shape))
    return moved(m, x, m.builder.flatten(x, axis=axis))


def squeeze(m: Maker) -> Value | None:
    x = m.pick(lambda v: any(size.constant == 1 for size in v.shape))
    if x is None:
        x = m.pick(lambda v: len(v.shape) > 0)
        if x is None or not m.chance(0.1):
            return None
        return moved(m, x, m.builder.squeeze(x, axes=(0,)))  # only where that size is 1
    axes = [axis for axis, size in enumerate(x.shape) if size.constant == 1]
    chosen = None if m.chance(0.3) else tuple(m.some(axes))
    return moved(m, x, m.builder.squeeze(x, axes=chosen))


def unsqueeze(m: Maker) -> Value | None:
    x = m.pick(lambda v: len(v.shape) < MOST_RANK - 1)
    if x is None:
        return None
    count = m.random.randint(1, 2)
    axes = m.random.sample(range(len(x.shape) + count), count)
    return moved(m, x, m.builder.unsqueeze(x, axes=tuple(axes)))


def expand(m: Maker) -> Value | None:
    x = m.pick(lambda v: len(v.shape) < MOST_RANK)
    if x is None:
        return None
    shape = [m.size() if size.constant == 1 else size for size in x.shape]
    if m.chance(0.4) and len(shape) < 4:
        shape = [m.size(), *shape]
    if m.chance(0.2):
        shape = [as_size(1) if m.chance(0.3) else size for size in shape]
    return moved(m, x, m.builder.expand(x, shape=tuple(shape)))


def slice_(m: Maker) -> Value | None:
    x = m.pick(lambda v: len(v.shape) >= 1)
    if x is None:
        return None
    axes = m.some(range(len(x.shape)))[:2]
    starts, ends, steps = [], [], []
    for axis in axes:
        start, end, step = bounds(m, x.shape[axis])
        starts.append(start)
        ends.append(end)
        steps.append(step)
    return moved(
        m, x,
        m.builder.slice(
            x, starts=tuple(starts), ends=tuple(ends), axes=tuple(axes), steps=tuple(steps)
        ),
    )  # fmt: skip


def bounds(m: Maker, extent: Size) -> tuple[Size | int, Size | int, int]:
    """Where a slice starts, ends and how it steps."""
    if m.chance(0.2):
        return m.one(((-1, -(1 << 40), -1), (extent - 1, -extent - 1, -2), (7, 1, -3)))
    start = m.one((0, 0, 0, 1, 2, -1, -3, extent // 2, extent // 3))
    end = m.one((1 << 40, extent, extent, 1, 3, -1, -2, extent // 2, extent - 1))
    return start, end, m.one((1, 1, 1, 1, 2, 3))


def split(m: Maker) -> tuple[Value, ...] | None:
    x = m.pick(lambda v: len(v.shape) >= 1)
    if x is None:
        return None
    axis = m.random.randrange(len(x.shape))
    extent = x.shape[axis]
    half = extent // 2
    first = m.one((half, minimum(extent, 1), minimum(extent, 3)))
    sizes = [first, extent - first]
    if extent.constant is not None and extent.constant % 3 == 0:
        sizes = [as_size(extent.constant // 3)] * 3
    made = m.builder.split(x, axis=axis, sizes=tuple(sizes))
    return tuple(moved(m, x, part) for part in made)


def concat(m: Maker) -> Value | None:
    x = m.pick(lambda v: len(v.shape) >= 1)
    if x is None:
        return None
    axis = m.random.randrange(len(x.shape))

    def fits(v: Value) -> bool:
        return v.dtype == x.dtype and len(v.shape) == len(x.shape) and all(
            a == b for i, (a, b) in enumerate(zip(v.shape, x.shape)) if i != axis
        )  # fmt: skip

    parts = [x]
    for _ in range(m.random.randint(1, 2)):
        other = m.pick(fits, 0.0) if m.chance(0.7) else None
        if other is None:
            shape = list(x.shape)
            shape[axis] = m.size()
            other = m.make(shape, x.dtype)
        parts.append(other)
    m.random.shuffle(parts)
    return m.keep_exact(m.builder.concat(*parts, axis=axis), *parts)


def tile(m: Maker) -> Value | None:
    x = m.pick(lambda v: len(v.shape) >= 1)
    if x is None:
        return None
    repeats = [m.one((1, 1, 2, 3)) for _ in x.shape]
    if m.chance(0.15):
        repeats[0] = m.one(m.dims)
    return moved(m, x, m.builder.tile(x, repeats=tuple(repeats)))


def pad(m: Maker) -> Value | None:
    x = m.pick(lambda v: len(v.shape) >= 1)
    if x is None:
        return None
    mode = m.one(("constant", "constant", "constant", "edge", "reflect", "wrap"))
    low = -1 if mode == "constant" and m.chance(0.2) else 0
    before = [m.random.randint(low, 2) if m.chance(0.5) else 0 for _ in x.shape]
    after = [m.random.randint(low, 2) if m.chance(0.5) else 0 for _ in x.shape]
    if mode != "constant":  # an empty axis has no element to repeat
        box = m.builder._box
        if any(prove(size, ">=", 1, box) is not Truth.PROVED for size in x.shape):
            return None
    operands = [x]
    if mode == "constant" and m.chance(0.5):
        operands.append(m.builder.constant(x.dtype.numpy.type(m.one((0, 1, 2)))))
    made = m.builder.pad(*operands, before=tuple(before), after=tuple(after), mode=mode)
    return moved(m, x, made)


def trilu(m: Maker) -> Value | None:
    x = m.pick(lambda v: len(v.shape) >= 2)
    if x is None:
        return None
    return moved(m, x, m.builder.trilu(x, upper=m.chance(0.5), k=m.random.randint(-2, 2)))
