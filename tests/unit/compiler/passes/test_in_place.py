"""Promise: what dies in a launch lends its bytes to the result, and no result changes by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy
import onnx.parser
import pytest

import anydim as ad
from anydim.compiler.passes.in_place import in_place, number_launches, updates
from anydim.compiler.passes.options import given_options
from anydim.sizes import Size

W, N = 32, Size.symbol("n")
SIZES = (0, 1, 7, 130)


def weights(seed: int) -> numpy.ndarray:
    return numpy.random.default_rng(seed).standard_normal((W, W), numpy.float32) / W


def chain(g: ad.Builder, x: ad.Value) -> Mapping[str, ad.Value]:
    """All but `inner` dies where the next value is made."""
    y = g.softmax(g.matmul(x, g.constant(weights(0))), axis=1)
    inner = g.relu(g.matmul(y, g.constant(weights(1))))
    y = g.add(g.matmul(inner, g.constant(weights(2))), y)
    return {"y": g.softmax(g.exp(y), axis=1)}


def read_later(g: ad.Builder, x: ad.Value) -> Mapping[str, ad.Value]:
    """What is read again keeps its bytes, under another shape too; so do inputs and results.

    The kernel of `d` keeps exponentials in its result and reads its operand after that.
    """
    first = g.softmax(x, axis=0)
    turned = g.reshape(first, shape=(W, x.shape[0]))
    second = g.softmax(g.softmax(first, axis=1), axis=0)
    third = g.add(g.matmul(second, g.constant(weights(2))), second)
    fourth = g.mul(g.softmax(third, axis=0), third)
    return {"a": second, "b": g.softmax(g.softmax(turned, axis=0), axis=1), "d": fourth}


def compiled(make: Callable[..., Mapping[str, ad.Value]], memory: str, threads: int) -> ad.Model:
    g = ad.Builder("made")
    for name, value in make(g, g.input("x", ad.float32, (g.dim("n", 0, 256), W))).items():
        g.output(name, value)
    options = given_options({"made": {"memory": memory}}, ["made"])["made"]
    return ad.compile(g, threads=threads, options=options)


@pytest.mark.parametrize("make", [chain, read_later])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_same_bits_as_with_bytes_of_its_own_for_each(
    make: Callable[..., Mapping[str, ad.Value]], threads: int
) -> None:
    shared, apart = (compiled(make, memory, threads) for memory in ("stacked", "apart"))
    for n in SIZES:
        x = numpy.random.default_rng(n).standard_normal((n, W), numpy.float32)
        given = x.copy()
        found, expected = shared(x=x), apart(x=x)
        assert numpy.array_equal(x, given)
        for name, value in expected.items():
            assert found[name].tobytes() == value.tobytes(), (name, n)


def test_a_chain_lies_in_the_array_of_its_result() -> None:
    segment = compiled(chain, "stacked", 1).program.segments[0]
    assert [buffer.bytes for buffer in segment.buffers if buffer.kind == "arena"] == [4 * W * N]
    assert [site.operands.count("y") for site in segment.sites] == [1, 2, 1, 2, 2]


@pytest.mark.parametrize("n", [0, 1, 3, 17])
def test_inputs_under_another_shape_are_read_where_they_lie(n: int) -> None:
    """A kernel that wants windows cannot take them apart: it reads the caller's array, once."""
    text = """
    <ir_version: 10, opset_import: ["": 21]>
    g (float[n,18,20] x) => (y, z, v) {
        i = Constant <value = int64[2] {4,5}> ()
        b = Constant <value = int64[2] {3,3}> ()
        r = Constant <value = int64[3] {0,2,180}> ()
        y = Col2Im <pads=[1,1,1,1]> (x, i, b)
        z = Reshape (x, r)
        t = Reshape (z, r)
        v = Softmax <axis=2> (t)
    }
    """
    model = ad.compile(onnx.parser.parse_model(text).SerializeToString())
    x = numpy.random.default_rng(n).standard_normal((n, 18, 20), numpy.float32)
    given = x.copy()
    found = model(x=x)
    numpy.testing.assert_array_equal(x, given)
    numpy.testing.assert_array_equal(found["z"], x.reshape(n, 2, 180))
    assert not any(numpy.shares_memory(made, x) for made in found.values())
    windows = x.reshape(n, 2, 3, 3, 4, 5)
    expected = numpy.zeros((n, 2, 6, 7), numpy.float32)
    for i, j in numpy.ndindex(3, 3):
        expected[:, :, i : i + 4, j : j + 5] += windows[:, :, i, j]
    numpy.testing.assert_allclose(found["y"], expected[:, :, 1:5, 1:6], rtol=1e-5, atol=1e-6)
    if n:
        e = numpy.exp(found["z"].astype(numpy.float64))
        numpy.testing.assert_allclose(found["v"], e / e.sum(2, keepdims=True), rtol=1e-5)
    for segment in model.program.segments:  # scratch of a thread alone, whatever n is
        arena = [buffer.bytes for buffer in segment.buffers if buffer.kind == "arena"]
        assert all(bytes.constant for bytes in arena)


# ---- decisions on launches written by hand ------------------------------------------------------


def launch(reads: str, writes: str, *pairs: str, goes_on: bool = False) -> Any:
    """A launch of values named by letters, `a'` being `a` under another shape.

    Its tensors are the same letters in capitals; a pair "ba" lets B lie where A does.
    """
    values = {name.upper(): name for name in (*reads.split(), *writes.split())}
    allowed = tuple((pair[0].upper(), pair[1:].upper()) for pair in pairs)
    return SimpleNamespace(
        reads=tuple(reads.split()), writes=tuple(writes.split()), values=values, goes_on=goes_on,
        launch=SimpleNamespace(in_place=allowed),
    )  # fmt: skip


def root(value: str) -> str:
    return value.rstrip("'")


def bytes_of(value: str) -> Size:
    """Values are equally large but for `l`."""
    return (8 if value == "l" else 4) * N


MAKES_A = launch("x", "a")
DECISIONS = {
    "a dies": ([MAKES_A, launch("a", "b", "ba")], "ba"),
    "a dies under another shape": ([MAKES_A, launch("a'", "b", "ba'")], "ba"),
    "the kernel allows none": ([MAKES_A, launch("a", "b")], ""),
    "a is read later": ([MAKES_A, launch("a", "b", "ba"), launch("a", "c")], ""),
    "later under another shape": ([MAKES_A, launch("a", "b", "ba"), launch("a'", "c")], ""),
    "a is written later": ([MAKES_A, launch("a", "b", "ba"), launch("x", "a")], ""),
    "a is read twice by the launch": ([MAKES_A, launch("a a'", "b", "ba")], ""),
    "b is there before": ([MAKES_A, launch("x", "b"), launch("a", "b", "ba")], ""),
    "b is read before": ([MAKES_A, launch("b", "c"), launch("a", "b", "ba")], ""),
    "x is an input": ([launch("x", "a", "ax")], ""),
    "r is a result of the graph": ([launch("x", "r"), launch("r", "b", "br")], ""),
    "a becomes the result r": ([MAKES_A, launch("a", "r", "ra")], "ra"),
    "l has more bytes": ([launch("x", "l"), launch("l", "b", "bl")], ""),
    "two results, one operand": ([MAKES_A, launch("a", "b c", "ba", "ca")], "ba"),
    "one result, two operands": ([launch("x", "a c"), launch("a c", "b", "ba", "bc")], "ba"),
    "two of each": ([launch("x", "a c"), launch("a c", "b d", "ba", "da", "bc", "dc")], "ba dc"),
    "not the first pair": ([launch("x", "l a"), launch("l a", "b", "bl", "ba")], "ba"),
    "not the first of an input": ([MAKES_A, launch("x a", "b", "bx", "ba")], "ba"),
    "one after the other": ([MAKES_A, launch("a", "b", "ba"), launch("b", "c", "cb")], "ba cb"),
    "a group of two launches": (
        [MAKES_A, launch("a", "s b", goes_on=True), launch("a", "b", "ba"), launch("b", "c", "cb")],
        "ba cb",
    ),
    "a is read after a group": (
        [MAKES_A, launch("a", "b", goes_on=True), launch("a", "b", "ba"), launch("a", "c")], "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DECISIONS)
def test_which_values_lie_in_an_operand(name: str) -> None:
    launches, expected = DECISIONS[name]
    assert list(in_place(launches, root, "xy", "r", bytes_of)) == [*map(tuple, expected.split())]


MAKES_R = launch("x", "r", "rx")
UPDATES = {
    "x is read once": ([MAKES_R], "rx"),
    "x is read by one after another shape": ([launch("x'", "r", "rx'")], "rx"),
    "the kernel allows none": ([launch("x", "r")], ""),
    "x is read before": ([launch("x", "a"), MAKES_R], "rx"),
    "x is read later": ([MAKES_R, launch("x", "a")], ""),
    "later under another shape": ([MAKES_R, launch("x'", "a")], ""),
    "x is read before and later": ([launch("x", "a"), MAKES_R, launch("x", "b")], ""),
    "x is read twice by the launch": ([launch("x x'", "r", "rx")], ""),
    "x is read thrice by the launch": ([launch("x x' x", "r", "rx")], ""),
    "r is written before": ([launch("y", "r"), MAKES_R], ""),
    "r holds another value before": ([launch("y", "r'"), launch("r' x", "r", "rx")], ""),
    "r is read later": ([MAKES_R, launch("r", "a")], "rx"),
    "r is written later": ([MAKES_R, launch("r", "r'")], "rx"),
    "a is no result of the graph": ([launch("x", "a", "ax")], ""),
    "a is no input": ([MAKES_A, launch("a", "r", "ra")], ""),
    "l has more bytes": ([launch("l", "r", "rl")], ""),
    "two inputs": ([launch("x y", "r", "rx", "ry")], "rx ry"),
    "two results": ([launch("x", "r q", "rx", "qx")], "rx qx"),
    "not the first pair": ([launch("a x l", "b r", "bx", "ra", "rl", "rx")], "rx"),
    "two launches": ([MAKES_R, launch("y", "q", "qy")], "rx qy"),
    "the second of a group": ([launch("x", "r", goes_on=True), MAKES_R], "rx"),
    "after a group": ([launch("y", "a", goes_on=True), launch("y", "a"), MAKES_R], "rx"),
    "x is read after a group": ([launch("y", "a", goes_on=True), MAKES_R, launch("x", "a")], ""),
}


@pytest.mark.parametrize("name", UPDATES)
def test_which_results_may_be_made_in_an_input(name: str) -> None:
    launches, expected = UPDATES[name]
    assert list(updates(launches, root, "xyl", "rq", bytes_of)) == [*map(tuple, expected.split())]


def test_launches_of_a_group_have_one_number() -> None:
    launches = [launch("x", name, goes_on=name in "bce") for name in "abcdef"]
    assert [number for number, _ in number_launches(launches)] == [0, 1, 1, 1, 2, 2]
