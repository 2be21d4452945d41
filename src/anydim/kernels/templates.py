"""The templates, most special first: the first that takes a group makes its kernel.

`nest` takes every group of ordered steps and no other; `rows` and `pointwise` together take every
group of one statement, whatever it computes.
"""

from __future__ import annotations

from anydim.kernels import (
    attention,
    bytes_product,
    contraction,
    convolution,
    nest,
    pointwise,
    rows,
    sliding,
    transposition,
    winograd,
)
from anydim.kernels.template import Template

TEMPLATES: tuple[Template, ...] = (
    nest.TEMPLATE,
    attention.TEMPLATE,
    winograd.TEMPLATE,
    convolution.TEMPLATE,
    bytes_product.TEMPLATE,
    contraction.TEMPLATE,
    sliding.TEMPLATE,
    transposition.TEMPLATE,
    rows.TEMPLATE,
    pointwise.TEMPLATE,
)
