"""Promise: branches, scans, sequences and functions give what onnxruntime gives at every size."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import anydim as ad
from tests.models.building import compare, graph, model, node

I64 = np.int64


def constants(**values: object) -> dict[str, np.ndarray]:
    """int64 arrays, and arrays as they are."""
    return {k: v if isinstance(v, np.ndarray) else np.array(v, I64) for k, v in values.items()}


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def some(rng: np.random.Generator, most: int = 20) -> int:
    return int(rng.choice([0, 1, 2, 7, 8, 9, int(rng.integers(0, most))]))


def test_branches_inside_branches_that_read_values_around_them() -> None:
    """Sizes differ between the branches: n, 2 n + 1 or what is not zero."""
    inner_then = graph("inner_then", [], [node("a = Concat(x, x, one)", axis=0)], ["a f[p]"])
    inner_else = graph(
        "inner_else", [],
        [node("at = NonZero(doubled)"), node("flat = Squeeze(at, first)"),
         node("b = Gather(doubled, flat)")], ["b f[q]"],
    )  # fmt: skip
    outer_then = graph(
        "outer_then", [],
        [node("doubled = Add(x, x)"),
         node("c = If(second)", then_branch=inner_then, else_branch=inner_else)],
        ["c f[r]"],
    )  # fmt: skip
    outer_else = graph("outer_else", [], [node("d = Relu(x)")], ["d f[n]"])
    nodes = [
        node("e = If(first_one)", then_branch=outer_then, else_branch=outer_else),
        node("y = Mul(e, two)"),
    ]
    held = constants(one=np.ones(1, np.float32), two=np.array(2, np.float32), first=[0])
    body = graph("nested", ["x f[n]", "first_one b[]", "second b[]"], nodes, ["y f[s]"], held)

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        x = np.maximum(floats(rng, some(rng)), 0)
        return {"x": x, "first_one": np.array(rng.random() < 0.7),
                "second": np.array(rng.random() < 0.5)}  # fmt: skip

    compare(model(body), {"n": ad.Dim(0, 32)}, draw)


def test_a_loop_inside_a_loop_reads_all_counters() -> None:
    """sum over i < rows, j < x[i] of i * j + table[j]; the inner number of iterations is data."""
    inner = graph(
        "inner", ["j l[]", "go_in b[]", "sum_in l[]"],
        [node("product = Mul(i, j)"), node("entry = Gather(table, j)"),
         node("both = Add(product, entry)"), node("sum_out = Add(sum_in, both)"),
         node("go_out = Identity(go_in)")],
        ["go_out b[]", "sum_out l[]"],
    )  # fmt: skip
    outer = graph(
        "outer", ["i l[]", "go b[]", "total l[]"],
        [node("trips = Gather(counts, i)"),
         node("inner_sum = Loop(trips, , zero)", body=inner),
         node("next = Add(total, inner_sum)"), node("on = Less(next, limit)")],
        ["on b[]", "next l[]", "inner_sum l[]"],
    )  # fmt: skip
    nodes = [
        node("shape = Shape(counts)"),
        node("rows = Squeeze(shape, first)"),
        node("total_out, sums = Loop(rows, yes, zero)", body=outer),
    ]
    held = constants(zero=0, first=[0], table=np.arange(10, dtype=I64) ** 2, limit=400)
    held["yes"] = np.array(True)
    body = graph("counting", ["counts l[n]"], nodes, ["total_out l[]", "sums l[m]"], held)

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"counts": rng.integers(0, 9, some(rng))}

    compare(model(body), {"n": ad.Dim(0, 32)}, draw)


def test_a_scan_with_axes_and_directions() -> None:
    """A running sum over columns from the right, kept column by column."""
    body = graph(
        "step", ["state f[r]", "column f[r]", "row f[c]"],
        [node("sum = Add(state, column)"), node("both = ReduceSum(row)", keepdims=0),
         node("state_out = Mul(sum, half)"), node("kept = Add(sum, both)")],
        ["state_out f[r]", "kept f[r]", "both f[]"],
    )  # fmt: skip
    nodes = [
        node(
            "last, all, totals = Scan(start, x, z)", body=body, num_scan_inputs=2,
            scan_input_axes=[1, 0], scan_input_directions=[1, 0],
            scan_output_axes=[1, 0], scan_output_directions=[1, 0],
        ),
    ]  # fmt: skip
    held = {"half": np.array(0.5, np.float32)}
    inputs = ["start f[r]", "x f[r, t]", "z f[t, c]"]
    outputs = ["last f[r]", "all f[r, t]", "totals f[t]"]

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        r, t, c = (max(some(rng), 1) for _ in range(3))  # onnxruntime divides by these sizes
        return {"start": floats(rng, r), "x": floats(rng, r, t), "z": floats(rng, t, c)}

    dims = {name: ad.Dim(0, 32) for name in "rtc"}
    compare(model(graph("scan", inputs, nodes, outputs, held)), dims, draw)


def test_a_sequence_that_grows_in_a_loop() -> None:
    """Rows of different lengths are collected and joined; one of them is taken again."""
    body = graph(
        "collect", ["i l[]", "go b[]", "parts"],
        [node("k = Gather(lengths, i)"), node("kv = Unsqueeze(k, first)"),
         node("part = Slice(x, first, kv, first)"),
         node("more = SequenceInsert(parts, part)"), node("on = Identity(go)")],
        ["on b[]", "more"],
    )  # fmt: skip
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ["k"]))
    body.input[2].type.CopyFrom(kind)
    body.output[1].type.CopyFrom(kind)
    nodes = [
        node("none = SequenceEmpty()"),
        node("shape = Shape(lengths)"),
        node("rows = Squeeze(shape, first)"),
        node("all = Loop(rows, , none)", body=body),
        node("joined = ConcatFromSequence(all)", axis=0),
        node("last = SequenceAt(all, minus)"),
        node("number = SequenceLength(all)"),
        node("fewer = SequenceErase(all, zero)"),
        node("left = SequenceLength(fewer)"),
    ]
    inputs = ["x f[n]", "lengths l[m]"]
    outputs = ["joined f[a]", "last f[b]", "number l[]", "left l[]"]
    held = constants(first=[0], minus=-1, zero=0)

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        n, m = some(rng), int(rng.integers(1, 9))
        return {"x": floats(rng, n), "lengths": rng.integers(0, n + 2, m)}

    dims = {"n": ad.Dim(0, 32), "m": ad.Dim(1, 16)}
    compare(model(graph("collecting", inputs, nodes, outputs, held)), dims, draw)


def test_functions_of_a_model_with_attributes() -> None:
    """A function in a function, with attributes handed on and defaults."""
    scaled = helper.make_function(
        "own", "Scaled", ["a"], ["b"],
        [node("c = LeakyRelu(a)"), node("b = Neg(c)")], [helper.make_opsetid("", 18)], ["alpha"],
    )  # fmt: skip
    slope = scaled.node[0].attribute.add()
    slope.name, slope.ref_attr_name, slope.type = "alpha", "alpha", 1
    twice = helper.make_function(
        "own", "Twice", ["x"], ["y"],
        [helper.make_node("Scaled", ["x"], ["h"], domain="own"),
         helper.make_node("Scaled", ["h"], ["y"], domain="own", alpha=0.25)],
        [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)],
    )  # fmt: skip
    handed = twice.node[0].attribute.add()
    handed.name, handed.ref_attr_name, handed.type = "alpha", "slope", 1
    twice.attribute_proto.append(helper.make_attribute("slope", 0.5))
    nodes = [
        helper.make_node("Twice", ["x"], ["h"], domain="own"),
        helper.make_node("Twice", ["h"], ["y"], domain="own", slope=0.125),
    ]
    body = graph("calls", ["x f[n, 3]"], nodes, ["y f[n, 3]"])

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": floats(rng, some(rng), 3)}

    compare(model(body, [scaled, twice]), {"n": ad.Dim(0, 32)}, draw)


def test_a_large_function_is_one_graph_for_all_calls() -> None:
    """Two hundred nodes and more are kept as a graph that nodes call, at sizes of their own."""
    chain = []
    for row in range(8):
        names = ["a", *(f"v{row}_{k}" for k in range(27))]
        steps = zip(names, names[1:], ("Relu", "Neg", "Tanh") * 9)
        chain += [node(f"{after} = {how}({before})") for before, after, how in steps]
    chain.append(node(f"b = Concat({', '.join(f'v{row}_26' for row in range(8))})", axis=0))
    long = helper.make_function("own", "Long", ["a"], ["b"], chain, [helper.make_opsetid("", 18)])
    nodes = [
        helper.make_node("Long", ["x"], ["y"], domain="own"),
        helper.make_node("Long", ["y"], ["z"], domain="own"),
        helper.make_node("Long", ["w"], ["u"], domain="own"),
    ]
    body = graph("calls", ["x f[n]", "w f[m]"], nodes, ["z f[a]", "u f[b]"])

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {"x": floats(rng, some(rng)), "w": floats(rng, some(rng))}

    compare(model(body, [long]), {"n": ad.Dim(0, 32), "m": ad.Dim(0, 32)}, draw)


def test_bags_whose_bounds_are_sliced_by_a_counter() -> None:
    """Sums of rows, as torch's exporter writes an EmbeddingBag: bounds are slices i : i + 1."""
    none = graph("none", [], [node("zeros = Identity(nothing)")], ["zeros f[1, 3]"])
    rows = graph(
        "rows", [], [node("bag = Slice(x, start, end)"), node("sum = ReduceSum(bag, first)")],
        ["sum f[1, 3]"],
    )  # fmt: skip
    body = graph(
        "bags", ["i l[]", "go b[]", "number l[]", "parts"],
        [node("place = Reshape(number, minus)"), node("next = Add(place, one)"),
         node("after = Add(place, two)"), node("start = Slice(bounds, place, next)"),
         node("end = Slice(bounds, next, after)"), node("empty = Equal(start, end)"),
         node("row = If(empty)", then_branch=none, else_branch=rows),
         node("more = SequenceInsert(parts, row)"), node("following = Add(number, one)"),
         node("on = Less(following, bags)")],
        ["on b[]", "following l[]", "more"],
    )  # fmt: skip
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [1, 3]))
    body.input[3].type.CopyFrom(kind)
    body.output[2].type.CopyFrom(kind)
    nodes = [
        node("empty_list = SequenceEmpty()"),
        node("length = Shape(x)", start=0, end=1),
        node("bounds = Concat(offsets, length)", axis=0),
        node("bags = Size(offsets)"),
        node("any = Less(zero, bags)"),
        node("last, all = Loop(, any, zero, empty_list)", body=body),
        node("y = ConcatFromSequence(all)", axis=0),
    ]
    held = constants(zero=0, one=1, two=2, minus=[-1], first=[0])
    held["nothing"] = np.zeros((1, 3), np.float32)

    def draw(rng: np.random.Generator) -> dict[str, np.ndarray]:
        n, bags = some(rng), int(rng.integers(1, 9))
        offsets = np.sort(rng.integers(0, n + 1, bags))
        offsets[0] = 0
        return {"x": floats(rng, n, 3), "offsets": offsets}

    inputs = ["x f[n, 3]", "offsets l[b]"]
    whole = model(graph("bags_of_rows", inputs, nodes, ["y f[m, 3]"], held))
    compare(whole, {"n": ad.Dim(0, 32), "b": ad.Dim(1, 16)}, draw)


def test_bounds_that_a_table_does_not_hold_are_refused() -> None:
    """A slice i : i + 1 of bounds has one element, or none, which no rank can be told by."""
    nodes = [
        node("next = Add(place, one)"), node("after = Add(place, two)"),
        node("start = Slice(bounds, place, next)"), node("end = Slice(bounds, next, after)"),
        node("y = Slice(x, start, end)"),
    ]  # fmt: skip
    inputs = ["x f[n, k]", "bounds l[b]", "place l[1]"]
    compiled = ad.compile(
        model(graph("sliced", inputs, nodes, ["y f[p, k]"], constants(one=[1], two=[2])))
    )
    x, bounds = floats(np.random.default_rng(0), 9, 2), np.array([0, 4, 4, 9])
    for place, (start, end) in enumerate([(0, 4), (4, 4), (4, 9)]):
        assert (compiled(x=x, bounds=bounds, place=np.array([place]))["y"] == x[start:end]).all()
    for place in (3, 4, -1, 99):
        with pytest.raises(ad.InputError):
            compiled(x=x, bounds=bounds, place=np.array([place]))
