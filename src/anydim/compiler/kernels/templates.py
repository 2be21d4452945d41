"""The templates, most specific first: the first that matches a group makes its kernel.

`loop_nest` matches every group of ordered steps and no other; `rows` and `pointwise` together match
every group of one statement, whatever it computes.
"""

from __future__ import annotations

from anydim.compiler.kernels.attention import attention_template as attention
from anydim.compiler.kernels.concat import concat_template as concat
from anydim.compiler.kernels.loop_nest import nest_template as loop_nest
from anydim.compiler.kernels.matmul.contraction import contraction_template as contraction
from anydim.compiler.kernels.matmul.convolution import convolution_template as convolution
from anydim.compiler.kernels.matmul.int8 import int8_template as int8
from anydim.compiler.kernels.matmul.weight_only_quant import chosen_template as chosen_matrices
from anydim.compiler.kernels.matmul.weight_only_quant import quant_template as weight_only_quant
from anydim.compiler.kernels.matmul.winograd import winograd_template as winograd
from anydim.compiler.kernels.rows import pointwise
from anydim.compiler.kernels.rows import row_template as rows
from anydim.compiler.kernels.template import Template
from anydim.compiler.kernels.transpose import transpose_template as transpose
from anydim.compiler.kernels.window_reduction import window_template as window_reduction

TEMPLATES: tuple[Template, ...] = (
    loop_nest.TEMPLATE,
    attention.TEMPLATE,
    attention.BFLOAT16,
    winograd.planes_template(convolution.TEMPLATE),
    winograd.images_template(contraction.TEMPLATE),
    convolution.TEMPLATE,
    int8.TEMPLATE,
    int8.BFLOAT16,
    weight_only_quant.TEMPLATE,
    chosen_matrices.TEMPLATE,
    contraction.TEMPLATE,
    window_reduction.TEMPLATE,
    transpose.TEMPLATE,
    concat.TEMPLATE,
    rows.TEMPLATE,
    rows.PHASES,
    pointwise.TEMPLATE,
)
