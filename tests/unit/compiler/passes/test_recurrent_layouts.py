"""Promise: recurrent layers make one matrix product of all their inputs, whatever their layout."""

from __future__ import annotations

import numpy
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad
from anydim.api.model import Model

HIDDEN, WIDTH = 5, 3


def written(
    batch_first: bool, directions: str, views: bool
) -> tuple[bytes, dict[str, numpy.ndarray]]:
    """A GRU as torch writes it; with `views`, weights are views of initializers."""
    random = numpy.random.default_rng(0)
    count = 2 if directions == "bidirectional" else 1
    shapes = {"w": (3 * HIDDEN, WIDTH), "r": (3 * HIDDEN, HIDDEN)}
    arrays = {
        name: random.standard_normal((count, *shape)).astype(numpy.float32) / 2
        for name, shape in shapes.items()
    }
    nodes, held, names = [], [], ["w", "r"]
    for name, array in arrays.items():
        if views and count == 1:
            held.append(numpy_helper.from_array(array[0], f"{name}_flat"))
            nodes.append(helper.make_node("Unsqueeze", [f"{name}_flat", "zero"], [name]))
        else:
            held.append(numpy_helper.from_array(array, name))
    held.append(numpy_helper.from_array(numpy.array([0]), "zero"))
    value = "x"
    if batch_first:
        nodes.append(helper.make_node("Transpose", ["x"], ["turned"], perm=[1, 0, 2]))
        value = "turned"
    nodes.append(helper.make_node(
        "GRU", [value, *names], ["y"], hidden_size=HIDDEN, direction=directions,
        linear_before_reset=1,
    ))  # fmt: skip
    shape = ["batch", "time", WIDTH] if batch_first else ["time", "batch", WIDTH]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], held)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(), arrays


def expected(x: numpy.ndarray, arrays: dict[str, numpy.ndarray], directions: str) -> numpy.ndarray:
    """y [time, directions, batch, hidden] in float64; x is [time, batch, width]."""
    results = []
    for number, (w, r) in enumerate(zip(arrays["w"], arrays["r"])):
        backwards = directions == "reverse" or number == 1
        h, states = numpy.zeros((x.shape[1], HIDDEN)), []
        for part in x[::-1] if backwards else x:
            z, reset, new = numpy.split(part @ w.T.astype(numpy.float64), 3, 1)
            own = numpy.split(h @ r.T.astype(numpy.float64), 3, 1)
            z, reset = (1 / (1 + numpy.exp(-gate)) for gate in (z + own[0], reset + own[1]))
            h = (1 - z) * numpy.tanh(new + reset * own[2]) + z * h
            states.append(h)
        results.append(states[::-1] if backwards else states)
    return numpy.array(results).reshape(len(results), *x.shape[:2], HIDDEN).swapaxes(0, 1)


def products(model: Model) -> list[str]:
    """The lines of matrix products in the schedule."""
    text = model.report.stages["schedule"]()
    return [line for line in text.splitlines() if "+=!" in line]


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("directions", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_layouts(batch_first: bool, directions: str) -> None:
    source, arrays = written(batch_first, directions, views=False)
    model = ad.compile(source)
    for time, batch in ((1, 1), (0, 2), (7, 1), (2, 0), (5, 3), (17, 2)):
        random = numpy.random.default_rng(time)
        x = random.standard_normal((time, batch, WIDTH)).astype(numpy.float32)
        got = model(x=x.swapaxes(0, 1) if batch_first else x)["y"]
        # float32 sums of at most eight products, and states that follow each other
        numpy.testing.assert_allclose(got, expected(x, arrays, directions), rtol=1e-4, atol=1e-5)
    # rows of x lie one behind the other: no product has its iterations apart from its rows
    early = [line for line in products(model) if "in 0:time" in line]
    assert len(early) == (2 if directions == "bidirectional" else 1)
    order = "i0 in 0:batch, i1 in 0:time" if batch_first else "i0 in 0:time, i1 in 0:batch"
    assert all("t0(i0, i1, i3)" in line and order in line for line in early)


def test_weights_that_are_views_of_initializers_are_constants() -> None:
    """Nothing but the products and the gates is left to do in a call, as with plain weights."""
    texts = []
    for views in (False, True):
        source, arrays = written(True, "forward", views)
        model = ad.compile(source)
        x = numpy.random.default_rng(1).standard_normal((2, 4, WIDTH)).astype(numpy.float32)
        right = expected(x.swapaxes(0, 1), arrays, "forward")
        numpy.testing.assert_allclose(model(x=x)["y"], right, rtol=1e-4, atol=1e-5)
        texts.append(sorted(model.report.kernels))
    assert texts[0] == texts[1]
