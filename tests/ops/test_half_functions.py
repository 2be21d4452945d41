"""Promise: functions of float16 and bfloat16 are right to a unit, at every one of their numbers.

One operator computes in float32 and rounds once; between operators values are rounded, so results
do not depend on what runs together.
"""

from __future__ import annotations

import re

import numpy
import pytest

import anydim as ad
import anydim.compiler.ops
from anydim.api.model import Model
from anydim.base.dtypes import DType, bfloat16, convert_array, float16
from anydim.compiler.frontends.builder import Builder
from anydim.compiler.graph.operator import OPERATORS
from anydim.compiler.passes.options import KernelOptions

_UNARY = re.compile(r"def \w+\(T\(\.\.\.i\) x(;|\))")
_OTHER = {"cast", "identity", "bit_not", "is_nan", "is_inf"}
NAMES = [
    name
    for name, record in OPERATORS.items()
    if record.file == "elementwise.tc" and _UNARY.search(str(record.text)) and name not in _OTHER
]
# beside one unit: what float32's own formula loses where its terms cancel, relative to x
LOST = {"gelu": 5e-7, "gelu_tanh": 5e-7, "hard_swish": 1e-7, "hard_sigmoid": 1e-7}


def every(dtype: DType) -> numpy.ndarray:
    return numpy.arange(1 << 16, dtype=numpy.uint16).view(dtype.numpy)


def model_of(dtype: DType, names: list[str], chained: bool = False, fuse: bool = True) -> Model:
    """Each operator on x, or on what the one before it gives; all are results."""
    g = Builder("functions")
    x = g.input("x", dtype, (g.dim("n"),))
    for name in names:
        made = getattr(g, name)(x)
        g.output(name, made)
        x = made if chained else x
    return ad.compile(g.graph(), options=KernelOptions(fuse=fuse))


@pytest.fixture(scope="module")
def wide_model() -> Model:
    return model_of(ad.float64, NAMES)


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_every_number(dtype: DType, wide_model: Model) -> None:
    x = every(dtype)
    came = model_of(dtype, NAMES)(x=x)
    with numpy.errstate(all="ignore"):
        wide = convert_array(x, numpy.dtype(float))
        for name, want in wide_model(x=wide).items():
            got, near = (convert_array(a, numpy.dtype(float)) for a in (came[name], want))
            nearest = convert_array(convert_array(want, dtype.numpy), numpy.dtype(float))
            numpy.testing.assert_array_equal(numpy.isnan(got), numpy.isnan(nearest), err_msg=name)
            numpy.testing.assert_array_equal(numpy.isinf(got), numpy.isinf(nearest), err_msg=name)
            known = numpy.isfinite(nearest)
            allowed = unit(near, dtype) + LOST.get(name, 0) * numpy.abs(wide)
            wrong = known & (numpy.abs(got - near) > allowed)
            assert not wrong.any(), (name, x[wrong][:5], got[wrong][:5], near[wrong][:5])


def unit(values: numpy.ndarray, dtype: DType) -> numpy.ndarray:
    """The distance to the next number of the type."""
    fraction, least = (10, -14) if dtype == float16 else (7, -126)
    exponent = numpy.frexp(values)[1] - 1
    return numpy.exp2(numpy.maximum(exponent, least) - fraction)


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_results_do_not_depend_on_what_is_fused(dtype: DType) -> None:
    """The same bits in one kernel, in several, and one operator after the other."""
    chain = ["gelu", "hard_swish", "elu", "softsign"]
    x = every(dtype)
    fused = model_of(dtype, chain, chained=True)
    apart = model_of(dtype, chain, chained=True, fuse=False)
    assert len(fused.report.chosen) < len(apart.report.chosen)
    together, several = fused(x=x), apart(x=x)
    value = x
    for name in chain:
        value = model_of(dtype, [name])(x=value)[name]
        for came in (together, several):
            same = came[name].view(numpy.uint16) == value.view(numpy.uint16)
            assert (same | (came[name] != came[name])).all(), name
