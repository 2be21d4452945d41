"""Every operator that an engine is given means the same there, at the sizes of all tests."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import anydim as ad
from anydim.base.errors import GraphError
from anydim.compiler.graph.operator import OPERATORS
from anydim.compiler.passes.delegate.onnx_operators import ROWS
from tests.ops.cases import CASES
from tests.ops.test_operators import SIZES, build, feed

QUICK = (
    "add", "where", "softmax", "reduce_mean", "matmul", "gemm", "conv", "max_pool", "reshape",
    "slice", "gather", "resize", "size_tensor",
)  # fmt: skip
HANDED = [(name, number) for name in ROWS for number in range(len(CASES[name]))]


def run(engine: str, name: str, number: int) -> None:
    pytest.importorskip(engine)
    case, low = CASES[name][number], 0
    try:
        model = ad.compile(build(name, case), placement={"*": engine})
        if "does not support empty tensors" in model.explain(details=True):
            low = 1
            model = ad.compile(build(name, case, low), placement={"*": engine})
        graph = build(name, case, low)
        host = ad.compile(graph)
    except GraphError as error:
        pytest.skip(str(error))  # no input tells a dim
    if not model.program.engines:
        why = [
            line
            for line in model.explain(details=True).splitlines()
            if "does not support it" in line
        ]
        pytest.skip(" ".join(why))
    for n, m in (sizes for sizes in SIZES if min(sizes) >= low):
        values = feed(graph, case, OPERATORS[name].domain, {"n": n, "m": m})
        if name == "batch_norm":
            values["x4"] = np.abs(values["x4"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, expected = (as_arrays(each(**values)) for each in (model, host))
        for made, right in zip(found, expected):
            assert made.dtype == right.dtype and made.shape == right.shape
            # functions and sums have other last places in other libraries
            np.testing.assert_allclose(made, right, rtol=2e-5, atol=2e-5, err_msg=f"{n}, {m}")


def as_arrays(results: object) -> list[np.ndarray]:
    if isinstance(results, dict):
        return list(results.values())
    return list(results) if isinstance(results, (tuple, list)) else [np.asarray(results)]


@pytest.mark.sampled(most=11)
@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("name", QUICK)
def test_some_operators(name: str, engine: str) -> None:
    run(engine, name, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), HANDED, ids=[f"{a}-{b}" for a, b in HANDED])
@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_operator(engine: str, name: str, number: int) -> None:
    run(engine, name, number)
