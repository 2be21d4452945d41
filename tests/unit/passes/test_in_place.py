"""Promise: what dies in a launch lends its bytes to the result, and no result changes by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy
import onnx.parser
import pytest

import anydim as ad
from anydim.passes.options import given_options
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
