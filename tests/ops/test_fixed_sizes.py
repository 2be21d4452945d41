"""Promise: an operator compiles with its dims fixed at any size inside their bounds, and means the
same."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import convert_array, is_float
from anydim.base.errors import UserError
from anydim.compiler.graph.operator import OPERATORS
from tests.ops.cases import CASES
from tests.ops.test_operators import ALL, build, evaluate_at, feed

RANKED = ("squeeze", 0)  # without axes: those whose size is known to be 1
FIXED = [(0, 0), (0, 1), (1, 0), (1, 1), (7, 0), (0, 3)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), ALL, ids=[f"{a}-{b}" for a, b in ALL])
def test_fixed_sizes(name: str, number: int) -> None:
    case = CASES[name][number]
    graph = build(name, case)
    if (name, number) == RANKED:
        pytest.skip("its rank follows from what is fixed")
    for n, m in FIXED:
        sizes = {"n": n, "m": m}
        values = feed(graph, case, OPERATORS[name].domain, sizes)
        try:
            expected = evaluate_at(graph, values, sizes)
        except UserError:  # the operator refuses these sizes
            continue
        got = ad.compile(build(name, case, fixed=sizes), threads=1)(**values)
        for output, right in expected.items():
            made = got[output]
            assert (made.dtype, made.shape) == (right.dtype, right.shape), sizes
            if is_float(right.dtype):
                wide = np.dtype(np.float64)
                made, right = (convert_array(np.asarray(each), wide) for each in (made, right))
            np.testing.assert_allclose(made, right, rtol=1e-3, atol=1e-3, err_msg=f"{sizes}")
