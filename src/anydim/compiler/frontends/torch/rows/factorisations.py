"""Rows of factorisations of matrices, and of what is computed by them; batches of any rank.

Definitions are in `definitions.tc`: elimination with partial pivoting, Cholesky, Bunch and
Kaufman's LDL^T, Householder's QR with LAPACK's signs, Jacobi's rotations for eigenvalues and
singular values.
"""

from __future__ import annotations

from typing import Any

from anydim.base.dtypes import float64, int32, int64
from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import Build, TorchBuilder
from anydim.sizes import Size, minimum, product, simplify


def call_batched(g: TorchBuilder, name: str, *values: Value, **sizes: Any) -> list[Value]:
    """Calls a definition of [batch, rows, columns]; leading axes are flattened to the batch."""
    lead = values[0].shape[:-2]
    count = product(lead)
    parts = [g.reshape(each, shape=(count, *each.shape[len(lead) :])) for each in values]
    made = g.call_definition(name, *parts, **sizes)
    made = made if isinstance(made, tuple) else (made,)
    return [g.reshape(each, shape=(*lead, *each.shape[1:])) for each in made]


def transpose_matrices(g: TorchBuilder, x: Value) -> Value:
    """Transposes matrices of a batch."""
    rank = len(x.shape)
    return g.transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))


def info(g: TorchBuilder, x: Value) -> Value:
    """LAPACK's info: always 0, because failures show as NaN."""
    return g.fill_shape(x.shape[:-2], 0, int32)


def smaller(g: TorchBuilder, x: Value) -> Size:
    """The smaller of the numbers of rows and columns."""
    return simplify(minimum(*x.shape[-2:]), g._box)


def together(g: TorchBuilder, *matrices: Value) -> list[Value]:
    """Broadcasts the leading axes of matrices."""
    lead = g.broadcast_shape(*(each.shape[:-2] for each in matrices))
    return [
        each if each.shape[:-2] == lead else g.expand(each, shape=(*lead, *each.shape[-2:]))
        for each in matrices
    ]


# ---- triangles ---------------------------------------------------------------------------------


def triangular(
    g: TorchBuilder, a: Value, b: Value, upper: bool, left: bool = True, unit: bool = False
) -> Value:
    """The solution of a @ x = b, or x @ a = b, for a triangle a."""
    if not left:
        return transpose_matrices(
            g,
            triangular(
                g, transpose_matrices(g, a), transpose_matrices(g, b), not upper, True, unit
            ),
        )
    a, b = together(g, a, b)
    if unit:
        size = a.shape[-1]
        a = g.where(
            g.equal(g.eye(rows=size, columns=size, dtype=int64), 1), g.scalar(1, a.dtype), a
        )
    return call_batched(g, "solve_upper" if upper else "solve_lower", a, b)[0]


def solve_triangular(
    g: TorchBuilder, a: Value, b: Value, *, upper: bool, left: bool = True,
    unitriangular: bool = False,
) -> Value:  # fmt: skip
    a, b = g.to_working(a, b)
    return triangular(g, a, b, upper, left, unitriangular)


def old_triangular(
    g: TorchBuilder, b: Value, a: Value, upper: bool = True, transpose: bool = False,
    unitriangular: bool = False,
) -> list[Value]:  # fmt: skip
    own = transpose_matrices(g, a) if transpose else a
    return [triangular(g, own, b, upper != transpose, True, unitriangular), a]


def cholesky(g: TorchBuilder, x: Value, upper: bool = False) -> Value:
    (own,) = g.to_working(x)
    made = call_batched(g, "cholesky", transpose_matrices(g, own) if upper else own)[0]
    return transpose_matrices(g, made) if upper else made


def cholesky_with_info(
    g: TorchBuilder, x: Value, *, upper: bool = False, check_errors: bool = False
) -> list[Value]:
    return [cholesky(g, x, upper), info(g, x)]


def cholesky_solve(g: TorchBuilder, b: Value, a: Value, upper: bool = False) -> Value:
    b, a = g.to_working(b, a)
    low = transpose_matrices(g, a) if upper else a
    return triangular(g, transpose_matrices(g, low), triangular(g, low, b, False), True)


def cholesky_inverse(g: TorchBuilder, a: Value, upper: bool = False) -> Value:
    size = a.shape[-1]
    unit = g.eye(rows=size, columns=size, dtype=a.dtype)
    whole = g.expand(unit, shape=a.shape)
    triangle = g.trilu(a, upper=upper)
    return cholesky_solve(g, whole, triangle, upper)


def ldl_factor(
    g: TorchBuilder, x: Value, *, hermitian: bool = False, check_errors: bool = False
) -> list[Value]:
    """(D and L of symmetric matrices, pivots, info), as LAPACK has them for the lower triangle."""
    made, pivots = call_batched(g, "ldl", *g.to_working(x))
    return [made, g.cast(pivots, to=int32), info(g, x)]


def ldl_solve(
    g: TorchBuilder, factors: Value, pivots: Value, b: Value, *, hermitian: bool = False
) -> Value:
    """The solution by the results of `ldl_factor`, whose leading axes broadcast with those of b."""
    pivots = g.unsqueeze(g.as_type(pivots, int64), axes=(len(pivots.shape),))
    factors, pivots, b = together(g, factors, pivots, b)
    pivots = g.squeeze(pivots, axes=(len(pivots.shape) - 1,))
    lead = b.shape[:-2]
    parts = [
        g.reshape(each, shape=(product(lead), *each.shape[len(lead) :]))
        for each in (factors, pivots, b)
    ]
    return g.reshape(g.call_definition("ldl_solve", *parts), shape=b.shape)


# ---- elimination -------------------------------------------------------------------------------


def eliminate(g: TorchBuilder, x: Value) -> tuple[Value, Value, Value]:
    """(both triangles, pivots from 1, the permutation of rows)."""
    both, pivots = call_batched(g, "lu", x, K=smaller(g, x))
    return both, g.cast(pivots, to=int32), permutation(g, pivots, x.shape[-2])


def permutation(g: TorchBuilder, pivots: Value, rows: Size) -> Value:
    lead = pivots.shape[:-1]
    flat = g.reshape(g.as_type(pivots, int64), shape=(product(lead), pivots.shape[-1]))
    made = g.call_definition("permutation", flat, N=rows)
    return g.reshape(made, shape=(*lead, rows))


def lu_factor(
    g: TorchBuilder, x: Value, *, pivot: bool = True, check_errors: bool = False
) -> list[Value]:
    both, pivots, _ = eliminate(g, *g.to_working(x))
    return [both, pivots, info(g, x)]


def lu(g: TorchBuilder, x: Value, *, pivot: bool = True) -> list[Value]:
    both, _, order = eliminate(g, *g.to_working(x))
    return unpack_triangles(g, both, order)


def unpack_triangles(g: TorchBuilder, both: Value, order: Value) -> list[Value]:
    """(P, L, U) with P @ L @ U the matrix."""
    rows = both.shape[-2]
    count = smaller(g, both)
    axes = (len(both.shape) - 2, len(both.shape) - 1)
    left = g.slice(both, starts=(0,), ends=(count,), axes=(axes[1],))
    unit = g.equal(g.eye(rows=rows, columns=count, dtype=int64), 1)
    lower = g.where(unit, g.scalar(1, both.dtype), g.trilu(left, upper=False, k=-1))
    upper = g.trilu(g.slice(both, starts=(0,), ends=(count,), axes=(axes[0],)), upper=True)
    place = g.unsqueeze(g.positions(rows), axes=(1,))
    marks = g.equal(place, g.unsqueeze(order, axes=(len(order.shape) - 1,)))
    return [g.cast(marks, to=both.dtype), lower, upper]


def lu_unpack(
    g: TorchBuilder, both: Value, pivots: Value, data: bool = True, order: bool = True
) -> list[Value]:
    return unpack_triangles(g, both, permutation(g, pivots, both.shape[-2]))


def substitute(g: TorchBuilder, both: Value, order: Value, b: Value) -> Value:
    """The solution by both triangles, of rows in an order."""
    both, b = together(g, both, b)
    order = g.expand(order, shape=(*b.shape[:-2], order.shape[-1]))
    place = g.expand(g.unsqueeze(order, axes=(len(order.shape),)), shape=b.shape)
    moved = g.gather_elements(b, place, axis=len(b.shape) - 2)
    return triangular(g, both, triangular(g, both, moved, False, unit=True), True)


def solve(
    g: TorchBuilder, a: Value, b: Value, *, left: bool = True, check_errors: bool = False
) -> list[Value]:
    """(solution, triangles, pivots, info); b of fewer axes is a vector."""
    a, b = g.to_working(a, b)
    vector = len(b.shape) == 1 or (len(b.shape) == len(a.shape) - 1 and b.shape == a.shape[:-1])
    if vector:
        b = g.unsqueeze(b, axes=(len(b.shape),))
    if not left:
        a, b = transpose_matrices(g, a), transpose_matrices(g, b)
    both, pivots, order = eliminate(g, a)
    made = substitute(g, both, order, b)
    made = made if left else transpose_matrices(g, made)
    made = g.squeeze(made, axes=(len(made.shape) - 1,)) if vector else made
    return [made, both, pivots, info(g, a)]


def lu_solve(
    g: TorchBuilder, both: Value, pivots: Value, b: Value, *, left: bool = True,
    adjoint: bool = False,
) -> Value:  # fmt: skip
    """By triangles: of the matrix, or its transpose."""
    if not left:
        solved = lu_solve(g, both, pivots, transpose_matrices(g, b), adjoint=not adjoint)
        return transpose_matrices(g, solved)
    order = permutation(g, pivots, both.shape[-2])
    return _adjoint(g, both, order, b) if adjoint else substitute(g, both, order, b)


def _adjoint(g: TorchBuilder, both: Value, order: Value, b: Value) -> Value:
    flipped = transpose_matrices(g, both)
    made = triangular(g, flipped, triangular(g, flipped, b, False), True, unit=True)
    back = g.sort(order, axis=-1)[1]
    place = g.expand(g.unsqueeze(back, axes=(len(back.shape),)), shape=made.shape)
    return g.gather_elements(made, place, axis=len(made.shape) - 2)


def old_lu_solve(g: TorchBuilder, b: Value, both: Value, pivots: Value) -> Value:
    return lu_solve(g, both, pivots, b)


def sign_and_log(g: TorchBuilder, x: Value) -> list[Value]:
    """(sign, logarithm of the magnitude) of determinants, triangles, pivots."""
    both, pivots, _ = eliminate(g, *g.to_working(x))
    size = x.shape[-1]
    unit = g.equal(g.eye(rows=size, columns=size, dtype=int64), 1)
    one, zero = g.scalar(1, both.dtype), g.scalar(0, both.dtype)
    signs = g.reduce_prod(g.where(unit, g.sign(both), one), axes=(-2, -1))
    logs = g.reduce_sum(g.where(unit, g.log(g.abs(both)), zero), axes=(-2, -1))
    usual = g.add(g.positions(size), 1)
    moves = g.cast(g.not_equal(g.cast(pivots, to=int64), usual), to=int64)
    odd = g.equal(g.mod(g.reduce_sum(moves, axes=(-1,)), 2), 1)
    return [g.where(odd, g.neg(signs), signs), logs, both, pivots]


def inverse(g: TorchBuilder, x: Value, *, check_errors: bool = False) -> list[Value]:
    return [g.inverse(*g.to_working(x)), info(g, x)]


# ---- orthogonal factors ------------------------------------------------------------------------


def geqrf(g: TorchBuilder, x: Value) -> list[Value]:
    return call_batched(g, "geqrf", *g.to_working(x), K=smaller(g, x))


def householder_product(g: TorchBuilder, x: Value, factors: Value) -> Value:
    return multiply_reflections(g, x, factors, x.shape[-1])


def multiply_reflections(g: TorchBuilder, x: Value, factors: Value, columns: Size) -> Value:
    """The first columns of the product of reflections."""
    return call_batched(g, "reflections", x, factors, C=columns)[0]


def times_reflections(
    g: TorchBuilder, x: Value, factors: Value, other: Value, left: bool = True,
    transpose: bool = False,
) -> Value:  # fmt: skip
    """The product of all reflections, or its transpose, with another matrix."""
    own = multiply_reflections(g, x, factors, x.shape[-2])
    own = transpose_matrices(g, own) if transpose else own
    return g.matmul(own, other) if left else g.matmul(other, own)


def qr(g: TorchBuilder, x: Value, mode: str = "reduced") -> list[Value]:
    (own,) = g.to_working(x)
    both, factors = geqrf(g, own)
    rows = x.shape[-2]
    count = rows if mode == "complete" else smaller(g, x)
    upper = g.trilu(g.slice(both, starts=(0,), ends=(count,), axes=(len(x.shape) - 2,)), upper=True)
    if mode == "r":
        return [g.fill_shape((0,), 0, own.dtype), upper]
    return [multiply_reflections(g, both, factors, count), upper]


def symmetric_eigen(
    g: TorchBuilder, x: Value, triangle: str = "L", vectors: bool = True
) -> list[Value]:
    """(eigenvalues in ascending order, their vectors as columns)."""
    (own,) = g.to_working(x)
    upper = triangle.upper() == "U"
    half = g.trilu(own, upper=upper)
    rest = g.trilu(transpose_matrices(g, own), upper=not upper, k=-1 if upper else 1)
    numbers, made = call_batched(g, "jacobi", g.add(half, rest))
    values, order = g.sort(numbers, axis=-1)
    if not vectors:
        return [values, g.fill_shape((0,), 0, own.dtype)]
    return [values, columns_of(g, made, order)]


def columns_of(g: TorchBuilder, x: Value, order: Value) -> Value:
    place = g.expand(g.unsqueeze(order, axes=(len(order.shape) - 1,)), shape=x.shape)
    return g.gather_elements(x, place, axis=len(x.shape) - 1)


def svd(
    g: TorchBuilder, x: Value, full: bool = False, vectors: bool = True, **_: Any
) -> list[Value]:
    """(U, singular values in descending order, V^T)."""
    (own,) = g.to_working(x)
    rows, columns = x.shape[-2:]
    if g.proved(rows, "<", columns) or not g.proved(rows, ">=", columns):
        if not g.proved(rows, "<=", columns):
            return _svd_of_any(g, own, full, vectors)
        right, values, left = svd(g, transpose_matrices(g, own), full, vectors)
        return [transpose_matrices(g, left), values, transpose_matrices(g, right)]
    return _svd_of_tall(g, own, full)


def _svd_of_tall(g: TorchBuilder, x: Value, full: bool) -> list[Value]:
    moved, rotation = call_batched(g, "one_sided_jacobi", x)
    sizes = g.reduce_l2(moved, axes=(len(x.shape) - 2,))
    values, order = g.sort(sizes, axis=-1, descending=True)
    spread = g.unsqueeze(values, axes=(len(values.shape) - 1,))
    safe = g.where(g.equal(spread, 0), g.scalar(1, x.dtype), spread)
    left = g.div(columns_of(g, moved, order), safe)
    right = transpose_matrices(g, columns_of(g, rotation, order))
    if full:
        both, factors = geqrf(g, left)
        whole = multiply_reflections(g, both, factors, x.shape[-2])
        count = x.shape[-1]
        rest = g.slice(whole, starts=(count,), ends=(x.shape[-2],), axes=(len(x.shape) - 1,))
        left = g.concat(left, rest, axis=len(x.shape) - 1)
    return [left, values, right]


def _svd_of_any(g: TorchBuilder, x: Value, full: bool, vectors: bool) -> list[Value]:
    """Rows and columns of any numbers: padded by zero rows to a tall matrix, then cut."""
    rows, columns = x.shape[-2:]
    count = smaller(g, x)
    rank = len(x.shape)
    none = (0,) * (rank - 2)
    tall = g.pad(x, before=(*none, 0, 0), after=(*none, columns, 0))
    left, values, right = _svd_of_tall(g, tall, False)
    left = g.slice(left, starts=(0, 0), ends=(rows, count), axes=(rank - 2, rank - 1))
    values = g.slice(values, starts=(0,), ends=(count,), axes=(rank - 2,))
    cut = g.slice(right, starts=(0,), ends=(count,), axes=(rank - 2,))
    if not full or not vectors:
        return [left, values, cut]
    both, factors = geqrf(g, left)
    whole = multiply_reflections(g, both, factors, rows)
    rest = g.slice(whole, starts=(count,), ends=(rows,), axes=(rank - 1,))
    return [g.concat(left, rest, axis=rank - 1), values, right]


def pseudo_inverse(
    g: TorchBuilder, x: Value, *, atol: Value | None = None, rtol: Value | None = None,
    hermitian: bool = False,
) -> Value:  # fmt: skip
    """By singular values above the tolerances."""
    import numpy

    if hermitian:
        signed, left = symmetric_eigen(g, x)
        values, signs = g.abs(signed), g.sign(signed)
        right = g.mul(transpose_matrices(g, left), g.unsqueeze(signs, axes=(len(signs.shape),)))
    else:
        left, values, right = svd(g, x)
    most = g.reduce_max(g.pad_end(values), axes=(-1,), keepdims=True)
    if rtol is None:
        small = float(numpy.finfo(values.dtype.numpy).eps)
        count = g.scalar(simplify(_most(*x.shape[-2:]), g._box), values.dtype)
        relative = g.mul(count, small)
        if atol is not None:
            relative = g.where(g.greater(_spread(g, atol, values), 0), g.scalar(0, values.dtype),
                               relative)  # fmt: skip
    else:
        relative = _spread(g, rtol, values)
    limit = g.mul(most, relative)
    if atol is not None:
        limit = g.maximum(limit, _spread(g, atol, values))
    kept = g.greater(values, limit)
    inverse_ = g.where(kept, g.reciprocal(values), g.scalar(0, values.dtype))
    scaled = g.mul(
        transpose_matrices(g, right), g.unsqueeze(inverse_, axes=(len(values.shape) - 1,))
    )
    return g.matmul(scaled, transpose_matrices(g, left))


def _most(a: Size, b: Size) -> Size:
    return a + b - minimum(a, b)


def _spread(g: TorchBuilder, tolerance: Value, values: Value) -> Value:
    own = g.as_type(tolerance, values.dtype)
    return g.unsqueeze(own, axes=(len(own.shape),)) if own.shape else own


def matrix_exponential(g: TorchBuilder, x: Value) -> Value:
    """Taylor's series of x / 2^12, squared 12 times."""
    size = x.shape[-1]
    small = g.mul(g.cast(x, to=float64), 2.0**-12)
    unit = g.eye(rows=size, columns=size, dtype=float64)
    made = g.expand(unit, shape=x.shape)
    for power in range(10, 0, -1):
        made = g.add(unit, g.mul(g.matmul(small, made), 1.0 / power))
    for _ in range(12):
        made = g.matmul(made, made)
    return made


def ignore_errors(g: TorchBuilder, found: Value, *_: Any, **__: Any) -> None:
    """No error: matrices that fail give NaN."""


ROWS: dict[str, Build] = {
    "cholesky.default": cholesky, "linalg_cholesky_ex.default": cholesky_with_info,
    "cholesky_solve.default": cholesky_solve, "cholesky_inverse.default": cholesky_inverse,
    "linalg_solve_triangular.default": solve_triangular,
    "triangular_solve.default": old_triangular,
    "linalg_lu_factor_ex.default": lu_factor, "linalg_lu.default": lu,
    "lu_unpack.default": lu_unpack, "linalg_lu_solve.default": lu_solve,
    "lu_solve.default": old_lu_solve, "_linalg_solve_ex.default": solve,
    "_linalg_slogdet.default": sign_and_log,
    "linalg_inv_ex.default": inverse,
    "linalg_ldl_factor_ex.default": ldl_factor, "linalg_ldl_solve.default": ldl_solve,
    "_linalg_check_errors.default": ignore_errors,
    "geqrf.default": geqrf, "linalg_householder_product.default": householder_product,
    "ormqr.default": times_reflections, "linalg_qr.default": qr,
    "_linalg_eigh.default": symmetric_eigen,
    "_linalg_svd.default": svd, "linalg_pinv.atol_rtol_tensor": pseudo_inverse,
    "linalg_matrix_exp.default": matrix_exponential,
}  # fmt: skip
