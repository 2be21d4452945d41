"""Each row of the table of onnxruntime's operators in half precision and in double, beside
onnxruntime in float32 on the same numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import anydim as ad
from anydim.compiler.frontends.onnx import import_model
from tests.unit.compiler.frontends.microsoft.beside import drawn, session, typed, written
from tests.unit.compiler.frontends.microsoft.test_rows import CASES

KINDS = {
    "float16": (TensorProto.FLOAT16, np.float16, 2e-2),
    "bfloat16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16, 1e-1),
    "float64": (TensorProto.DOUBLE, np.float64, 1e-3),
}
"""Types, and how far from float32 results may be, by the largest: inputs are the same numbers."""
ALL = [(name, kind) for name in CASES for kind in KINDS]
QUICK = ALL[:: len(ALL) // 6 + 1]
SLOW = [pytest.param(*each, marks=pytest.mark.slow) for each in ALL if each not in QUICK]


def retyped(proto: onnx.ModelProto, kind: str) -> onnx.ModelProto:
    """The model with another type in place of float32."""
    number, dtype, _ = KINDS[kind]
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    for value in made.graph.input:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = number
    for held in made.graph.initializer:
        if held.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(held).astype(dtype)
            held.CopyFrom(numpy_helper.from_array(array, held.name))
    return made


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize(("name", "kind"), [*QUICK, *SLOW])
def test_a_row_in_another_type(name, kind):
    inputs, nodes, constants = CASES[name]
    outputs = [output for each in nodes for output in each.output if output]
    proto = written(nodes, inputs, outputs, 11 if name.endswith("11") else 18, **constants)
    _, dtype, allowed = KINDS[kind]
    model = ad.compile(retyped(proto, kind))
    feeds = drawn(proto, {"n": 3, "m": 2})
    given = {
        own: array.astype(dtype) if array.dtype == np.float32 else array
        for own, array in feeds.items()
    }
    back = {own: array.astype(feeds[own].dtype) for own, array in given.items()}
    reference = typed(proto, import_model(proto.SerializeToString()))
    expected = session(reference).run(outputs, back)
    made = model(**given)
    for output, right in zip(outputs, expected):
        got = made[output]
        assert got.shape == right.shape
        assert got.dtype in (right.dtype, dtype), output
        if right.dtype.kind == "f":
            most = allowed * max(1.0, float(np.abs(right).max(initial=0)))
            np.testing.assert_allclose(got.astype(np.float64), right, rtol=0, atol=most)
        else:
            assert (np.abs(got.astype(int) - right.astype(int)) <= 1).all()
