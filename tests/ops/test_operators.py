"""Every operator of the library means what numpy says, at the sizes where things go wrong."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import anydim.compiler.ops  # noqa: F401
from anydim.base.dtypes import DTYPES, boolean, convert_array, is_float
from anydim.base.errors import GraphError
from anydim.compiler.frontends.builder import Builder
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.operator import OPERATORS
from anydim.compiler.graph.reader import read_graph
from anydim.compiler.graph.text import print_graph
from anydim.compiler.graph.verify import verify
from anydim.lang.tree import TensorType
from anydim.sizes import as_size
from tests.ops.case import Case
from tests.ops.cases import CASES

SIZES = [(0, 1), (1, 1), (7, 2), (8, 0), (9, 5), (13, 3)]
ALL = [(name, number) for name, cases in CASES.items() for number in range(len(cases))]


def test_every_operator_has_cases():
    assert set(CASES) == set(OPERATORS)


def build(name: str, case: Case, low: int = 0, fixed: dict[str, int] | None = None):
    """The graph of one operator over dims n and m, from `low` up, or `fixed`."""
    g = Builder(name)
    for dim in ("n", "m"):
        g.dim(dim, *((fixed[dim], fixed[dim]) if fixed else (low, 64)))
    inputs = []
    for number, text in enumerate(case.inputs):
        dtype, _, shape = text.rstrip("]").partition("[")
        sizes = [as_size(part.strip()) for part in shape.split(",") if part.strip()]
        sizes = [as_size(size.evaluate(fixed)) for size in sizes] if fixed else sizes
        inputs.append(g.input(f"x{number}", DTYPES[dtype], sizes))
    attributes = {("to" if k == "to_type" else k): v for k, v in case.attributes.items()}
    made = getattr(g, name)(*inputs, **attributes)
    for number, value in enumerate(made if isinstance(made, tuple) else (made,)):
        g.output(f"y{number}", value)
    return verify(g.graph())


def feed(graph, case: Case, domain: tuple[float, float], sizes: dict[str, int]):
    random = np.random.default_rng(sum(sizes.values()))
    values = {}
    for name in graph.inputs:
        kind = graph.types[name]
        shape = [size.evaluate(sizes) for size in kind.shape]
        if kind.dtype.is_float:
            data = random.uniform(*domain, shape)
        elif kind.dtype.is_integer:
            data = random.integers(case.low, case.high, shape)
        else:
            data = random.random(shape) < 0.5
        values[name] = np.asarray(data).astype(kind.dtype.numpy)
    return values


@pytest.mark.parametrize(("name", "number"), ALL, ids=[f"{a}-{b}" for a, b in ALL])
def test_operator_means_what_numpy_says(name, number):
    case = CASES[name][number]
    graph = build(name, case)
    assert read_graph(print_graph(graph), graph.constants) == graph
    for n, m in SIZES:
        sizes = {"n": n, "m": m}
        values = feed(graph, case, OPERATORS[name].domain, sizes)
        if name == "batch_norm":
            values["x4"] = np.abs(values["x4"])
        got = evaluate_at(graph, values, sizes)
        exact = [v.astype(np.float64) if is_float(v.dtype) else v for v in values.values()]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's mean of nothing
            expected = case.reference(*exact, n=n, m=m)
        expected = expected if isinstance(expected, tuple) else (expected,)
        assert len(expected) == len(got)
        for output, right, made in zip(graph.outputs, expected, got.values()):
            kind = graph.types[output]
            assert made.dtype == kind.dtype.numpy
            assert made.shape == tuple(size.evaluate(sizes) for size in kind.shape)
            if not kind.dtype.is_native:
                wide = np.dtype(np.float64)
                made, right = (convert_array(np.asarray(a), wide) for a in (made, right))
            np.testing.assert_allclose(made, right, rtol=2e-5, atol=2e-5, err_msg=f"{sizes}")


def evaluate_at(graph, values, sizes):
    """Evaluate; dims that no input binds get their sizes from an input made for that."""
    bound = {d for name in graph.inputs for size in graph.types[name].shape for d in size.symbols}
    types = dict(graph.types)
    extra = {}
    for name in sizes.keys() - bound:
        types[f"only_{name}"] = TensorType(boolean, (as_size(name),))
        extra[f"only_{name}"] = np.zeros(sizes[name], bool)
    wider = graph.replace(types=types, inputs=(*graph.inputs, *extra))
    return evaluate(wider, {**values, **extra})


def test_special_values():
    """NaN and infinities pass as the standard asks."""
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 1.0], np.float32)
    right = {
        "is_nan": np.isnan(odd),
        "is_inf": np.isinf(odd),
        "relu": np.maximum(odd, 0),
        "abs": np.abs(odd),
        "sigmoid": np.array([np.nan, 1, 0, 0.5, 1 / (1 + np.exp(-1))]),
        "softplus": np.array([np.nan, np.inf, 0, np.log(2), np.log(1 + np.e)]),
        "identity": odd,
    }
    for name, expected in right.items():
        graph = build(name, Case(("float32[n]",), None))
        got = evaluate_at(graph, {"x0": odd}, {"n": 5, "m": 0})["y0"]
        np.testing.assert_allclose(got, expected, rtol=1e-6, err_msg=name)


def test_log_sum_exp_does_not_overflow():
    graph = build("reduce_log_sum_exp", Case(("float32[n, m]",), None, {"axes": (1,)}))
    x = np.array([[1000, 1000], [-np.inf, -np.inf], [-1000, -np.inf]], np.float32)
    got = evaluate_at(graph, {"x0": x}, {"n": 3, "m": 2})["y0"]
    np.testing.assert_allclose(got, [1000 + np.log(2), -np.inf, -1000], rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "inputs", "attributes", "problem"),
    [
        ("matmul", ("float32[n, 3]", "float32[4, m]"), {}, "3"),
        ("matmul", ("float32[]", "float32[4]"), {}, "scalars"),
        ("add", ("float32[n]", "int64[n]"), {}, "int64"),
        ("transpose", ("float32[n, m]",), {"perm": (0, 0)}, "perm (0, 0) does not order 2 axes"),
        ("reduce_sum", ("float32[n, m]",), {"axes": (2,)}, "axis 2 of a tensor with 2 axes"),
        ("reduce_sum", ("float32[n, m]",), {"axes": (1, -1)}, "name an axis twice"),
        ("reshape", ("float32[n, 3]",), {"shape": (-1, -1)}, "more than one size is -1"),
        ("reshape", ("float32[2, 3]",), {"shape": (7,)}, "keeps every element"),
        ("squeeze", ("float32[n, 3]",), {"axes": (1,)}, "3 == 1 does not hold"),
        ("expand", ("float32[3]",), {"shape": (4,)}, "broadcast"),
        ("softmax", ("float32[n]",), {"acis": 0}, "no attribute 'acis'"),
        ("concat", ("float32[n]", "float32[n, m]"), {}, "cannot be concatenated"),
        ("einsum", ("float32[n, m]",), {"equation": "ijk->k"}, "does not fit"),
        ("einsum", ("float32[n, m]",), {"equation": "ij->k"}, "is in no input"),
        ("einsum", ("float32[n, m]",), {"equation": "i j;"}, "sequence of letters"),
        ("gather", ("float32[n]", "float32[n]"), {}, "expected integers"),
        ("slice", ("float32[n]",), {"starts": (0,), "ends": (1,), "steps": (0,)}, "step 0"),
        ("one_hot", ("int64[n]", "float32[2]"), {}, "needs its attribute 'depth'"),
        ("pad", ("float32[n]",), {"before": (1,), "after": (0,), "mode": "odd"}, "mode 'odd'"),
    ],
)
def test_misuse_says_what_is_wrong(name, inputs, attributes, problem):
    with pytest.raises(GraphError) as caught:
        build(name, Case(inputs, None, attributes))
    assert problem in str(caught.value)
