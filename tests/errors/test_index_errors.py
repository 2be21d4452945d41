"""Promise: an index that leaves its axis is an error of the call, whatever it was fused into and
however wide the loops are; nothing outside the tensor is read, and the next call works."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import numpy
import onnx
import pytest
from onnx import TensorProto, helper

import anydim as ad

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model_of(nodes, inputs, outputs, constants=None, threads=1, **dims):
    """A compiled ONNX model called 'm'; `inputs` and `outputs` are name -> (type, shape)."""
    graph = helper.make_graph(
        nodes, "m",
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(n, kind, shape) for n, (kind, shape) in outputs.items()],
        [onnx.numpy_helper.from_array(a, n) for n, a in (constants or {}).items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return ad.compile(made, {n: ad.Dim(*d) for n, d in dims.items()}, threads=threads)


def refused(text):
    """The call raises an InputError whose message holds this text."""
    return pytest.raises(ad.InputError, match=re.escape(text))


def table(rows, columns=5):
    return numpy.arange(rows * columns, dtype=numpy.float32).reshape(rows, columns) + 1


def lookup(threads=1):
    """y = weight[ids] with every size a dim."""
    node = helper.make_node("Gather", ["weight", "ids"], ["y"], name="/words/Gather")
    inputs = {"weight": (FLOAT, ["v", "d"]), "ids": (INT64, ["b", "s"])}
    outputs = {"y": (FLOAT, ["b", "s", "d"])}
    return model_of([node], inputs, outputs, threads=threads)


@pytest.fixture(scope="module", params=[1, 2])
def words(request):
    return lookup(request.param)


# ---- Gather ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 7, 64, 3000])
@pytest.mark.parametrize("rows, bad", [(4, 4), (4, -5), (1, 1), (1, -2), (9, 2**62), (9, -(2**63))])
def test_gather_refuses_what_is_outside(words, rows, bad, count):
    weight = table(rows)
    good = numpy.arange(2 * count).reshape(2, count) % (2 * rows) - rows
    for place in (0, count // 2, 2 * count - 1):
        wrong = good.copy()
        wrong.reshape(-1)[place] = bad
        with refused(f"/words/Gather of m: index {bad} is outside"):
            words(weight=weight, ids=wrong)
        assert numpy.array_equal(words(weight=weight, ids=good)["y"], weight[good])


def test_gather_from_an_empty_table(words):
    with refused("index 0 is outside an axis of 'weight', whose size"):
        words(weight=table(0), ids=numpy.zeros((1, 1), int))
    assert words(weight=table(0), ids=numpy.zeros((0, 3), int))["y"].shape == (0, 3, 5)
    assert words(weight=table(0, 0), ids=numpy.zeros((0, 3), int))["y"].shape == (0, 3, 0)


def test_all_indices_may_be_wrong(words):
    ids = numpy.full((40, 50), 7)
    with refused("index 7 is outside"):
        words(weight=table(7), ids=ids)


def test_what_the_error_says(words):
    with pytest.raises(ad.InputError) as caught:
        words(weight=table(4), ids=numpy.array([[0, 3, -5]]))
    assert str(caught.value) == (
        "/words/Gather of m: index -5 is outside -4..3 of 'weight' where v is 4\n"
        "  give indices from -4 to 3; they come from input 'ids'"
    )


def test_what_the_error_says_of_a_constant():
    node = helper.make_node("Gather", ["weight", "ids"], ["y"], name="/words/Gather")
    outputs, constants = {"y": (FLOAT, ["b", 5])}, {"weight": table(4)}
    model = model_of([node], {"ids": (INT64, ["b"])}, outputs, constants)
    with pytest.raises(ad.InputError) as caught:
        model(ids=numpy.array([4]))
    assert str(caught.value) == (
        "/words/Gather of m: index 4 is outside -4..3 of 'weight'\n"
        "  give indices from -4 to 3; they come from input 'ids'"
    )


def test_calls_are_independent(words):
    """Good, bad, good, in many orders; no error stays behind, none is lost."""
    chance = numpy.random.default_rng(3)
    for _ in range(60):
        rows, shape = chance.integers(1, 9), chance.integers(0, 12, 2)
        ids = chance.integers(-rows, rows + chance.integers(0, 2), shape)
        weight = table(rows, chance.integers(1, 40))
        if (ids >= rows).any():
            with refused(f"index {rows} is outside"):
                words(weight=weight, ids=ids)
        else:
            assert numpy.array_equal(words(weight=weight, ids=ids)["y"], weight[ids])


def test_an_error_belongs_to_its_call(words):
    """Several threads call one model; only those whose index is wrong hear of it."""
    weight = table(50, 64)

    def call(number):
        ids = numpy.full((30, 40), 50 + number if number % 2 else number)
        try:
            return numpy.array_equal(words(weight=weight, ids=ids)["y"], weight[ids])
        except ad.InputError as error:
            return f"index {50 + number} is outside" in str(error) and number % 2 == 1

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(call, range(48)))


# ---- what is fused with it ---------------------------------------------------------------------


def test_two_tables_in_one_kernel():
    nodes = [
        helper.make_node("Gather", ["words", "ids"], ["a"], name="/words"),
        helper.make_node("Gather", ["kinds", "types"], ["b"], name="/kinds"),
        helper.make_node("Add", ["a", "b"], ["c"], name="/add"),
        helper.make_node("Softmax", ["c"], ["y"], name="/softmax", axis=-1),
    ]
    inputs = {"ids": (INT64, ["b", "s"]), "types": (INT64, ["b", "s"])}
    constants = {"words": table(9), "kinds": table(2)}
    model = model_of(nodes, inputs, {"y": (FLOAT, ["b", "s", 5])}, constants)
    assert len(model.program.sites) == 1
    ids, types = numpy.array([[0, 8, 3]]), numpy.array([[0, 1, 1]])
    model(ids=ids, types=types)
    with refused("/words of m: index 9 is outside -9..8 of 'words'"):
        model(ids=ids + 1, types=types)
    with refused("/kinds of m: index 2 is outside -2..1 of 'kinds'"):
        model(ids=ids, types=types + 1)


@pytest.mark.parametrize("axis", [0, 1])
def test_gather_elements(axis):
    node = helper.make_node("GatherElements", ["x", "ids"], ["y"], name="/pick", axis=axis)
    inputs = {"x": (FLOAT, ["n", "m"]), "ids": (INT64, ["r", "c"])}
    model = model_of([node], inputs, {"y": (FLOAT, ["r", "c"])})
    for rows, columns in ((1, 1), (3, 17), (8, 64), (5, 129)):
        x = table(rows, columns)
        ids = numpy.random.default_rng(1).integers(-x.shape[axis], x.shape[axis], x.shape)
        y = model(x=x, ids=ids)["y"]
        assert numpy.array_equal(y, numpy.take_along_axis(x, ids % x.shape[axis], axis))
        for place in (0, ids.size // 2, ids.size - 1):
            for bad in (x.shape[axis], -x.shape[axis] - 1):
                wrong = ids.copy()
                wrong.reshape(-1)[place] = bad
                with refused(f"/pick of m: index {bad} is outside"):
                    model(x=x, ids=wrong)


def test_gather_along_the_last_axis():
    node = helper.make_node("Gather", ["x", "ids"], ["y"], name="/pick", axis=1)
    inputs = {"x": (FLOAT, ["n", "m"]), "ids": (INT64, ["c"])}
    model = model_of([node], inputs, {"y": (FLOAT, ["n", "c"])})
    x, ids = table(3, 7), numpy.arange(37) % 7
    assert numpy.array_equal(model(x=x, ids=ids)["y"], x[:, ids])
    for place in range(37):
        wrong = ids.copy()
        wrong[place] = 7
        with refused("index 7 is outside -7..6 of 'x' where m is 7"):
            model(x=x, ids=wrong)
    assert model(x=x[:0], ids=wrong)["y"].shape == (0, 37)


def test_an_index_into_a_part_is_checked_against_the_part():
    """Slice, then Gather: the slice moves no data, and still ends where it ends."""
    cuts = {name: numpy.array([value]) for name, value in (("from", 1), ("to", 4), ("on", 0))}
    nodes = [
        helper.make_node("Slice", ["x", "from", "to", "on"], ["part"]),
        helper.make_node("Gather", ["part", "ids"], ["y"], name="/pick"),
    ]
    inputs = {"x": (FLOAT, [9, 5]), "ids": (INT64, ["c"])}
    model = model_of(nodes, inputs, {"y": (FLOAT, ["c", 5])}, cuts)
    x = table(9)
    assert numpy.array_equal(model(x=x, ids=numpy.array([2, 0, -1]))["y"], x[[3, 1, 3]])
    with refused("/pick of m: index 3 is outside -3..2 of 'x'"):
        model(x=x, ids=numpy.array([3]))


def test_an_index_into_an_axis_without_data_is_checked():
    """Expand, then Gather: the axis is in no tensor."""
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["wide"]),
        helper.make_node("Gather", ["wide", "ids"], ["y"], name="/pick"),
    ]
    inputs = {"x": (FLOAT, [1, 5]), "ids": (INT64, ["c"])}
    constants = {"shape": numpy.array([3, 5])}
    model = model_of(nodes, inputs, {"y": (FLOAT, ["c", 5])}, constants)
    assert numpy.array_equal(model(x=table(1), ids=numpy.array([2, 0]))["y"], table(1)[[0, 0]])
    with refused("/pick of m: index 3 is outside -3..2"):
        model(x=table(1), ids=numpy.array([3]))


@pytest.mark.parametrize("constant", [False, True])
def test_a_table_of_one_row_is_checked(constant):
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Gather", ["e", "ids"], ["y"], name="/pick"),
    ]
    inputs = {"ids": (INT64, ["c"])} | ({} if constant else {"x": (FLOAT, [1])})
    constants = {"x": table(1, 1)[0]} if constant else {}
    model = model_of(nodes, inputs, {"y": (FLOAT, ["c"])}, constants)
    given = {} if constant else {"x": table(1, 1)[0]}
    assert model(ids=numpy.array([0, -1]), **given)["y"].shape == (2,)
    with refused("/pick of m: index 1 is outside -1..0"):
        model(ids=numpy.array([0, 1]), **given)


def test_a_constant_index_is_checked_before_anything_runs():
    node = helper.make_node("Gather", ["x", "where"], ["y"], name="/first", axis=1)
    inputs = {"x": (FLOAT, ["b", "s", 4])}
    model = model_of([node], inputs, {"y": (FLOAT, ["b", 4])}, {"where": numpy.array(2)})
    assert model.program.segments[0].positions == ()
    x = numpy.ones((2, 3, 4), numpy.float32)
    assert model(x=x)["y"].shape == (2, 4)
    needed = "; 's' must be at least 3 at b = 2"
    with refused(f"at b = 2, s = 2{needed}\n  m: /first: index 2 inside an axis of size s"):
        model(x=x[:, :2])
    assert model(x=x[:0, :2])["y"].shape == (0, 4)


# ---- definitions -------------------------------------------------------------------------------


def test_a_definition_that_looks_up():
    lib = ad.define("def embed(T(V,D) E, int64(B,L) I) -> (y) { y(b,d) +=! E(I(b,l),d) }")
    rows, ids = table(6, 33), numpy.array([[0, 5], [1, 1]])
    assert numpy.array_equal(lib.embed(rows, ids), rows[ids].sum(1))
    for bad in (6, -1):
        with pytest.raises(ad.InputError) as caught:
            lib.embed(rows, numpy.array([[0, 5], [1, bad]]))
        assert str(caught.value) == (
            f"<text>:1: embed: index {bad} is outside 0..5 of 'E' where V is 6\n"
            "  give indices from 0 to 5; they come from input 'I'"
        )
    assert numpy.array_equal(lib.embed(rows, ids), rows[ids].sum(1))


@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("span", ("0:n", "n:-1:-1"))
def test_a_loop_ends_with_the_iteration_that_fails(span, threads):
    """Without that, these would be 10^15 iterations."""
    text = f"""def f(float(N,C) x, int64 n) -> (y) {{
      y(i,c) = 0 where exists x(i,c)
      for t in {span} {{ y(t,c) = x(t,c) + (y(t - 1,c) else 0) }}
    }}"""
    function = ad.define(text, threads=threads).f
    x = numpy.ones((7, 40), numpy.float32)
    for n in (10**15, 8):
        with pytest.raises(ad.InputError, match=rf"index ({n}|7) is outside 0\.\.6 of 'x'"):
            function(x, n)
    assert function(x, 6).shape == (7, 40)


def test_an_index_that_no_proof_reaches():
    lib = ad.define("def f(T(N) x, T(M) y) -> (z) { z(i) = x(i - i // 2) + y(i) }")
    assert list(lib.f(numpy.array([1.0, 2.0]), numpy.zeros(3))) == [1, 2, 2]
    with refused("index 2 is outside 0..1 of 'x' where N is 2"):
        lib.f(numpy.array([1.0, 2.0]), numpy.zeros(5))


def test_an_index_of_an_index():
    lib = ad.define("def f(T(N) x, int64(M) j, int64(K) i) -> (y) { y(k) = x(j(i(k))) }")
    x, j = numpy.array([1.0, 2.0]), numpy.array([1, 0, 5])
    assert list(lib.f(x, j, [0, 1])) == [2, 1]
    with refused("index 5 is outside 0..1 of 'x'"):
        lib.f(x, j, [0, 2])
    with refused("index 3 is outside 0..2 of 'j'"):
        lib.f(x, j, [0, 3])


@pytest.mark.parametrize(
    "body",
    [
        "I(l) < N ? x(I(l)) : 0",
        "I(l) >= N ? 0 : x(I(l))",
        "I(l) < N && x(I(l)) > 0 ? x(I(l)) : 0",
        "(I(l) >= N || x(I(l)) > 0) && I(l) < N ? x(I(l)) : 0",
        "x(I(l)) else (I(l) < N ? x(I(l)) : 0)",
    ],
)
@pytest.mark.parametrize("count", [1, 16, 17, 64, 101])
def test_an_index_counts_only_where_its_value_is_used(body, count):
    lib = ad.define(f"def f(T(N) x, int64(L) I) -> (y) {{ y(l) = {body} }}")
    x, ids = numpy.arange(1.0, 11.0), numpy.arange(count) % 13
    expected = numpy.where(ids < 10, x[ids % 10], 0)
    assert numpy.array_equal(lib.f(x, ids), expected)
    ids[count // 2] = -1
    with refused("index -1 is outside 0..9 of 'x' where N is 10"):
        lib.f(x, ids)


def test_a_condition_of_the_row():
    """The condition is the same along a row whose elements are looked up."""
    lib = ad.define(
        "def f(T(V,D) E, int64(B) I, bool(B) on) -> (y) { y(b,d) = on(b) ? E(I(b),d) : 0 }"
    )
    rows, ids, on = table(4, 40), numpy.array([3, 99, 0]), numpy.array([True, False, True])
    expected = numpy.where(on[:, None], rows[ids % 4], 0)
    assert numpy.array_equal(lib.f(rows, ids, on), expected)
    with refused("index 99 is outside 0..3 of 'E'"):
        lib.f(rows, ids, ~on)


def test_a_range_that_leaves_indices_out():
    lib = ad.define(
        "def f(T(N) x, int64(M) I) -> (y) { y(i) +=! x(I(k)) where i in 0:M, k in 0:i }"
    )
    x = numpy.array([1.0, 2.0])
    assert list(lib.f(x, numpy.array([0, 1, 7]))) == [0, 1, 3]
    with refused("index 7 is outside"):
        lib.f(x, numpy.array([0, 7, 1]))


def test_rows_without_elements_look_nothing_up():
    lib = ad.define("def f(T(V,D) E, int64(B) I) -> (y) { y(b) +=! E(I(b),d) }")
    assert list(lib.f(numpy.zeros((2, 0)), numpy.array([5, 6]))) == [0, 0]
    assert list(lib.f(numpy.ones((2, 3)), numpy.array([1, 0]))) == [3, 3]
