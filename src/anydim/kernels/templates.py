"""The templates, most special first: the first that takes a group makes its kernel.

`rows` and `pointwise` together take every group of one statement, whatever it computes; `nest` every
group of ordered steps.
"""

from __future__ import annotations

from anydim.kernels import attention, contraction, convolution, nest, pointwise, rows
from anydim.kernels.template import Template

TEMPLATES: tuple[Template, ...] = (
    attention.TEMPLATE,
    convolution.TEMPLATE,
    contraction.TEMPLATE,
    nest.TEMPLATE,
    rows.TEMPLATE,
    pointwise.TEMPLATE,
)
