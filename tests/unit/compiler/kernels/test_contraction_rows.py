"""Products of few steps and any number of rows stay within their scratch, which the evaluator of
the loop IR checks."""

from __future__ import annotations

import numpy
import pytest

from anydim.base.dtypes import float32
from anydim.compiler.kernels.matmul.contraction import contraction_template as contraction
from anydim.compiler.targets.processor import describe_processor
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.launching import Prepared

BOX = Box.of(Dim("n", 0, 40), Dim("m", 1, 40))


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_rows_of_a_product_of_few_steps(level: str, steps: int) -> None:
    """13 rows, which are one tile of two vectors, wrote beyond the sums of as many panels."""
    text = "t(i,j) +=! a(i,k) * b(j,k)\ny(i,j) = bfloat16(0.5 * t(i,j))"  # sums lie in scratch
    definition = parse_definition(f"def f(float(N,K) a, float(M,K) b) -> (y) {{ {text} }}", "<t>")
    shapes = [(as_size(name), as_size(steps)) for name in "nm"]
    group = instantiate(definition, [TensorType(float32, shape) for shape in shapes], {}, BOX)
    prepared = Prepared(group, [contraction.TEMPLATE], BOX, describe_processor(level).machine)
    random = numpy.random.default_rng(steps)
    for rows in (1, 8, 9, 12, 13, 14, 16, 25):
        for columns in (1, 5, 17):
            a, b = (random.normal(size=(n, steps)).astype("f") for n in (rows, columns))
            (found,) = prepared.outputs([a, b], {"n": rows, "m": columns})
            numpy.testing.assert_allclose(found.astype("f"), 0.5 * a @ b.T, 1e-2, 1e-2)
