"""The templates, most special first: the first that takes a group makes its kernel.

`nest` takes every group of ordered steps and no other; `rows` and `pointwise` together take every
group of one statement, whatever it computes.
"""

from __future__ import annotations

from anydim.kernels.attention import template as attention
from anydim.kernels.nest import template as nest
from anydim.kernels.product.bytes import template as bytes_product
from anydim.kernels.product.contraction import template as contraction
from anydim.kernels.product.convolution import template as convolution
from anydim.kernels.product.narrow import template as narrow
from anydim.kernels.product.winograd import template as winograd
from anydim.kernels.ranges import template as ranges
from anydim.kernels.rows import pointwise
from anydim.kernels.rows import template as rows
from anydim.kernels.sliding import template as sliding
from anydim.kernels.template import Template
from anydim.kernels.transposition import template as transposition

TEMPLATES: tuple[Template, ...] = (
    nest.TEMPLATE,
    attention.TEMPLATE,
    winograd.PLANES,
    winograd.IMAGES,
    convolution.TEMPLATE,
    bytes_product.TEMPLATE,
    narrow.TEMPLATE,
    contraction.TEMPLATE,
    sliding.TEMPLATE,
    transposition.TEMPLATE,
    ranges.TEMPLATE,
    rows.TEMPLATE,
    rows.PHASES,
    pointwise.TEMPLATE,
)
