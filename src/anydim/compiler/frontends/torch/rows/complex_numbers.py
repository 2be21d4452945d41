"""Rows of overloads with complex tensors, by the rows of their real and imaginary parts.

They serve where an argument or the result is complex; `g.is_complex` says whether the result is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anydim.base.dtypes import boolean
from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import Build, TorchBuilder, is_number
from anydim.compiler.frontends.torch.complex_values import (
    Complex,
    as_complex,
    is_complex,
    join_parts,
    part_of,
    split,
)
from anydim.compiler.frontends.torch.rows import (
    creation,
    elementwise,
    indexing,
    linear,
    reductions,
    views,
)
from anydim.sizes import Size, product

_REAL = {
    **elementwise.ROWS, **views.ROWS, **reductions.ROWS, **indexing.ROWS, **linear.ROWS,
    **creation.ROWS,
}  # fmt: skip


def by_part(name: str, *complex_positions: int) -> Build:
    """A linear overload: applies its real row to both parts.

    Arguments at `complex_positions` are numbers or tensors of the field: a real one there has the
    imaginary part 0.
    """
    row = _REAL[name]

    def build(g: TorchBuilder, *arguments: Any, **named: Any) -> Any:
        given: list[Any] = [
            as_complex(g, each) if position in complex_positions else each
            for position, each in enumerate(arguments)
        ]
        if not any(map(is_complex, given)):
            return as_complex(g, row(g, *given, **named))
        return _together(*(
            row(g, *(part_of(each, part) for each in given), **named) for part in ("real", "imag")
        ))  # fmt: skip

    return build


def _together(real: Any, imag: Any) -> Any:
    if isinstance(real, (list, tuple)):
        return [_together(*parts) for parts in zip(real, imag)]
    return Complex(real, imag)


def bilinear(name: str) -> Build:
    """An overload that is linear in each of two tensors, or numbers."""
    row = _REAL[name]

    def build(g: TorchBuilder, a: Any, b: Any, *rest: Any) -> Complex:
        if not is_complex(a):
            return Complex(row(g, a, b.real, *rest), row(g, a, b.imag, *rest))
        if not is_complex(b):
            return Complex(row(g, a.real, b, *rest), row(g, a.imag, b, *rest))
        real = g.sub(row(g, a.real, b.real, *rest), row(g, a.imag, b.imag, *rest))
        return Complex(real, g.add(row(g, a.real, b.imag, *rest), row(g, a.imag, b.real, *rest)))

    return build


_times = bilinear("mul.Tensor")


def divide(g: TorchBuilder, a: Any, b: Any) -> Complex:
    """Scaled by the larger part of the divisor, so that squares do not overflow."""
    if not is_complex(b):
        return Complex(elementwise.divide(g, a.real, b), elementwise.divide(g, a.imag, b))
    real, imag = g.to_working(b.real, b.imag)
    most = g.maximum(g.abs(real), g.abs(imag))
    scale = g.where(g.equal(most, 0), g.scalar(1, most.dtype), most)
    real, imag = g.div(real, scale), g.div(imag, scale)
    square = g.mul(g.add(g.mul(real, real), g.mul(imag, imag)), scale)
    made = _times(g, a, Complex(real, g.neg(imag)))
    return Complex(g.div(made.real, square), g.div(made.imag, square))


def reciprocal(g: TorchBuilder, x: Complex) -> Complex:
    return divide(g, complex(1), x)


def conjugate(g: TorchBuilder, x: Complex) -> Complex:
    return Complex(x.real, g.neg(x.imag))


def absolute(g: TorchBuilder, x: Complex) -> Value:
    return elementwise.hypot(g, x.real, x.imag)


def angle(g: TorchBuilder, x: Complex) -> Value:
    return g.atan2(x.imag, x.real)


def polar(g: TorchBuilder, size: Value, turn: Value) -> Complex:
    size, turn = g.to_working(size, turn)
    return Complex(g.mul(size, g.cos(turn)), g.mul(size, g.sin(turn)))


def exponential(g: TorchBuilder, x: Complex) -> Complex:
    return polar(g, g.exp(x.real), x.imag)


def logarithm(g: TorchBuilder, x: Complex) -> Complex:
    return Complex(g.log(absolute(g, x)), angle(g, x))


def square(g: TorchBuilder, x: Any, exponent: Any) -> Complex:
    """Powers by exponents 1 and 2."""
    if exponent not in (1, 2):
        raise NotImplementedError(f"complex numbers to the power {exponent}")
    return _times(g, x, x) if exponent == 2 else x


def equal(g: TorchBuilder, a: Any, b: Any) -> Value:
    return g.logical_not(unequal(g, a, b))


def unequal(g: TorchBuilder, a: Any, b: Any) -> Value:
    a, b = as_complex(g, a), as_complex(g, b)
    parts = [g.not_equal(*g.operands(getattr(a, part), getattr(b, part)))
             for part in ("real", "imag")]  # fmt: skip
    return g.logical_or(*parts)


def added_product(
    g: TorchBuilder, bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1
) -> Complex:
    """beta * bias + alpha * (a @ b)."""
    made = bilinear("mm.default")(g, a, b) if len(b.shape) == 2 else bilinear("mv.default")(g, a, b)
    made = made if is_number(alpha, 1) else _times(g, made, alpha)
    if is_number(beta, 0):
        return made
    bias = as_complex(g, bias)
    return _ADD(g, made, bias if is_number(beta, 1) else _times(g, bias, beta))


def convert(g: TorchBuilder, x: Any, *_: Any, **__: Any) -> Any:
    """Complex numbers become real ones without their imaginary parts, and false if they are 0."""
    if g.is_complex:
        return as_complex(g, x)
    if not is_complex(x):
        return x
    return unequal(g, x, 0) if g.result == boolean else x.real


def add_scaled(name: str) -> Build:
    """a + alpha * b, or a - alpha * b."""
    row = by_part(name, 0, 1)

    def build(g: TorchBuilder, a: Any, b: Any, alpha: Any = 1) -> Any:
        if not is_complex(alpha):
            return row(g, a, b, alpha)
        b = as_complex(g, b)
        return row(g, a, b * alpha if isinstance(b, complex) else _times(g, b, alpha))

    return build


def reversed_subtraction(g: TorchBuilder, a: Any, b: Any, alpha: Any = 1) -> Any:
    return add_scaled("sub.Tensor")(g, b, a, alpha)


def pair(g: TorchBuilder, real: Value, imag: Value) -> Complex:
    shape = g.broadcast(real, imag)
    return Complex(g.expand(real, shape=shape), g.expand(imag, shape=shape))


# ---- Fourier transforms ------------------------------------------------------------------------

_BY_ROOT, _BY_COUNT = 1, 2  # torch's numbers of normalisations


def transform(
    g: TorchBuilder, x: Complex, dims: Sequence[int], normalisation: int, forward: bool
) -> Complex:
    """Of complex numbers along axes, or the inverse."""
    return _normalise(g, _along(g, x, dims, forward), dims, x.shape, normalisation, forward)


def real_transform(
    g: TorchBuilder, x: Value, dims: Sequence[int], normalisation: int, onesided: bool
) -> Complex:
    """Of real numbers; with `onesided`, half of the frequencies of the last of the axes."""
    *others, last = (dim % len(x.shape) for dim in dims)
    (own,) = g.to_working(x)
    values = g.unsqueeze(own, axes=(len(x.shape),))
    made = split(g, g.dft(values, length=x.shape[last], axis=last, onesided=onesided))
    return _normalise(g, _along(g, made, others, True), dims, x.shape, normalisation, True)


def real_inverse(
    g: TorchBuilder, x: Complex, dims: Sequence[int], normalisation: int, length: int | Size
) -> Value:
    """The inverse with a real result, from half of the frequencies of the last of the axes."""
    *others, last = (dim % len(x.shape) for dim in dims)
    pairs = join_parts(g, _along(g, x, others, False))
    made = g.dft(pairs, length=length, axis=last, inverse=True, onesided=True)[..., 0]
    factor = _factor(g, dims, made.shape, normalisation, False)
    return made if factor is None else g.mul(made, factor)


def _along(g: TorchBuilder, x: Complex, dims: Sequence[int], forward: bool) -> Complex:
    """Transforms along axes one after the other; inverse ones are divided by the counts."""
    if not dims:
        return x
    pairs = join_parts(g, x)
    for dim in dims:
        axis = dim % len(x.shape)
        pairs = g.dft(pairs, length=x.shape[axis], axis=axis, inverse=not forward)
    return split(g, pairs)


def _normalise(
    g: TorchBuilder, x: Complex, dims: Sequence[int], shape: Sequence[Size], normalisation: int,
    forward: bool,
) -> Complex:  # fmt: skip
    factor = _factor(g, dims, shape, normalisation, forward)
    return x if factor is None else Complex(g.mul(x.real, factor), g.mul(x.imag, factor))


def _factor(
    g: TorchBuilder, dims: Sequence[int], shape: Sequence[Size], normalisation: int, forward: bool
) -> Value | None:
    """The normalisation factor; inverse transforms are divided by the count already."""
    if normalisation == (0 if forward else _BY_COUNT):
        return None
    count = g.scalar(product(shape[dim] for dim in dims), g.result)
    if normalisation == _BY_ROOT:
        return g.rsqrt(count) if forward else g.sqrt(count)
    return g.reciprocal(count) if forward else count


_ADD = by_part("add.Tensor", 0, 1)
_PARTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys((
        "view.default", "reshape.default", "_unsafe_view.default", "expand.default",
        "permute.default", "transpose.int", "t.default", "unsqueeze.default", "squeeze.default",
        "squeeze.dim", "squeeze.dims", "slice.Tensor", "select.int", "narrow.default",
        "split.Tensor", "split_with_sizes.default", "unbind.int", "flip.default", "roll.default",
        "repeat.default", "as_strided.default", "diagonal.default", "unfold.default",
        "clone.default", "alias.default", "detach.default", "contiguous.default",
        "lift_fresh.default", "lift_fresh_copy.default", "index_select.default", "gather.default",
        "index.Tensor", "neg.default", "sum.default", "sum.dim_IntList", "mean.default",
        "mean.dim", "cumsum.default", "zeros.default", "ones.default", "zeros_like.default",
        "ones_like.default", "new_zeros.default", "new_ones.default", "empty.memory_format",
        "empty_like.default", "new_empty.default", "tril.default", "triu.default",
    ), ()),
    **dict.fromkeys(("cat.default", "stack.default", "scalar_tensor.default"), (0,)),
    **dict.fromkeys((
        "copy.default",
        "slice_scatter.default", "select_scatter.default", "diagonal_scatter.default",
        "fill.Scalar", "fill.Tensor",
    ), (0, 1)),
    "full.default": (1,), "full_like.default": (1,), "new_full.default": (2,),
    "constant_pad_nd.default": (0, 2), "where.self": (1, 2), "masked_fill.Scalar": (0, 2),
    "masked_fill.Tensor": (0, 2), "index_put.default": (0, 2),
}  # fmt: skip

ROWS: dict[str, Build] = {
    **{name: by_part(name, *places) for name, places in _PARTS.items()},
    **{name: bilinear(name) for name in (
        "mul.Tensor", "mul.Scalar", "mm.default", "bmm.default", "mv.default", "dot.default",
        "matmul.default")},
    **{name: add_scaled(name) for name in ("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar")},
    "rsub.Scalar": reversed_subtraction, "rsub.Tensor": reversed_subtraction,
    "div.Tensor": divide, "div.Scalar": divide, "reciprocal.default": reciprocal,
    "addmm.default": added_product, "addmv.default": added_product,
    "_conj.default": conjugate, "_conj_physical.default": conjugate,
    "abs.default": absolute, "angle.default": angle, "polar.default": polar,
    "exp.default": exponential, "log.default": logarithm, "pow.Tensor_Scalar": square,
    "eq.Tensor": equal, "eq.Scalar": equal, "ne.Tensor": unequal, "ne.Scalar": unequal,
    "_to_copy.default": convert, "to.dtype": convert, "complex.default": pair,
    "prims.convert_element_type.default": convert,
    "view_as_real.default": join_parts, "view_as_complex.default": split,
    "_fft_c2c.default": transform, "_fft_r2c.default": real_transform,
    "_fft_c2r.default": real_inverse,
}  # fmt: skip
