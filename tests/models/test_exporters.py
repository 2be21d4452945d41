"""Promise: a network costs the same whichever exporter wrote it."""

from __future__ import annotations

import numpy
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto

import anydim as ad
from tests.models.building import graph, model, node

HEADS, DEPTH = 2, 8
WIDTH = HEADS * DEPTH
HIDDEN, INPUT = 24, 7  # no multiples of a vector


def session(made: ModelProto) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    )


# ---- attention as torch.export writes it --------------------------------------------------------


def computed_mask() -> list[NodeProto]:
    """allowed [b, 1, s, s]: the mask at (b, k), looked up by counted positions, as torch 2.13."""
    return [
        node("kept = Cast(mask)", to=9),
        node("shape = Shape(mask)"),
        node("rows = Gather(shape, first)"), node("columns = Gather(shape, second)"),
        node("row = Range(first, rows, second)"), node("column = Range(first, columns, second)"),
        node("row4 = Unsqueeze(row, inner)"), node("column1 = Unsqueeze(column, left)"),
        node("column2 = Unsqueeze(column, right)"),
        node("from = GreaterOrEqual(column2, first)"), node("all = And(always, from)"),
        node("both = Max(row4, column1)"), node("whole = Shape(both)"),
        node("row_all = Expand(row4, whole)"), node("column_all = Expand(column1, whole)"),
        node("row_last = Unsqueeze(row_all, last)"),
        node("column_last = Unsqueeze(column_all, last)"),
        node("places = Concat(row_last, column_last)", axis=-1),
        node("looked_up = GatherND(kept, places)"), node("allowed = And(all, looked_up)"),
        node("bias = Where(allowed, zero, least)"),
    ]  # fmt: skip


def attention(layers: int = 1) -> ModelProto:
    """x [b, s, 16] and mask [b, s] -> self-attention, `layers` times."""
    random = numpy.random.default_rng(0)
    held = {
        "first": numpy.array(0), "second": numpy.array(1), "inner": numpy.array([1, 2, 3]),
        "left": numpy.array([0, 1, 2]), "right": numpy.array([0, 1, 3]),
        "last": numpy.array([-1]),
        "always": numpy.array(True), "zero": numpy.float32(0), "root": numpy.float32(DEPTH**-0.25),
        "least": numpy.finfo(numpy.float32).min, "split": numpy.array([0, 0, HEADS, DEPTH]),
        "joined": numpy.array([0, 0, WIDTH]), "depth": numpy.array([DEPTH]),
        "all_rows": numpy.array([-1]), "start": numpy.array([0]), "two": numpy.array([2]),
        "three": numpy.array([3]),
    }  # fmt: skip
    nodes, x = computed_mask(), "x"
    for n in range(layers):
        for name in "qkvo":
            held[f"w{name}{n}"] = random.standard_normal((WIDTH, WIDTH)).astype("f4") / 4
            held[f"b{name}{n}"] = random.standard_normal(WIDTH).astype("f4") / 4
        for name in "qkv":
            nodes += [
                node(f"m{name}{n} = MatMul({x}, w{name}{n})"),
                node(f"l{name}{n} = Add(m{name}{n}, b{name}{n})"),
                node(f"h{name}{n} = Reshape(l{name}{n}, split)"),
                node(f"{name}{n} = Transpose(h{name}{n})", perm=[0, 2, 1, 3]),
            ]
        nodes += [
            node(f"ks{n} = Shape(k{n})"),
            node(f"before{n} = Slice(ks{n}, start, two)"),
            node(f"length{n} = Slice(ks{n}, two, three)"),
            node(f"flat{n} = Concat(all_rows, length{n}, depth)", axis=0),
            node(f"back{n} = Concat(before{n}, depth, length{n})", axis=0),
            node(f"kf{n} = Reshape(k{n}, flat{n})"),
            node(f"kt{n} = Transpose(kf{n})", perm=[0, 2, 1]),
            node(f"kb{n} = Reshape(kt{n}, back{n})"),
            node(f"qr{n} = Mul(q{n}, root)"), node(f"kr{n} = Mul(kb{n}, root)"),
            node(f"raw{n} = MatMul(qr{n}, kr{n})"), node(f"biased{n} = Add(raw{n}, bias)"),
            node(f"share{n} = Softmax(biased{n})", axis=-1), node(f"bad{n} = IsNaN(share{n})"),
            node(f"safe{n} = Where(bad{n}, zero, share{n})"),
            node(f"mixed{n} = MatMul(safe{n}, v{n})"),
            node(f"turned{n} = Transpose(mixed{n})", perm=[0, 2, 1, 3]),
            node(f"rows{n} = Reshape(turned{n}, joined)"),
            node(f"mo{n} = MatMul(rows{n}, wo{n})"), node(f"lo{n} = Add(mo{n}, bo{n})"),
            node(f"x{n} = Add(lo{n}, {x})"),
        ]  # fmt: skip
        x = f"x{n}"
    inputs = [f"x f[b, s, {WIDTH}]", "mask l[b, s]"]
    return model(graph("attention", inputs, nodes, [f"{x} f[b, s, {WIDTH}]"], held))


@pytest.fixture(scope="module")
def attentions():
    made = attention()
    return ad.compile(made), session(made)


def test_attention_with_a_computed_mask_is_one_kernel(attentions):
    compiled, _ = attentions
    names = [launch.kernel for launch in compiled.plan(b=2, s=5).launches]
    assert sum(name.startswith("attention") for name in names) == 1
    # queries and keys are scaled where they are made
    assert sum(name.startswith("contraction") for name in names) == 4
    assert len(names) - names.index(next(n for n in names if n.startswith("contraction"))) == 5


@pytest.mark.parametrize("b, s", [(1, 1), (1, 2), (3, 7), (2, 16), (2, 33), (1, 600)])
def test_attention_with_a_computed_mask(attentions, b: int, s: int):
    compiled, reference = attentions
    random = numpy.random.default_rng(b * s)
    x = random.standard_normal((b, s, WIDTH)).astype(numpy.float32)
    places = numpy.arange(s)
    masks = [
        numpy.ones((b, s), numpy.int64),
        (places < random.integers(1, s + 1, (b, 1))).astype(numpy.int64),  # padded right
        (places >= random.integers(0, s, (b, 1))).astype(numpy.int64),  # padded left
        random.integers(0, 2, (b, s)) * (numpy.arange(b)[:, None] > 0),  # a row without a key
    ]
    for mask in masks:
        (came,) = compiled(x=x, mask=mask).values()
        (wanted,) = reference.run(None, {"x": x, "mask": mask})
        numpy.testing.assert_allclose(came, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("b, s", [(0, 0), (0, 3), (2, 0)])
def test_attention_over_nothing(attentions, b: int, s: int):
    compiled, _ = attentions
    x, mask = numpy.zeros((b, s, WIDTH), numpy.float32), numpy.zeros((b, s), numpy.int64)
    (came,) = compiled(x=x, mask=mask).values()
    assert came.shape == (b, s, WIDTH)


# ---- recurrent networks: gates in another order -------------------------------------------------

ORDER = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}


def recurrent(kind: str, folded: bool) -> ModelProto:
    """x [t, n, 7] -> y, both directions; the gates of torch in ONNX's order, here or by nodes."""
    random, order = numpy.random.default_rng(1), ORDER[kind]
    held = {f"at{n}": numpy.array([n * HIDDEN]) for n in range(len(order) + 1)}
    held["zero"] = numpy.array([0])
    nodes: list[NodeProto] = []

    def gates(name: str, *columns: int) -> str:
        shape = (len(order) * HIDDEN, *columns)
        array = random.uniform(-0.2, 0.2, shape).astype(numpy.float32)
        if folded:
            array = numpy.concatenate([array[g * HIDDEN :][:HIDDEN] for g in order])
        held[name] = array
        if folded:
            return name
        for g in order:
            nodes.append(node(f"{name}.{g} = Slice({name}, at{g}, at{g + 1}, zero)"))
        parts = ", ".join(f"{name}.{g}" for g in order)
        nodes.append(node(f"{name}.all = Concat({parts})", axis=0))
        return f"{name}.all"

    for d in "fb":
        w, r = gates(f"w{d}", INPUT), gates(f"r{d}", HIDDEN)
        b, c = gates(f"b{d}"), gates(f"c{d}")
        nodes += [
            node(f"bc{d} = Concat({b}, {c})", axis=0),
            node(f"W{d} = Unsqueeze({w}, zero)"), node(f"R{d} = Unsqueeze({r}, zero)"),
            node(f"B{d} = Unsqueeze(bc{d}, zero)"),
        ]  # fmt: skip
    nodes += [node(f"{n} = Concat({n}f, {n}b)", axis=0) for n in "WRB"]
    more = {"linear_before_reset": 1} if kind == "GRU" else {}
    run = node(f"y = {kind}(x, W, R, B)", hidden_size=HIDDEN, direction="bidirectional", **more)
    inputs, outputs = [f"x f[t, n, {INPUT}]"], [f"y f[t, 2, n, {HIDDEN}]"]
    return model(graph(kind, inputs, [*nodes, run], outputs, held))


@pytest.mark.parametrize("kind", ["GRU", pytest.param("LSTM", marks=pytest.mark.slow)])
def test_gates_that_nodes_reorder_are_constants(kind: str):
    made = recurrent(kind, folded=False)
    compiled, plain = ad.compile(made), ad.compile(recurrent(kind, folded=True))
    here, there = compiled.plan(t=5, n=2), plain.plan(t=5, n=2)
    assert [launch.kernel for launch in here.launches] == [k.kernel for k in there.launches]
    assert here.constant_bytes == there.constant_bytes
    for t, n in [(1, 1), (5, 2), (9, 3)]:
        x = numpy.random.default_rng(t).standard_normal((t, n, INPUT)).astype(numpy.float32)
        numpy.testing.assert_array_equal(compiled(x=x)["y"], plain(x=x)["y"])
        (wanted,) = session(made).run(None, {"x": x})
        numpy.testing.assert_allclose(compiled(x=x)["y"], wanted, rtol=0, atol=2e-5)
