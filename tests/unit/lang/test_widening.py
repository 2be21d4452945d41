"""Promise: a definition of 16-bit floats computes in float32 and rounds what it gives back."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import DType, bfloat16, float16, float32
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.surface.printer import print_statement
from anydim.lang.tree import Group, TensorType
from anydim.sizes import Box, Dim, as_size


def group_of(text: str, dtype: DType = float16, rank: int = 1) -> Group:
    names = [f"n{axis}" for axis in range(rank)]
    box = Box.of(*(Dim(name, 0, 64) for name in names))
    kind = TensorType(dtype, tuple(as_size(name) for name in names))
    definition = parse_definition(text)
    return instantiate(definition, [kind] * len(definition.parameters), box=box)


UNCHANGED = [
    "def f(T(N) a) -> (y) { y(i) = exp(a(i)) }",
    "def f(T(N) a, T(N) b) -> (y) { y(i) = a(i) + b(i) }",
    "def f(T(N) a) -> (y) { y(i) = max(a(i), 0) }",
    "def f(T(N) a) -> (y) { y +=! a(i) }",
    "def f(T(N) a, T(N) b) -> (y) { y +=! a(i) * b(i) }",
    "def f(T(N) a) -> (y) { t(i) = a(N - 1 - i) y(i) = t(i) where i in 0:N }",
]


@pytest.mark.parametrize("text", UNCHANGED)
def test_one_operation_stays_as_it_is(text: str) -> None:
    assert not any("cast" in print_statement(s) for s in group_of(text).statements)


CHANGED = [
    ("def f(T(N) a) -> (y) { y(i) = a(i) * exp(a(i)) }", "cast<float16>(A * exp(A))"),
    ("def f(T(N) a) -> (y) { y(i) = 0.1 * a(i) }", "cast<float16>(float32(0.1) * A)"),
    ("def f(T(N) a) -> (y) { y +=! a(i) * a(i) * a(i) }", 'cast<float16>("y.wide"())'),
    ("def f(T(N) a) -> (y) { t(i) = a(i) * a(i) y(i) = t(i) }", "cast<float16>(t(i))"),
    ("def f(T(N) a) -> (y) { y(i) = a(i) / T(N) }", "cast<float16>(A / cast<float32>(n0))"),
]


@pytest.mark.parametrize("text,wanted", CHANGED)
def test_what_rounds_more_than_once_is_computed_in_float32(text: str, wanted: str) -> None:
    group = group_of(text)
    assert group.outputs[0].type.dtype == float16
    written = print_statement(group.statements[-1]).split(" = ")[1].split(" where ")[0]
    assert written == wanted.replace("A", "cast<float32>(a(i))")
    assert all(tensor.type.dtype == float32 for tensor in group.temporaries)


def test_a_written_conversion_rounds() -> None:
    """4099 is none of float16's numbers: 4096 or 4100, and twice that again."""
    text = "def f(float(N) a) -> (y) { y(i) = float(half(a(i))) + half(0.25) * half(a(i)) }"
    x = numpy.array([4099.0, 0.1], numpy.float32)
    half = x.astype(numpy.float16).astype(numpy.float32)
    want = evaluate(group_of(text, float32), {"a": x}, {"n0": 2})["y"]
    numpy.testing.assert_array_equal(want, half + numpy.float32(0.25) * half)
    numpy.testing.assert_array_equal(ad.define(text).f(x), want)


ORDERED = """
def running(T(N) a) -> (y) {
  s = T(0)
  y(i) = 0 where i in 0:N
  for i in 0:N { s = s + a(i) * a(i)  y(i) = s }
}"""


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_hidden_state_of_a_loop_is_float32(dtype: DType) -> None:
    """Thousands of small numbers add up, where 16 bits would stop at 2048 or 256."""
    x = numpy.ones(5000, dtype.numpy)
    came = ad.define(ORDERED).running(x)
    assert came.dtype == dtype.numpy
    want = numpy.arange(1, 5001).astype(dtype.numpy)
    assert (came == want).all()


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_the_default_of_a_hidden_tensor_is_read_where_there_is_no_element(dtype: DType) -> None:
    text = """def f(T(N) x) -> (y) {
      a(i) = x(i) * x(i) + 1
      y(i) = (a(i - 1) else (x(i) / 3)) * x(i) where i in 0:N
    }"""
    x = (numpy.arange(1, 6) / 3).astype(dtype.numpy)
    wide = x.astype(numpy.float32)
    before = numpy.concatenate([wide[:1] / 3, wide[:-1] * wide[:-1] + 1])
    want = (before * wide).astype(dtype.numpy)
    came = evaluate(group_of(text, dtype), {"x": x}, {"n0": 5})["y"]
    assert came.dtype == dtype.numpy
    numpy.testing.assert_array_equal(came, want)


def test_bits_are_those_of_16_bits() -> None:
    text = "def f(T(N) x) -> (y) { y(i) = as_float16(bits(x(i) / 3)) * x(i) + 1 }"
    x = numpy.array([1, 2, 5, 100], numpy.float16)
    third = (x.astype(numpy.float32) / 3).astype(numpy.float16).astype(numpy.float32)
    want = (third * x.astype(numpy.float32) + 1).astype(numpy.float16)
    came = evaluate(group_of(text), {"x": x}, {"n0": 4})["y"]
    numpy.testing.assert_array_equal(came, want)
