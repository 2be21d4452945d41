"""Random reads at positions that are data, and tensors made from sizes."""

from __future__ import annotations

import anydim as ad
from anydim.base.dtypes import boolean
from anydim.base.errors import GraphError
from anydim.compiler.frontends.builder import Value
from anydim.sizes import Size, maximum, product
from tests.fuzz.maker import Domain, Maker


def index(m: Maker, shape: tuple[Size, ...], extent: Size, dtype: ad.DType | None = None) -> Value:
    """An input of indices into an axis; of one that data made no input knows the size."""
    if not extent.symbols <= {str(dim) for dim in m.dims}:
        raise GraphError("indices need an axis that inputs show")
    dtype = dtype or (ad.int64 if m.chance(0.7) else ad.int32)
    return m.input(shape, dtype, Domain("index", extent, m.chance(0.3)))


def gather(m: Maker) -> Value | None:
    x = m.pick(lambda v: 1 <= len(v.shape) <= 3)
    if x is None:
        return None
    axis = m.random.randrange(len(x.shape))
    places = index(m, m.shape(0, 2), x.shape[axis])
    return m.keep_exact(m.builder.gather(x, places, axis=axis), x)


def gather_computed(m: Maker) -> Value | None:
    """Rows at indices that the graph computes."""
    g = m.builder
    x = m.pick(lambda v: any(size.constant for size in v.shape) and len(v.shape) <= 3)
    numbers = m.pick(lambda v: v.dtype.is_integer and v.dtype.kind == "int" and len(v.shape) <= 2)
    if x is None or numbers is None:
        return None
    axis = m.one([axis for axis, size in enumerate(x.shape) if size.constant])
    places = g.mod(numbers, g.constant(numbers.dtype.numpy.type(min(x.shape[axis].constant, 100))))
    return m.keep_exact(g.gather(x, places, axis=axis), x, numbers)


def gather_elements(m: Maker) -> Value | None:
    x = m.pick(lambda v: 1 <= len(v.shape) <= 3)
    if x is None:
        return None
    axis = m.random.randrange(len(x.shape))
    shape = list(x.shape)
    shape[axis] = m.size()
    places = index(m, tuple(shape), x.shape[axis])
    return m.keep_exact(m.builder.gather_elements(x, places, axis=axis), x)


def gather_nd(m: Maker) -> Value | None:
    """Elements or rows at pairs of indices, or at single ones, below batch axes perhaps."""
    x = m.pick(lambda v: 2 <= len(v.shape) <= 4)
    if x is None:
        return None
    batch = m.random.randint(0, 1)
    depth = m.random.randint(1, min(2, len(x.shape) - batch))
    shape = (*x.shape[:batch], *m.shape(0, 1))
    extents = x.shape[batch : batch + depth]
    places = [m.builder.unsqueeze(index(m, shape, e, ad.int64), axes=(-1,)) for e in extents]
    joined = m.builder.concat(*places, axis=len(shape)) if depth > 1 else places[0]
    return m.keep_exact(m.builder.gather_nd(x, joined, batch_dims=batch), x)


def one_hot(m: Maker) -> Value | None:
    depth = m.size()
    places = index(m, m.shape(0, 2), depth)
    values = m.constant((2,), m.float_type())
    axis = m.random.randint(-1, len(places.shape))
    made = m.builder.one_hot(places, values, depth=depth, axis=axis)
    m.exact.add(made.name)
    return made


def source(m: Maker) -> Value:
    """A tensor made from sizes alone."""
    g, kind = m.builder, m.one(("range", "fill", "size_tensor"))
    if kind == "range":
        made = g.range(
            start=m.one((0, 1, -3)), step=m.one((1, 2, -1)), count=m.size(),
            dtype=m.one((ad.int64, ad.int32, ad.float32)),
        )  # fmt: skip
    elif kind == "fill":
        value, dtype = m.one(((0.5, ad.float32), (-2.0, ad.float32), (3, ad.int64)))
        made = g.fill(shape=m.shape(0, 3), value=value, dtype=dtype)
    else:
        values = (m.one(m.dims), product(m.dims[:2]) + 1, maximum(m.dims[0], 4))
        made = g.size_tensor(values=values, dtype=m.one((ad.int64, ad.float32)))
    m.exact.add(made.name)
    return made


def mask(m: Maker) -> Value:
    """Booleans from positions, as causal masks are made."""
    g = m.builder
    rows, columns = (g.range(count=m.size(), dtype=ad.int64) for _ in range(2))
    rows = g.unsqueeze(rows, axes=(1,))
    made = m.one((g.less_equal, g.greater, g.equal))(columns, rows)
    assert made.dtype == boolean
    m.exact.update((rows.name, columns.name, made.name))
    return made
