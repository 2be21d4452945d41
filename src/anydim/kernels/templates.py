"""The templates, most special first: the first that takes a group makes its kernel.

`rows` and `pointwise` together take every group of one statement, whatever it computes.
"""

from __future__ import annotations

from anydim.kernels import contraction, pointwise, rows
from anydim.kernels.template import Template

TEMPLATES: tuple[Template, ...] = (contraction.TEMPLATE, rows.TEMPLATE, pointwise.TEMPLATE)
