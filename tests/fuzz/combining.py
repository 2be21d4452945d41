"""Random reductions, normalisations and contractions."""

from __future__ import annotations

from anydim.base.dtypes import boolean
from anydim.compiler.frontends.builder import Value
from anydim.sizes import Size, as_size
from tests.fuzz.maker import MOST_RANK, Maker

ANY = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_l1", "reduce_sum_square",
       "reduce_sum", "reduce_mean", "reduce_max")  # fmt: skip
INTEGER = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_mean", "reduce_l1")


def axes_of(m: Maker, x: Value) -> tuple[int, ...] | None:
    """Some axes of a value; None for all."""
    if m.chance(0.12):
        return None
    if m.chance(0.35):
        return (m.one((-1, len(x.shape) - 1)),)
    return tuple(m.some(range(len(x.shape)), 0 if m.chance(0.05) else 1)[:3])


def reduce(m: Maker) -> Value:
    g, x = m.builder, m.float(1)
    name = m.one((*ANY, "reduce_l2", "reduce_log_sum_exp", "reduce_log_sum", "reduce_prod"))
    if name == "reduce_log_sum":
        x = g.abs(x) + 0.2
    elif name == "reduce_prod":
        x = g.tanh(x) + 1.0
    made = getattr(g, name)(x, axes=axes_of(m, x), keepdims=m.chance(0.5))
    return m.keep_exact(made, x) if name in ("reduce_max", "reduce_min") else made


def reduce_integer(m: Maker) -> Value | None:
    x = m.pick(lambda v: v.dtype.is_integer and len(v.shape) > 0)
    if x is None:
        return None
    made = getattr(m.builder, m.one(INTEGER))(x, axes=axes_of(m, x), keepdims=m.chance(0.5))
    return m.keep_exact(made, x)


def reduce_bool(m: Maker) -> Value | None:
    """Whether any, or all, hold."""
    x = m.pick(lambda v: v.dtype == boolean and len(v.shape) > 0)
    if x is None:
        return None
    name = m.one(("reduce_max", "reduce_min"))
    return m.keep_exact(getattr(m.builder, name)(x, axes=axes_of(m, x), keepdims=m.chance(0.5)), x)


def softmax(m: Maker) -> Value:
    x = m.float(1)
    name = m.one(("softmax", "softmax", "log_softmax"))
    return getattr(m.builder, name)(x, axis=m.one((-1, m.random.randrange(len(x.shape)))))


def layer_norm(m: Maker) -> Value | tuple[Value, ...]:
    x = m.float(1)
    axis = m.one((-1, m.random.randrange(len(x.shape))))
    operands = [x]
    for _ in range(m.random.randint(0, 2)):
        operands.append(m.make(x.shape[axis:], x.dtype))
    statistics = m.chance(0.15)
    epsilon = m.one((1e-5, 1e-3))
    return m.builder.layer_norm(*operands, axis=axis, epsilon=epsilon, statistics=statistics)


def batch_norm(m: Maker) -> Value:
    x = m.float(2, 4)
    g, channels = m.builder, (x.shape[1],)
    scale, bias, mean, variance = (m.make(channels, x.dtype) for _ in range(4))
    return g.batch_norm(x, scale, bias, mean, g.abs(variance) + 0.1)


def matmul(m: Maker) -> Value:
    """A product of matrices: vectors, batches that broadcast, symbolic inner sizes."""
    x = m.float(1, 4)
    inner = x.shape[-1]
    found = m.pick(
        lambda v: v.dtype == x.dtype and 1 <= len(v.shape) <= 2 and inner in v.shape[-2:], 0.0
    )
    if found is not None and found.shape[-2:][0] == inner and m.chance(0.4):
        return m.builder.matmul(x, found)
    if found is not None and len(found.shape) == 2 and m.chance(0.4):
        return m.builder.matmul(x, m.builder.transpose(found))
    if m.chance(0.12):
        return m.builder.matmul(x, m.make((inner,), x.dtype))
    shape: list[Size] = [inner, m.size()]
    if m.chance(0.35) and len(x.shape) >= 2:
        batch = [m.one((size, size, as_size(1))) for size in x.shape[:-2]][m.random.randint(0, 2) :]
        shape = [*batch, *shape]
    y = m.make(shape, x.dtype)
    if len(x.shape) >= 2 and m.chance(0.2):  # from the left
        y = m.make((m.size(), x.shape[-2]), x.dtype)
        return m.builder.matmul(y, x)
    return m.builder.matmul(x, y)


def linear(m: Maker) -> Value:
    """A product with a constant, a bias and an activation."""
    g, x = m.builder, m.float(1, 4)
    inner, out = x.shape[-1].constant, m.one((1, 3, 8, 16, 17, 33, 48))
    if inner is None:
        return matmul(m)
    y = g.matmul(x, m.constant((inner, out), x.dtype))
    if m.chance(0.7):
        y = y + m.constant((out,), x.dtype)
    if m.chance(0.5):
        y = getattr(g, m.one(("relu", "gelu", "tanh", "sigmoid", "hard_swish")))(y)
    if y.shape == x.shape and m.chance(0.5):
        y = y + x
    return y


def gemm(m: Maker) -> Value:
    x = m.float(2, 2)
    transpose_a, transpose_b = m.chance(0.4), m.chance(0.4)
    rows, inner = x.shape[::-1] if transpose_a else x.shape
    columns = m.size()
    y = m.make((columns, inner) if transpose_b else (inner, columns), x.dtype)
    operands = [x, y]
    if m.chance(0.6):
        shapes = ((rows, columns), (columns,), (1, columns), (rows, 1), (1, 1), ())
        operands.append(m.make(tuple(map(as_size, m.one(shapes))), x.dtype))
    return m.builder.gemm(
        *operands, alpha=m.one((1.0, 0.5)), beta=m.one((1.0, 0.25, 0.0)),
        transpose_a=transpose_a, transpose_b=transpose_b,
    )  # fmt: skip


EQUATIONS = (
    ("ij,jk->ik", 2), ("bij,bjk->bik", 3), ("bij,bkj->bik", 3), ("bhid,bhjd->bhij", 4),
    ("ij,ij->i", 2), ("ij,ij->", 2), ("ij->ji", 2), ("ij->j", 2), ("bij,bj->bi", 3),
    ("i,j->ij", 1), ("...ij,jk->...ik", 3), ("bij,bij->bj", 3), ("ijk->kij", 3),
    ("bhij,bhjd->bihd", 4), ("bihd,bjhd->bhij", 4), ("ij,kj->ki", 2), ("ij,jk,kl->il", 2),
)  # fmt: skip


def einsum(m: Maker) -> Value:
    equation, rank = m.one(EQUATIONS)
    x = m.float(rank, rank)
    terms = equation.split("->")[0].split(",")
    sizes: dict[str, Size] = dict(zip(terms[0].replace("...", "_"), x.shape))
    operands = [x]
    for term in terms[1:]:
        shape = [sizes.setdefault(label, m.size()) for label in term.replace("...", "_")]
        operands.append(m.make(shape, x.dtype))
    made = m.builder.einsum(*operands, equation=equation)
    return made if len(made.shape) <= MOST_RANK else x
