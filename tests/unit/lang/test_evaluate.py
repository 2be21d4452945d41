"""The numpy evaluator: bounds, precision, splitting of large work, symbolic integers."""

import numpy as np
import pytest

from anydim.base.dtypes import float64, int64
from anydim.base.errors import DimError, InputError
from anydim.lang.meaning import evaluate as module
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import TensorType
from anydim.lang.tree.bounds_checks import checks
from anydim.sizes import Size, as_size
from tests.unit.lang.language import check, group_of, random, run

GATHER = "def f(T(V,D) E, int64(L) I) -> (y) { y(l,d) = E(I(l),d) }"


@pytest.mark.parametrize("bad", [-1, 3, 1 << 40])
def test_indirect_read_out_of_bounds(bad):
    with pytest.raises(InputError) as caught:
        run(GATHER, random(3, 4), np.array([0, bad]))
    assert f"index {bad} is outside 0..2 of 'E'" in str(caught.value)


def test_an_index_that_data_decides_is_checked():
    group = group_of(GATHER, random(3, 4), np.array([0]))
    assert [tensor for tensor, _ in checks(group.statements[0].body)] == ["E"]


@pytest.mark.parametrize(
    "body",
    [
        "I(l) < N ? x(I(l)) : x(0)",
        "I(l) >= N ? x(0) : x(I(l))",
        "I(l) < N && x(I(l)) > 0 ? x(I(l)) : x(0)",
        "(I(l) >= N || x(I(l)) > 0) && I(l) < N ? x(I(l)) : x(0)",
        "x(I(l)) else x(I(l) - N)",
        "(I(l) > 90 ? y(I(l)) : x(I(l) % N))",
    ],
)
def test_an_index_counts_only_where_its_value_is_used(body):
    text = f"def f(T(N) x, T(M) y, int64(L) I) -> (r) {{ r(l) = {body} }}"
    ids = np.array([0, 5, 2, 3])
    x = np.array([4, 5, 6], "float32")
    expected = x[[0, 2 if "-" in body or "%" in body else 0, 2, 0]]
    check(text, expected, x, np.empty(0, "float32"), ids)


def test_guarded_indirect_read():
    ids = np.array([0, -1, 2, 7])
    text = "def f(T(V) E, int64(L) I) -> (y) { y(l) = E(I(l)) else -1 }"
    check(text, np.array([5, -1, 7, -1], "float32"), np.array([5, 6, 7], "float32"), ids)
    check(text, np.full(4, -1, "float32"), np.empty(0, "float32"), ids)


def test_inputs_are_checked():
    group = group_of(GATHER, random(3, 4), np.array([0]))
    with pytest.raises(InputError, match=r"has shape \(4, 4\), expected float32\[3, 4\]"):
        evaluate(group, {"E": random(4, 4), "I": np.array([0])}, {})
    with pytest.raises(InputError, match="tensor 'I' is missing"):
        evaluate(group, {"E": random(3, 4)}, {})


def test_guards_are_checked():
    definition = parse_definition("def f(T(N) a, T(N) b) -> (y) { y(i) = a(i) + b(i) }")
    types = [TensorType(int64, (as_size(name),)) for name in ("n", "m")]
    group = instantiate(definition, types)
    with pytest.raises(DimError, match="size N, dimension 0 of a, equals dimension 0 of b does"):
        evaluate(group, {"a": np.arange(2), "b": np.arange(3)}, {"n": 2, "m": 3})


def test_precision():
    x = np.full(100_000, 0.1, "float32")
    text = "def f(T(N) x) -> (y) { t +=! x(i) * x(i) \n y = sqrt(t) * float(0.1) }"
    exact = np.sqrt(np.sum(x.astype("float64") ** 2)) * 0.1
    result = run(text, x, precision=float64)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, exact, rtol=1e-12)
    assert run(text, x, precision=np.dtype("float64")) == result
    assert run(text, x).dtype == np.float32


@pytest.mark.parametrize("limit", [1, 5, 64])
def test_large_work_is_split(monkeypatch, limit):
    monkeypatch.setattr(module, "LARGEST", limit)
    a, b = random(5, 4), random(4, 6)
    text = """def f(float(M,K) a, float(K,N) b) -> (y) {
        d(m,n) +=! abs(a(m,k) - b(k,n))
        c(m,n) +=! a(m,k) * b(k,n)
        top(m) max=! c(m,n)
        y(m,n) = exp(c(m,n) - top(m)) + d(m,n)
    }"""
    c = a @ b
    d = np.abs(a[:, :, None] - b[None]).sum(1)
    check(text, np.exp(c - c.max(1, keepdims=True)) + d, a, b)


@pytest.mark.parametrize("body", [
    "a(i,k) * b(k,j)", "b(k,j) * a(i,k) * 2", "a(i,k) * a(i,k) * b(k,j)", "a(i,k) * k",
    "b(k,j) * i", "a(i,k) * c(j)", "a(i,k) * exp(c(j)) * b(k,j)", "c(j) * c(k) * a(i,l)",
    "2.0 * 3.0 * c(j) * a(i,k)",
])  # fmt: skip
@pytest.mark.parametrize("m, n, p", [(3, 3, 3), (1, 1, 1), (4, 4, 4)])
def test_sums_of_products_by_matmul(body, m, n, p):
    a, b, c = random(m, n), random(n, p), random(p)
    text = f"""def f(float(M,N) a, float(N,P) b, float(P) c) -> (y) {{
        y(i,j) +=! {body} where i in 0:M, j in 0:P, k in 0:N, l in 0:N
    }}"""
    # the same statement without a product at its root goes the general way
    plain = text.replace(body, f"0 + {body}")
    np.testing.assert_allclose(run(text, a, b, c), run(plain, a, b, c), rtol=1e-4, atol=1e-4)


def test_symbolic_integers():
    n = Size.symbol("n")
    shape = np.array([n, 3, 2 * n], dtype=object)

    def evaluated(text, *arrays):
        definition = parse_definition(text)
        types = [TensorType(int64, tuple(map(as_size, np.shape(a)))) for a in arrays]
        tensors = dict(zip((p.name for p in definition.parameters), arrays))
        (result,) = evaluate(instantiate(definition, types), tensors, {}).values()
        return result

    total = evaluated("def f(int64(N) s) -> (y) { y *=! s(i) }", shape)
    assert total.item() == 6 * n * n
    joined = evaluated(
        """def f(int64(N) a, int64(M) b) -> (y) {
            y(i) = i < N ? (a(i) else 0) : (b(i - N) else 0) where i in 0:N + M
        }""",
        shape, np.array([7]),
    )  # fmt: skip
    assert list(joined) == [n, 3, 2 * n, 7]
    picked = evaluated("def f(int64(N) s, int64(M) i) -> (y) { y(m) = s(i(m)) }", shape,
                       np.array([2, 0]))  # fmt: skip
    assert list(picked) == [2 * n, n]
    mixed = evaluated(
        "def f(int64(N) s) -> (y) { y(i) = (s(i) + 1) * 4 // 2 % 5 - s(0) + int64(max(s(i), 0)) }",
        shape,
    )
    assert mixed[1] == 8 % 5 - n + 3
    assert mixed[0] == (2 * n + 2) % 5 - n + as_size("max(n, 0)")


def test_an_unknown_size_decides_nothing():
    text = "def f(int64(N) s) -> (y) { y(i) = s(i) ? 1 : 2 }"
    group = group_of(text, np.array([1]))
    with pytest.raises(InputError, match="the value n is known only at run time"):
        evaluate(group, {"s": np.array([Size.symbol("n")], dtype=object)}, {})


def test_nan_passes_through():
    x = np.array([[1, np.nan], [2, 3]], "float32")
    check("def f(T(N,M) x) -> (y) { y(i) max=! x(i,j) }", np.array([np.nan, 3], "float32"), x)


@pytest.mark.parametrize("a, b", [(7, 2), (-7, 2), (7, -2), (-7, -2), (0, 3), (5, 0)])
def test_integer_division(a, b):
    x, y = np.array([a]), np.array([b])
    quotient = 0 if b == 0 else int(a / b)
    text = "def f(int64(N) x, int64(N) y) -> (z) { z(i) = x(i) / y(i) }"
    check(text, np.array([quotient]), x, y)
    if b:
        text = "def f(int64(N) x, int64(N) y) -> (z) { z(i) = x(i) // y(i) * 100 + x(i) % y(i) }"
        check(text, np.array([a // b * 100 + a % b]), x, y)
