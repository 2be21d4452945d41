"""ONNX models written node by node, and their comparison with onnxruntime at random sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import anydim as ad

KINDS = {
    "f": TensorProto.FLOAT, "l": TensorProto.INT64, "b": TensorProto.BOOL, "i": TensorProto.INT32,
    "u": TensorProto.UINT8,
}  # fmt: skip
OPSET = 18


def value(text: str) -> onnx.ValueInfoProto:
    """'x f[n, 4]' as a declared value; 'x' alone has no type."""
    name, _, kind = text.partition(" ")
    if not kind:
        return onnx.ValueInfoProto(name=name)
    parts = [part.strip() for part in kind[2:-1].split(",") if part.strip()]
    shape = [int(part) if part.isdigit() else part for part in parts]
    return helper.make_tensor_value_info(name, KINDS[kind[0]], shape)


def node(text: str, **attributes: Any) -> onnx.NodeProto:
    """'y, z = Split(x, s)' as a node; attributes as keywords."""
    outputs, _, rest = text.partition(" = ")
    operator, _, inputs = rest.rstrip(")").partition("(")
    given = [name.strip() for name in inputs.split(",")] if inputs.strip() else []
    made = [name.strip() for name in outputs.split(",")]
    return helper.make_node(operator, given, made, name=f"/{made[0]}", **attributes)


def graph(
    name: str, inputs: Sequence[str], nodes: Sequence[onnx.NodeProto], outputs: Sequence[str],
    constants: Mapping[str, np.ndarray] | None = None,
) -> onnx.GraphProto:  # fmt: skip
    held = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    return helper.make_graph(list(nodes), name, list(map(value, inputs)),
                             list(map(value, outputs)), held)  # fmt: skip


def model(body: onnx.GraphProto, functions: Sequence[onnx.FunctionProto] = ()) -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", OPSET)]
    opsets += [helper.make_opsetid(domain, 1) for domain in {f.domain for f in functions}]
    proto = helper.make_model(body, opset_imports=opsets, functions=list(functions))
    proto.ir_version = 9
    return proto


def compare(
    proto: onnx.ModelProto, dims: Mapping[str, ad.Dim],
    draw: Callable[[np.random.Generator], dict[str, np.ndarray]], count: int = 50,
    tolerance: float = 1e-5,
) -> list[list[np.ndarray]]:  # fmt: skip
    """Results at `count` random inputs, each like those of onnxruntime.

    `tolerance` is relative and absolute: float32 sums of a few hundred terms in another order.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    theirs = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    ours = ad.compile(proto, dims=dict(dims))
    names = [output.name for output in proto.graph.output]
    rng = np.random.default_rng(11)
    found = []
    for _ in range(count):
        inputs = draw(rng)
        results = ours(**inputs)
        values = [results[name] for name in names] if isinstance(results, dict) else [results]
        for name, made, expected in zip(names, values, theirs.run(names, inputs)):
            assert made.shape == expected.shape, (name, made.shape, expected.shape)
            assert made.dtype == expected.dtype, name
            np.testing.assert_allclose(made, expected, rtol=tolerance, atol=tolerance)
        found.append(values)
    return found
