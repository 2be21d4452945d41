"""The epilogue in the register tile of a convolution: a bias, a residual, a clamp.

A loop over the finished sums computes other epilogues (`matmul/epilogue_loop.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from anydim.base.dtypes import DType
from anydim.base.records import dataclass
from anydim.compiler.kernels.matmul.convolution_form import ConvolutionForm
from anydim.compiler.kernels.matmul.epilogue import COLUMN, PRODUCT, ROW, Output
from anydim.lang.tree import Apply, Expr, Group, Literal, Read
from anydim.lang.tree.affine import Affine, affine
from anydim.sizes import Size, as_size


@dataclass(frozen=True)
class TileEpilogue:
    """min(max(sums + bias[m] + more[position], low), high); a missing term is None."""

    bias: Read | None = None
    more: Read | None = None
    low: float | None = None
    high: float | None = None

    def in_place(self, factors: Iterable[str], result: str) -> tuple[tuple[str, str], ...]:
        """Return (result, residual) if the residual is read nowhere else. See `Launch.in_place`."""
        if self.more is None:
            return ()
        others = {*factors, "" if self.bias is None else self.bias.tensor}
        return () if self.more.tensor in others else ((result, self.more.tensor),)


def tile_epilogue_of(form: ConvolutionForm, group: Group) -> TileEpilogue | None:
    """Return the epilogue of a single result as a tile epilogue; None for any other."""
    strides = {loop.name: loop.y for loop in form.loops}
    own = Affine.of(as_size(0), {**strides, ROW: form.row_y, COLUMN: as_size(1)})
    return tile_epilogue(form.outputs, form.dtype, group, own, {COLUMN: as_size(0)})


def tile_epilogue(
    outputs: tuple[Output, ...], dtype: DType, group: Group, own: Affine,
    bias_steps: dict[str, Size],
) -> TileEpilogue | None:  # fmt: skip
    """Return outputs as a tile epilogue; `own` is an element's offset, `bias_steps` strides."""
    if len(outputs) != 1 or group.type_of(outputs[0].tensor).dtype != dtype:
        return None
    expr = outputs[0].value
    expr, high = _limit(expr, "min")
    expr, low = _limit(expr, "max")
    bias: Read | None = None
    more: Read | None = None
    sums = 0
    for term in _terms(expr):
        if not isinstance(term, Read):
            return None
        if term.tensor == PRODUCT:
            sums += 1
            continue
        offset = affine(term.indices[0]) if term.flat else None
        if offset is None or group.type_of(term.tensor).dtype != dtype:
            return None
        if all(offset.stride(n) == by for n, by in bias_steps.items()) and bias is None:
            bias = term
        elif offset == own and more is None:
            more = term
        else:
            return None
    return TileEpilogue(bias, more, low, high) if sums == 1 else None


def _limit(expr: Expr, function: str) -> tuple[Expr, float | None]:
    if isinstance(expr, Apply) and expr.function == function:
        left, right = expr.arguments
        for value, limit in ((left, right), (right, left)):
            if isinstance(limit, Literal) and not isinstance(value, Literal):
                return value, limit.value
    return expr, None


def _terms(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Apply) and expr.function == "add":
        return tuple(term for argument in expr.arguments for term in _terms(argument))
    return (expr,)
