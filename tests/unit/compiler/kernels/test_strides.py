"""Promise: elements a few places apart come out of whole vectors, and nothing behind is read."""

from __future__ import annotations

import numpy
import pytest

from anydim.base.dtypes import DType, float32, float64, int64, uint8
from anydim.compiler.kernels.ir_text import print_kernel
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.rows import pointwise
from anydim.compiler.targets.evaluated.evaluator import run
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size


@pytest.mark.parametrize(
    ("dtype", "step"),
    [(uint8, 4), (float32, 2), (float32, 3), (float32, 4), (int64, 2), (float64, 2)], ids=str,
)  # fmt: skip
def test_every_few_elements(dtype: DType, step: int) -> None:
    """The evaluator of loop IR checks every access."""
    text = (
        f"def f(T(R,N) x) -> (y) {{ y(r,i) = x(r,{step}*i) where i in 0:(N+{step - 1})//{step} }}"
    )
    (definition,) = parse(text).values()
    box, machine = Box.of(Dim("R"), Dim("N")), Machine(vector_bytes=32)
    kind = TensorType(dtype, (as_size("R"), as_size("N")))
    group = instantiate(definition, (kind,), {}, box)
    schedule = pointwise.TEMPLATE.match(group, box, machine, frozenset())
    assert schedule is not None
    launch = pointwise.TEMPLATE.lower(group, schedule, box, machine, frozenset())
    assert "shuffle" in print_kernel(launch.kernel)
    for rows, count in ((1, 1), (3, 7), (2, 33), (1, 131), (2, 64), (1, 260)):
        x = numpy.arange(rows * count).reshape(rows, count).astype(dtype.numpy)
        y = numpy.zeros_like(x[:, ::step], order="C")
        sizes = [size.evaluate({"R": rows, "N": count}) for size in launch.sizes]
        parallel = launch.parallel.evaluate({"R": rows, "N": count})
        run(launch.kernel, [x, y], sizes, 0, parallel)
        numpy.testing.assert_array_equal(y, x[:, ::step])
