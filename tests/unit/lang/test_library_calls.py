"""Promise: a definition calls the operators of the library by name, as it calls definitions."""

import numpy as np
import pytest

import anydim as ad
from anydim.compiler.graph.operator import OPERATORS
from anydim.lang.surface.operator_names import LIBRARY
from anydim.lang.surface.parser import parse
from anydim.lang.surface.printer import print_definition

SIZES = [(0, 3), (3, 0), (1, 1), (2, 7), (17, 5)]


def softmax(x, axis=-1):
    if x.size == 0:
        return x
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def random(*shape, dtype="float32"):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_softmax(axis, dtype):
    lib = ad.define(f"def f(T(N,M) x) -> (y) {{ y = softmax(x; axis = {axis}) }}")
    for sizes in SIZES:
        x = random(*sizes, dtype=dtype)
        result = lib.f(x)
        assert result.dtype == dtype
        np.testing.assert_allclose(result, softmax(x, axis), rtol=1e-5)


def test_operators_among_statements():
    lib = ad.define("""
      def attention(float(N,D) q, float(M,D) k, float(M,V) v) -> (y) {
        t = transpose(k)
        scores = matmul(q, t)
        scaled(n,m) = scores(n,m) * rsqrt(float(q.1))
        weights = softmax(scaled)
        y = matmul(weights, v)
      }
    """)
    for n, m in [(0, 1), (1, 1), (5, 3), (7, 11)]:
        q, k, v = random(n, 4), random(m, 4), random(m, 6)
        expected = softmax(q @ k.T / 2) @ v
        np.testing.assert_allclose(lib.attention(q, k, v), expected, rtol=1e-4, atol=1e-5)


def test_an_operator_in_a_recurrence():
    lib = ad.define("""
      def f(T(N,C) x) -> (y) {
        state(c) = 0 where exists x(0,c)
        for t in N {
          mixed(c) = state(c) + x(t,c)
          state = softmax(mixed)
          y(t,c) = state(c)
        }
      }
    """)
    for dtype in ("float64", "float32"):
        for n in (1, 2, 5):
            x = random(n, 4, dtype=dtype)
            state, expected = np.zeros(4, dtype), []
            for row in x:
                state = softmax(state + row)
                expected.append(state)
            result = lib.f(x)
            assert result.dtype == dtype
            np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_a_number_takes_the_type_of_the_tensor():
    lib = ad.define("def f(T(N) x) -> (y) { y = maximum(x, 1) }")
    for dtype in ("float64", "float32", "int32", "uint8"):
        x = np.array([0, 1, 5], dtype)
        result = lib.f(x)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, np.maximum(x, 1))


def test_attributes():
    x = random(3, 4)
    lib = ad.define("""
      def total(float(N,M) x; int axis = 0) -> (y) { y = reduce_sum(x; axes = axis) }
      def whole(float(N,M) x) -> (y) { y = reduce_max(x; keepdims = true) }
      def joined(float(N,M) x, float(N,M) z) -> (y) { y = concat(x, z; axis = 1) }
    """)
    np.testing.assert_allclose(lib.total(x, axis=1), x.sum(1), rtol=1e-6)
    np.testing.assert_allclose(lib.total(x), x.sum(0), rtol=1e-6)
    np.testing.assert_array_equal(lib.whole(x), x.max(keepdims=True))
    np.testing.assert_array_equal(lib.joined(x, -x), np.concatenate([x, -x], 1))


def test_a_definition_of_the_text_comes_first():
    lib = ad.define("""
      def softmax(float(N) x) -> (y) { y(i) = 7 * x(i) }
      def f(float(N) x) -> (y) { y = softmax(x) }
    """)
    np.testing.assert_array_equal(lib.f(np.ones(2, "f")), [7, 7])


def test_a_tensor_of_the_name_is_read():
    lib = ad.define("def f(float(N) pad) -> (y) { fill = pad(0) y = fill }")
    assert lib.f(np.array([3, 4], "f")) == 3


def test_as_a_node_and_in_a_file(tmp_path):
    definition = parse("def f(float(N,M) x) -> (y) { s = softmax(x) y(i,j) = 2 * s(i,j) }")["f"]
    g = ad.Builder("scores")
    g.output("y", g.call(definition, g.input("x", ad.float32, ("n", "m"))))
    model = ad.compile(g.graph())
    model.save(tmp_path / "scores.anydim")
    loaded = ad.load(tmp_path / "scores.anydim")
    for sizes in SIZES:
        x = random(*sizes)
        np.testing.assert_allclose(model(x)["y"], 2 * softmax(x), rtol=1e-5)
        np.testing.assert_array_equal(loaded(x)["y"], model(x)["y"])


def test_texts_parse_back():
    text = "def f(float(N,M) x) -> (a, b) { a = softmax(x; axis = 0) b = log_softmax(a) }"
    definition = parse(text)["f"]
    assert parse(print_definition(definition))["f"] == definition


def test_which_operators_there_are():
    """Those whose name means nothing else in the language."""
    assert LIBRARY.keys() <= OPERATORS.keys()
    assert {"softmax", "layer_norm", "matmul", "conv", "batch_norm", "gather"} <= LIBRARY.keys()
    assert not {"exp", "abs", "gelu", "cast"} & LIBRARY.keys()


WRONG = [
    ("y = softmax(x; axi = 0)", "operator 'softmax' has no attribute 'axi'"),
    ("y = softmax(x; axis = 5)", "axis 5 of a tensor with 1 ax"),
    ("y, z = softmax(x)", "'softmax' has 1 result, but 2 are assigned"),
    ("y = matmul(x)", "in this call of 'matmul'"),
    ("y = sort(x)", "'sort' has 2 results, but 1 are assigned"),
    ("y, z = sort(x; axis = 3)", "in this call of 'sort': "),
    ("if N > 2 { y, z = sort(x) } else { y(i) = x(i) }", "in a loop or a branch"),
    ("y = compress(x)", "'compress' does not take 1 argument"),
    ("y = compress(x, x)", "in this call of 'compress': operator 'compress': the condition is"),
    ("y(i) = softmax(x(i))", "'softmax' takes whole tensors and numbers, without the index 'i'"),
    ("y = softmx(x)", "did you mean 'softmax'?"),
]  # fmt: skip


@pytest.mark.parametrize("statement, message", WRONG)
def test_wrong_calls(statement, message):
    with pytest.raises(ad.LanguageError) as caught:
        ad.define(f"def f(float(N) x) -> (y) {{ {statement} }}").f(np.ones(3, "f"))
    assert message in str(caught.value)
