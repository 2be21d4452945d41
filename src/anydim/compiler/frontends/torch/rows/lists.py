"""Rows of overloads on lists of tensors (`_foreach_add`), which optimisers call.

Each is the row of the overload of one tensor, element by element.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anydim.compiler.frontends.builder import Value
from anydim.compiler.frontends.torch.builder import Build, TorchBuilder
from anydim.compiler.frontends.torch.rows import elementwise, reductions, views

_KINDS = ("List", "Scalar", "ScalarList", "Tensor")


def for_each(row: Build) -> Build:
    """Applies a row to the tensors of lists, element by element."""

    def build(g: TorchBuilder, *arguments: Any, **named: Any) -> list[Value]:
        lists = [each for each in arguments if isinstance(each, list)]
        made = []
        for number, first in enumerate(lists[0]):
            g.result, g.rank = first.dtype, len(first.shape)
            own = [each[number] if isinstance(each, list) else each for each in arguments]
            made.append(row(g, *own, **named))
        return made

    return build


_ONE: Mapping[str, str] = {
    "abs": "abs.default", "acos": "acos.default", "ceil": "ceil.default", "exp": "exp.default",
    "expm1": "expm1.default", "floor": "floor.default", "log": "log.default",
    "log1p": "log1p.default", "neg": "neg.default", "reciprocal": "reciprocal.default",
    "round": "round.default", "rsqrt": "rsqrt.default", "sigmoid": "sigmoid.default",
    "sign": "sign.default", "sqrt": "sqrt.default", "tanh": "tanh.default",
    "trunc": "trunc.default", "erf": "erf.default",
}  # fmt: skip
_TWO: Mapping[str, str] = {
    "add": "add.Tensor", "sub": "sub.Tensor", "mul": "mul.Tensor", "div": "div.Tensor",
    "maximum": "maximum.default", "minimum": "minimum.default",
    "clamp_max": "minimum.default", "clamp_min": "maximum.default",
}  # fmt: skip

_ELEMENTWISE = elementwise.ROWS

ROWS: dict[str, Build] = {
    "_foreach_copy.default": for_each(views.ROWS["copy.default"]),
    **{f"_foreach_{name}.default": for_each(_ELEMENTWISE[row]) for name, row in _ONE.items()},
    **{f"_foreach_{name}.{kind}": for_each(_ELEMENTWISE[row])
       for name, row in _TWO.items() for kind in _KINDS},
    **{f"_foreach_{name}.{kind}": for_each(_ELEMENTWISE[f"{name}.default"])
       for name in ("addcmul", "addcdiv") for kind in ("Scalar", "ScalarList")},
    **{f"_foreach_lerp.{kind}": for_each(_ELEMENTWISE["lerp.Tensor"])
       for kind in ("List", "Scalar", "ScalarList")},
    **{f"_foreach_pow.{kind}": for_each(_ELEMENTWISE["pow.Tensor_Tensor"])
       for kind in ("List", "Scalar", "ScalarList", "ScalarAndTensor")},
    "_foreach_norm.Scalar": for_each(reductions.ROWS["linalg_vector_norm.default"]),
}  # fmt: skip
