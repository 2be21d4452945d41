"""The table of overloads: one row each, by subject.

    elementwise.py         arithmetic, comparison, logic, conversions
    activations.py         activations
    views.py               views, and overloads that move elements
    reductions.py          reductions, cumulative overloads, sorting
    linear.py              matrix products, by groups of rows too, linear algebra
    factorisations.py      Cholesky, LU, QR, eigenvalues, singular values
    normalisation.py       batch, group, instance, layer and RMS norms
    convolution.py         convolutions, pooling, resampling of images
    convolution_gradients  gradients of convolutions
    attention.py           scaled dot-product attention
    recurrent.py           LSTM, GRU, RNN
    recurrent_gradients    gradients of LSTM, GRU, RNN
    indexing.py            reads and writes at indices
    creation.py            tensors from sizes and numbers, random ones included
    special.py             special functions, by the tables of coefficients.py
    data_sized.py          sizes that data decide
    lists.py               lists of tensors, as optimisers have them
    complex_numbers.py     overloads with complex tensors, by their parts

A row takes the builder and the arguments of the schema. It returns values; the importer converts
them to the types that torch gives the results.
"""

from anydim.compiler.frontends.torch.builder import Build
from anydim.compiler.frontends.torch.rows import (
    activations,
    attention,
    complex_numbers,
    convolution,
    convolution_gradients,
    creation,
    data_sized,
    elementwise,
    factorisations,
    indexing,
    linear,
    lists,
    normalisation,
    recurrent,
    recurrent_gradients,
    reductions,
    special,
    views,
)

SUBJECTS = (
    elementwise, activations, views, reductions, linear, normalisation, convolution,
    convolution_gradients, attention, recurrent, recurrent_gradients, indexing, creation,
    data_sized, special, factorisations, lists,
)  # fmt: skip


def full_name(name: str) -> str:
    """The name of an overload with its namespace: aten.add.Tensor. In tables aten is left out."""
    return name if name.startswith(("prims.", "anydim.", "transformers.")) else f"aten.{name}"


OVERLOADS: dict[str, Build] = {
    full_name(name): row for subject in SUBJECTS for name, row in subject.ROWS.items()
}
"""Overload -> its row."""

COMPLEX_OVERLOADS: dict[str, Build] = {
    full_name(name): row for name, row in complex_numbers.ROWS.items()
}
"""Overload -> its row where an argument or the result is complex."""
