"""The templates, most specific first: the first that matches a group makes its kernel.

`nest` matches every group of ordered steps and no other; `rows` and `pointwise` together match
every group of one statement, whatever it computes.
"""

from __future__ import annotations

from anydim.compiler.kernels.attention import attention_template as attention
from anydim.compiler.kernels.concat import concat_template as ranges
from anydim.compiler.kernels.loop_nest import nest_template as nest
from anydim.compiler.kernels.matmul.contraction import contraction_template as contraction
from anydim.compiler.kernels.matmul.convolution import convolution_template as convolution
from anydim.compiler.kernels.matmul.int8 import int8_template as bytes_product
from anydim.compiler.kernels.matmul.weight_only_quant import quant_template as narrow
from anydim.compiler.kernels.matmul.winograd import winograd_template as winograd
from anydim.compiler.kernels.rows import pointwise
from anydim.compiler.kernels.rows import row_template as rows
from anydim.compiler.kernels.template import Template
from anydim.compiler.kernels.transpose import transpose_template as transposition
from anydim.compiler.kernels.window_reduction import window_template as sliding

TEMPLATES: tuple[Template, ...] = (
    nest.TEMPLATE,
    attention.TEMPLATE,
    winograd.planes_template(convolution.TEMPLATE),
    winograd.images_template(contraction.TEMPLATE),
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
