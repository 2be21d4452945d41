"""The templates, most special first: the first that takes a group makes its kernel.

`rows` and `pointwise` together take every group of one statement, whatever it computes.
"""

from __future__ import annotations

from anydim.kernels import attention, contraction, convolution, pointwise, rows
from anydim.kernels.template import Template

TEMPLATES: tuple[Template, ...] = (
    attention.TEMPLATE,
    convolution.TEMPLATE,
    contraction.TEMPLATE,
    rows.TEMPLATE,
    pointwise.TEMPLATE,
)
