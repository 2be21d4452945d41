"""Small models of onnxruntime's own operators, and what they mean beside onnxruntime.

    beside(written([node("y = Gelu(x)")], ["x f[n, 3]"], ["y"]), {"n": 5})

The graph that the importer makes is evaluated in numpy, without a compile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from anydim.compiler.frontends.onnx import import_model
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.nodes import Graph
from anydim.compiler.graph.verify import verify
from tests.unit.compiler.frontends.models import value

TOLERANCES = {np.dtype(np.float16): 2e-3, np.dtype(np.float32): 2e-5}
"""onnxruntime computes float32 too, in another order, with approximations of exp, tanh and erf."""


def written(
    nodes: list[onnx.NodeProto], inputs: list[str], outputs: list[str], opset: int = 18,
    **constants: Any,
) -> onnx.ModelProto:  # fmt: skip
    """A model whose nodes are of domain com.microsoft where they name no domain."""
    graph = helper.make_graph(
        nodes, "tiny", [value(text) for text in inputs],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def typed(proto: onnx.ModelProto, graph: Graph) -> onnx.ModelProto:
    """The model with the types of its results, which onnxruntime does not always find."""
    for output in proto.graph.output:
        kind = helper.np_dtype_to_tensor_dtype(graph.types[output.name].dtype.numpy)
        output.type.tensor_type.elem_type = kind
    return proto


def node(text: str, domain: str = "com.microsoft", **attributes: Any) -> onnx.NodeProto:
    """`y, , z = SkipLayerNormalization(x, s, , b)`"""
    left, right = text.split(" = ")
    operator, inputs = right.rstrip(")").split("(")
    names = [part.strip() for part in inputs.split(",")] if inputs.strip() else []
    results = [part.strip() for part in left.split(",")]
    return helper.make_node(operator, names, results, f"/{left}", domain=domain, **attributes)


def drawn(proto: onnx.ModelProto, sizes: Mapping[str, int], seed: int = 0) -> dict[str, Any]:
    """Inputs at these sizes: normal floats, bytes, small integers and flags."""
    random = np.random.default_rng((seed, *sizes.values()))
    feeds = {}
    for given in proto.graph.input:
        kind = given.type.tensor_type
        shape = [d.dim_value if d.HasField("dim_value") else sizes[d.dim_param]
                 for d in kind.shape.dim]  # fmt: skip
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if dtype.itemsize == 1 and dtype.kind in "iu":
            info = np.iinfo(dtype)
            feeds[given.name] = random.integers(info.min, info.max + 1, shape).astype(dtype)
        elif dtype.kind == "f":
            feeds[given.name] = random.standard_normal(shape).astype(dtype)
        elif dtype.kind == "b":
            feeds[given.name] = random.random(shape) < 0.6
        else:
            feeds[given.name] = random.integers(0, 6, shape).astype(dtype)
    return feeds


def beside(
    proto: onnx.ModelProto, sizes: Mapping[str, int], graph: Graph | None = None,
    tolerance: float | None = None, **feeds: Any,
) -> None:  # fmt: skip
    """Types, shapes and values of all results are those of onnxruntime, at these sizes."""
    feeds = {**drawn(proto, sizes), **feeds}
    graph = verify(import_model(proto.SerializeToString())) if graph is None else graph
    names = [output.name for output in proto.graph.output]
    expected = session(proto).run(names, feeds)
    with np.errstate(all="ignore"):
        got = evaluate(graph, {name: feeds[name] for name in graph.inputs})
    for name, right in zip(names, expected):
        assert got[name].dtype == right.dtype, name
        assert got[name].shape == right.shape, name
        allowed = TOLERANCES.get(right.dtype, 0.0) if tolerance is None else tolerance
        np.testing.assert_allclose(got[name], right, rtol=allowed, atol=allowed, err_msg=name)


def session(proto: onnx.ModelProto) -> Any:
    """onnxruntime with the model as it stands."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
