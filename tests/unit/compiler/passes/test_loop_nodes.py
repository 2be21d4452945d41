"""Promise: a loop around matrix products becomes a loop of kernels and keeps its meaning."""

from __future__ import annotations

import numpy
import pytest

import anydim.compiler.ops  # noqa: F401  operators of graphs
from anydim.base.dtypes import boolean, float32
from anydim.compiler.graph import regions
from anydim.compiler.graph.evaluate import evaluate
from anydim.compiler.graph.nodes import FUSED, Constant, Graph, Node
from anydim.compiler.graph.text import print_graph
from anydim.compiler.graph.verify import verify
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.passes.loop_nodes import Recur
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, as_size

ELMAN = """
def f(float(T,B,I) x, float(B,C) h0, float(I,C) w, float(C,C) r) -> (h) {
  for t in T {
    if t == 0 {
      h(t,b,c) +=! r(k,c) * h0(b,k)
    } else {
      h(t,b,c) +=! r(k,c) * h(t-1,b,k)
    }
    h(t,b,c) += w(k,c) * x(t,b,k)
  }
}"""
STATE = """
def f(float(T,B,I) x, float(B,C) h0, float(I,C) w, float(C,C) r) -> (h, y) {
  h(b,c) = h0(b,c)
  for t in 0:T {
    z(b,c) +=! x(t,b,k) * w(k,c)
    z(b,c) += h(b,k) * r(c,k)
    h(b,c) = tanh(z(b,c))
    y(t,b,c) = h(b,c) + 1
  }
}"""
DOWN = """
def f(float(T,B,I) x, float(B,C) h0, float(I,C) w, float(C,C) r) -> (h) {
  h(T,b,c) = h0(b,c)
  for t in T-1 : -1 : -1 {
    h(t,b,c) +=! h(t+1,b,k) * r(k,c)
    h(t,b,c) += x(t,b,k) * w(k,c)
  }
}"""
OUTER = """
def f(float(T,B,I) x, float(B,C) h0, float(I,C) w, float(C,C) r) -> (h, g) {
  h(b,c) = h0(b,c)
  g(c,i) = 0 where c in 0:C, i in 0:I
  for t in T-1 : -1 : -1 {
    z(b,c) +=! h(b,k) * r(k,c)
    h(b,c) = tanh(z(b,c))
    g(c,i) += h(b,c) * x(t,b,i)
  }
}"""
PREFIX = """
def f(float(T,B,I) x, float(B,C) h0, float(I,C) w, float(C,C) r) -> (h) {
  h(b,c) = h0(b,c)
  for t in T {
    z(b,c) +=! h(b,k) * r(k,c) where b in 0:B, c in 0:C, k in 0:min(t, C)
    h(b,c) = tanh(z(b,c)) + h0(b,c)
  }
}"""
NAMES = ("x", "h0", "w", "r")
SIZES = [(0, 2, 3, 4), (1, 1, 1, 1), (3, 2, 5, 7), (2, 0, 3, 2), (5, 3, 2, 49), (2, 2, 0, 3)]


def elman(x, h0, w, r):
    states, h = [], h0
    for x_t in x:
        h = h @ r + x_t @ w
        states.append(h)
    return [numpy.array(states).reshape(len(x), *h0.shape)]


BYTES = """
def f(float(T,B,I) x, float(B,C) h0, float(I,C) w, float(C,C) r) -> (h, y) {
  bytes(k,c) = cast<int8>(int(30 * r(k,c)))
  h(b,c) = h0(b,c)
  for t in 0:T {
    q(b,k) = cast<int8>(int(20 * h(b,k)))
    sums(b,c) +=! (int(q(b,k)) - 3) * int(bytes(k,c))
    h(b,c) = tanh(cast<float>(sums(b,c)) / 1000 + h0(b,c))
    y(t,b,c) = h(b,c)
  }
}"""


def of_bytes(x, h0, w, r):
    h, y = h0, []
    for _ in x:
        h = numpy.tanh((numpy.trunc(20 * h) - 3) @ numpy.trunc(30 * r) / 1000 + h0)
        y.append(h)
    return [h, numpy.array(y).reshape(len(x), *h0.shape)]


def state(x, h0, w, r):
    h, y = h0, []
    for x_t in x:
        h = numpy.tanh(x_t @ w + h @ r.T)
        y.append(h + 1)
    return [h, numpy.array(y).reshape(len(x), *h0.shape)]


def down(x, h0, w, r):
    states, h = [h0], h0
    for x_t in x[::-1]:
        h = h @ r + x_t @ w
        states.append(h)
    return [numpy.array(states[::-1])]


def outer(x, h0, w, r):
    h, g = h0, numpy.zeros((h0.shape[1], x.shape[2]))
    for x_t in x[::-1]:
        h = numpy.tanh(h @ r)
        g = g + h.T @ x_t
    return [h, g]


def prefix(x, h0, w, r):
    h = h0
    for t in range(len(x)):
        h = numpy.tanh(h[:, :t] @ r[:t]) + h0
    return [h]


def graph_of(text: str, constant: numpy.ndarray | None = None) -> Graph:
    (definition,) = parse(text).values()
    t, b, i, c = (as_size(name) for name in "TBIC")
    shapes = ((t, b, i), (b, c), (i, c), (c, c))
    if constant is not None:
        shapes = ((t, b, i), (b, as_size(len(constant))), (i, as_size(len(constant))),
                  tuple(map(as_size, constant.shape)))  # fmt: skip
    kinds = [TensorType(float32, shape) for shape in shapes]
    box = Box.of(*(Dim(name) for name in "TBIC"))
    group = instantiate(definition, kinds, {}, box)
    outputs = tuple(tensor.name for tensor in group.outputs)
    node = Node(FUSED, NAMES, tuple(f"{name}_out" for name in outputs), {"group": group}, "f")
    types = dict(zip(NAMES, kinds))
    types |= {f"{tensor.name}_out": tensor.type for tensor in group.outputs}
    inputs = NAMES if constant is None else NAMES[:3]
    constants = {} if constant is None else {"r": Constant(constant)}
    return Graph("f", box, types, inputs, node.outputs, constants, (node,))


def data(sizes: tuple[int, ...], seed: int) -> dict[str, numpy.ndarray]:
    random = numpy.random.default_rng(seed)
    t, b, i, c = sizes
    shapes = ((t, b, i), (b, c), (i, c), (c, c))
    return {
        name: (random.standard_normal(shape) / 3).astype(numpy.float32)
        for name, shape in zip(NAMES, shapes)
    }


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        (ELMAN, elman),
        (STATE, state),
        (DOWN, down),
        (BYTES, of_bytes),
        (OUTER, outer),
        (PREFIX, prefix),
    ],
    ids=["elman", "state", "down", "bytes", "outer", "prefix"],
)
def test_the_loop_keeps_its_meaning(text, reference):
    graph = graph_of(text)
    made = verify(Recur(Machine()).run(graph))
    assert regions.LOOP in {node.operator for node in made.nodes}, print_graph(made)
    for number, sizes in enumerate(SIZES):
        values = data(sizes, number)
        right = reference(*(value.astype(numpy.float64) for value in values.values()))
        for some in (graph, made):
            got = evaluate(some, values)
            for name, expected in zip(graph.outputs, right):
                # float32 sums of at most 49 products of size about 0.1
                numpy.testing.assert_allclose(got[name], expected, rtol=1e-4, atol=1e-5)


def test_what_does_not_depend_on_the_state_is_done_before_the_loop():
    made = Recur(Machine()).run(graph_of(STATE))
    before, loop = [], None
    for node in made.nodes:
        if node.operator == regions.LOOP:
            loop = node
            break
        before.append(node)
    assert loop is not None
    sums = [s for node in before if node.operator == FUSED for s in node.group.statements
            if s.combine]  # fmt: skip
    assert [len(s.axes) for s in sums] == [3]  # over iterations, rows and columns in one product
    body = loop.attributes[regions.REGION].body
    products = [s for node in body.nodes if node.operator == FUSED for s in node.group.statements
                if s.combine]  # fmt: skip
    assert len(products) == 1


def test_a_constant_matrix_is_a_constant_of_the_iteration():
    """Its panels are packed when it is loaded; one that comes at a call is packed in the call."""
    matrix = numpy.eye(5, dtype=numpy.float32)
    made = Recur(Machine()).run(graph_of(STATE, matrix))
    (loop,) = (node for node in made.nodes if node.operator == regions.LOOP)
    assert list(loop.attributes[regions.REGION].body.constants) == ["r"]


def test_constants_around_bodies_are_constants_in_them():
    """A graph made of nodes passes a constant to its loop and its branch as an operand."""
    kind, square = (TensorType(float32, (as_size(n), as_size(3))) for n in ("B", 3))
    box = Box.of(Dim("B"))
    body = Graph(
        "body", box, {"x": kind, "w": square, "r": kind}, ("x", "w"), ("r",),
        nodes=(Node("matmul", ("x", "w"), ("r",)),),
    )  # fmt: skip
    counted = body.replace(box=box.also(Dim("step")))
    loop = regions.LoopRegion(counted, "step", as_size(4), False, 1)
    either = regions.BranchRegion(body, body, None)
    graph = Graph(
        "f", box, {"x": kind, "w": square, "q": TensorType(boolean, ()), "y": kind, "z": kind},
        ("x", "q"), ("z",), {"w": Constant(2 * numpy.eye(3, dtype=numpy.float32))},
        (Node(regions.LOOP, ("x", "w"), ("y",), {regions.REGION: loop}),
         Node(regions.BRANCH, ("q", "y", "w"), ("z",), {regions.REGION: either})),
    )  # fmt: skip
    made = verify(Recur(Machine()).run(verify(graph)))
    assert [node.inputs for node in made.nodes] == [("x",), ("q", "y")]
    for node in made.nodes:
        assert all(list(held.constants) == ["w"] for held in node.region.held.values())
    x = numpy.ones((2, 3), numpy.float32)
    values = {"x": x, "q": numpy.array(True)}
    assert (evaluate(made, values)["z"] == evaluate(graph, values)["z"]).all()
    assert (evaluate(made, values)["z"] == 32 * x).all()


def test_a_loop_without_products_stays_one_kernel():
    text = """
    def f(float(T,B,I) x, float(B,C) h0, float(I,C) w, float(C,C) r) -> (y) {
      for t in 1:T {
        y(0,b,i) = x(0,b,i)
        y(t,b,i) = y(t-1,b,i) + x(t,b,i)
      }
    }"""
    text = text.replace("for t in 1:T {\n        y(0,b,i) = x(0,b,i)", "y(0,b,i) = x(0,b,i)\n"
                        "      for t in 1:T {")  # fmt: skip
    (definition,) = parse(text).values()
    t, b, i, c = (as_size(name) for name in "TBIC")
    kinds = [TensorType(float32, s) for s in ((t, b, i), (b, c), (i, c), (c, c))]
    box = Box.of(Dim("T", 1), Dim("B"), Dim("I"), Dim("C"))
    group = instantiate(definition, kinds, {}, box)
    node = Node(FUSED, NAMES, ("y",), {"group": group}, "f")
    types = {**dict(zip(NAMES, kinds)), "y": group.outputs[0].type}
    graph = Graph("f", box, types, NAMES, ("y",), {}, (node,))
    assert Recur(Machine()).run(graph).nodes == (node,)
