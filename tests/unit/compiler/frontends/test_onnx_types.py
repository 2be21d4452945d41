"""Promise: operators of floats mean on integers, flags and mixed types what the standard says."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import anydim as ad
from tests.unit.compiler.frontends.models import node

KINDS = {
    np.dtype(name): getattr(TensorProto, kind) for name, kind in (
        ("float16", "FLOAT16"), ("float32", "FLOAT"), ("float64", "DOUBLE"), ("int32", "INT32"),
        ("int64", "INT64"), ("uint8", "UINT8"), ("uint32", "UINT32"), ("int8", "INT8"),
        ("bool", "BOOL"),
    )
}  # fmt: skip
R = np.random.default_rng(3)


def compiled(text: str, outputs: str, opset: int = 22, fixed: dict | None = None, **inputs):
    """The model of a node whose inputs have a dim for each axis, and its reference."""
    fixed = fixed or {}
    made = node(text, **fixed)
    values = [
        helper.make_tensor_value_info(
            name, KINDS[array.dtype], [f"{name}{axis}" for axis in range(array.ndim)]
        )
        for name, array in inputs.items()
    ]
    results = [helper.make_tensor_value_info(name, 0, None) for name in outputs.split()]
    for value in results:
        value.ClearField("type")
    graph = helper.make_graph([made], "g", values, results)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def whole(dtype: str, *shape: int, low: int = 0) -> np.ndarray:
    return R.integers(low, 9, shape).astype(dtype)


INTEGERS = ("int32", "int64", "uint32")
CASES = [
    *(("y = Gemm(a, b, c)", {"alpha": 0.25, "beta": 0.35, "transA": 1},
       {"a": whole(t, 4, 3), "b": whole(t, 4, 5), "c": whole(t, 5)}) for t in INTEGERS),
    ("y = Gemm(a, b)", {}, {"a": whole("int64", 3, 4), "b": whole("int64", 4, 5)}),
    ("y = Gemm(a, b, c)", {"transB": 1},
     {"a": whole("int32", 0, 4), "b": whole("int32", 5, 4), "c": whole("int32", 1, 5)}),
    *(("y = Shrink(x)", {"lambd": 1.5, "bias": 0.7}, {"x": whole(t, 7, low=low)})
      for t, low in (("int32", -8), ("int64", -8), ("uint8", 0), ("int8", -8))),
    *(("y = ReduceL2(x)", {"keepdims": 0}, {"x": whole(t, 3, 4)}) for t in INTEGERS),
    *(("y = Pow(x, p)", {}, {"x": whole(t, 9), "p": np.array(e, p)})
      for t in ("int32", "int64") for e, p in ((3, "float64"), (3, "float32"), (0.5, "float32"))),
    ("y = ScatterElements(x, i, u)", {"axis": 0, "reduction": "add"},
     {"x": whole("bool", 4), "i": np.int64([1, 1, 3]), "u": whole("bool", 3)}),
]  # fmt: skip


@pytest.mark.sampled(most=6)
@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda n: CASES[n][0] + f" {n}")
def test_results_are_of_the_type_of_the_input(case):
    text, fixed, inputs = CASES[case]
    proto = compiled(text, "y", fixed=fixed, **inputs)
    with np.errstate(all="ignore"):
        (expected,) = ReferenceEvaluator(proto).run(None, inputs)
    made = ad.compile(proto)(**inputs)["y"]
    first = next(iter(inputs.values()))
    assert made.dtype == first.dtype
    np.testing.assert_array_equal(made, expected.astype(first.dtype))


def test_nine_to_the_third():
    x, p = np.int64([1, 2, 9]), np.float64([4, 5, 3])
    proto = compiled("y = Pow(x, p)", "y", x=x, p=p)
    assert ad.compile(proto)(x=x, p=p)["y"].tolist() == [1, 32, 729]


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_images_of_integers_are_interpolated(dtype, mode):
    x = whole(dtype, 1, 1, 4, 4) * 5
    made = helper.make_node("Resize", ["x", "", "f"], ["y"], mode=mode)
    values = [helper.make_tensor_value_info("x", KINDS[x.dtype], [1, 1, "h", "w"])]
    factors = helper.make_tensor("f", TensorProto.FLOAT, [4], [1, 1, 2, 0.75])
    result = helper.make_tensor_value_info("y", KINDS[x.dtype], None)
    graph = helper.make_graph([made], "g", values, [result], [factors])
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    got = ad.compile(model)(x)["y"]
    assert got.dtype == x.dtype and got.any()
    if dtype == "uint8":
        expected = np.clip(expected, 0, 255)
    assert np.abs(got.astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_scales_of_another_type(dtype):
    """Half precision images beside statistics in float32, as mixed precision leaves them."""
    x = R.standard_normal((2, 3, 4, 5)).astype(dtype)
    rest = {name: R.random(3).astype(np.float32) + 0.5 for name in "sbmv"}
    proto = compiled("y = BatchNormalization(x, s, b, m, v)", "y", opset=15, x=x, **rest)
    wide = {name: array.astype(np.float64)[:, None, None] for name, array in rest.items()}
    right = (x.astype(np.float64) - wide["m"]) / np.sqrt(wide["v"] + 1e-5) * wide["s"] + wide["b"]
    made = ad.compile(proto)(x=x, **rest)["y"]
    assert made.dtype == x.dtype
    np.testing.assert_allclose(made, right, rtol=2e-3 if dtype == "float16" else 1e-12, atol=2e-3)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_statistics_are_of_the_type_that_stash_type_names(dtype):
    x, s = R.standard_normal((3, 8)).astype(dtype), np.ones(8, dtype)
    proto = compiled("y, m, d = LayerNormalization(x, s)", "y m d", opset=17, x=x, s=s)
    made = ad.compile(proto)(x=x, s=s)
    assert [array.dtype for array in made.values()] == [dtype, np.float32, np.float32]
    np.testing.assert_allclose(made["m"], x.astype(np.float64).mean(1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_a_normalisation_whose_body_is_of_float32(dtype):
    x = R.standard_normal((2, 3, 4, 5)).astype(dtype)
    proto = compiled("y = MeanVarianceNormalization(x)", "y", opset=13, x=x)
    wide = x.astype(np.float64)
    right = wide - wide.mean((0, 2, 3), keepdims=True)
    right /= right.std((0, 2, 3), keepdims=True) + 1e-9
    made = ad.compile(proto)(x=x)["y"]
    assert made.dtype == dtype
    np.testing.assert_allclose(made, right, atol=4e-3 if dtype == "float16" else 1e-12)


@pytest.mark.parametrize("types", [("float16", "float32"), ("float32", "float16")], ids=str)
def test_values_of_attention_of_another_type(types):
    one, other = types
    q, k = (R.standard_normal((1, 2, 3, 4)).astype(one) for _ in range(2))
    v = R.standard_normal((1, 2, 3, 4)).astype(other)
    proto = compiled("y = Attention(q, k, v)", "y", opset=23, q=q, k=k, v=v)
    wide = [array.astype(np.float64) for array in (q, k, v)]
    scores = np.exp(wide[0] @ wide[1].swapaxes(2, 3) / 2)
    right = scores / scores.sum(-1, keepdims=True) @ wide[2]
    made = ad.compile(proto)(q=q, k=k, v=v)["y"]
    assert made.dtype == one
    np.testing.assert_allclose(made, right, atol=4e-3)
