"""Programs that users of the language write, at ordinary and at degenerate sizes."""

import numpy as np
import pytest

from tests.unit.lang.language import check, random

SIZES = [0, 1, 2, 7, 16, 17]

MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("k", [0, 1, 5])
@pytest.mark.parametrize("n", [0, 1, 6])
def test_matmul(m, k, n):
    a, b = random(m, k), random(k, n)
    check(MATMUL, a @ b, a, b)


def test_transposed_matmul():
    a, b = random(5, 3), random(7, 5)
    text = "def f(float(K,M) A, float(N,K) B) -> (C) { C(m,n) +=! A(k,m) * B(n,k) }"
    check(text, (b @ a).T, a, b)


@pytest.mark.parametrize("left, right", [
    ((2, 3, 4), (2, 4, 5)), ((3, 4), (2, 4, 5)), ((1, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (6, 4, 1)),
    ((0, 3, 4), (1, 4, 5)), ((3, 4), (4, 5)), ((2, 3, 0), (2, 0, 5)),
])  # fmt: skip
def test_batched_matmul(left, right):
    a, b = random(*left), random(*right)
    text = """def f(T(...b,M,K) A, T(...b,K,N) B) -> (C) {
        C(...b,m,n) +=! A(...b,m,k) * B(...b,k,n)
    }"""
    check(text, a @ b, a, b)


@pytest.mark.parametrize("m", SIZES)
def test_matvec_with_scalar(m):
    a, x, s = random(m, 3), random(3), np.float32(0.5)
    text = "def f(float(M,K) A, float(K) x, float s) -> (y) { y(m) +=! A(m,k) * x(k) * s }"
    check(text, (a @ x * s).astype("float32"), a, x, s)


@pytest.mark.parametrize("size, width", [(0, 1), (1, 1), (5, 3), (3, 3), (2, 3), (17, 4), (9, 0)])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_strided_convolution(size, width, stride):
    x, w = random(size), random(width)
    count = max(0, (size - width) // stride + 1)
    rows = [float(np.dot(x[i * stride : i * stride + width], w)) for i in range(count)]
    text = f"def f(float(I) x, float(W) w) -> (y) {{ y(i) +=! x({stride} * i + k) * w(k) }}"
    check(text, np.array(rows, "float32"), x, w)


@pytest.mark.parametrize("height, width", [(3, 3), (5, 8), (4, 3)])
def test_convolution_2d(height, width):
    x, w, b = random(2, 3, height, width), random(4, 3, 3, 2), random(4)
    text = """def f(float(N,C,H,W) x, float(O,C,KH,KW) w, float(O) b) -> (y) {
        s(n,o,h,v) +=! x(n,c,h + kh,v + kw) * w(o,c,kh,kw)
        y(n,o,h,v) = s(n,o,h,v) + b(o)
    }"""
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), axis=(2, 3))
    check(text, np.einsum("nchvij,ocij->nohv", windows, w) + b[:, None, None], x, w, b)


def test_grouped_dilated_convolution():
    x, w = random(4, 11), random(4, 1, 3)
    text = """def f(float(C,I) x, float(O,D,W) w) -> (y) {
        y(o,i) +=! x(o,i + 2 * k) * w(o,d,k)
    }"""
    expected = sum(x[:, 2 * k : 2 * k + 7] * w[:, 0, k : k + 1] for k in range(3))
    check(text, expected.astype("float32"), x, w)


@pytest.mark.parametrize("size", [0, 1, 4, 7])
def test_pooling(size):
    x = random(3, size)
    expected = x[:, : size // 2 * 2].reshape(3, -1, 2)
    text = "def f(float(C,I) x) -> (y) { y(c,i) max=! x(c,2 * i + k) where k in 0:2 }"
    check(text, expected.max(2), x)
    text = """def f(float(C,I) x; int w = 2) -> (y) {
        t(c,i) +=! x(c,w * i + k) where k in 0:w
        y(c,i) = t(c,i) / w
    }"""
    check(text, expected.mean(2), x)


SOFTMAX = """def f(T(...p,C,...q) x) -> (y) {
  top(...p,...q)   max=! x(...p,c,...q)
  e(...p,c,...q)       = exp(x(...p,c,...q) - top(...p,...q))
  total(...p,...q) +=!   e(...p,c,...q)
  y(...p,c,...q)       = e(...p,c,...q) / total(...p,...q)
}"""


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 1, 1), (2, 0, 3), (0, 4, 1), (5, 1, 17)])
def test_softmax(shape, axis):
    x = random(*shape)
    if x.size:
        e = np.exp(x - x.max(axis, keepdims=True))
        expected = e / e.sum(axis, keepdims=True)
    else:
        expected = x
    check(SOFTMAX, expected, x, **{"...p": axis})


@pytest.mark.parametrize("shape", [(3, 8), (1, 1), (0, 4), (2, 3, 17)])
def test_layer_norm(shape):
    x, g, b = random(*shape), random(shape[-1]), random(shape[-1])
    text = """def f(T(...p,C) x, T(C) g, T(C) b; float epsilon = 1e-5) -> (y) {
        total(...p) +=! x(...p,c)
        mean(...p) = total(...p) / T(C)
        d(...p,c) = x(...p,c) - mean(...p)
        square(...p) +=! d(...p,c) * d(...p,c)
        y(...p,c) = d(...p,c) * rsqrt(square(...p) / T(C) + epsilon) * g(c) + b(c)
    }"""
    d = x - x.mean(-1, keepdims=True) if x.size else x
    expected = d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * g + b
    check(text, expected.astype("float32"), x, g, b)


@pytest.mark.parametrize("shape", [(2, 3), (1, 1), (0, 3), (2, 0)])
def test_embedding_with_sum(shape):
    table = random(50, 6)
    ids = random(*shape, dtype="int64")
    text = "def f(float(V,D) E, int64(B,L) I) -> (y) { y(b,d) +=! E(I(b,l),d) }"
    check(text, table[ids].sum(1), table, ids)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_masked_operation(n):
    x, mask = random(3, n), random(3, n, dtype="bool")
    text = "def f(T(...s) x, bool(...s) m) -> (y) { y(...s) = m(...s) ? x(...s) : -inf }"
    check(text, np.where(mask, x, -np.inf).astype("float32"), x, mask)


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("before, after", [(0, 0), (1, 2), (3, 0)])
def test_zero_padding(n, before, after):
    x = random(n)
    text = """def f(float(N) x; size lo, size hi) -> (y) {
        y(i) = x(i - lo) else 0 where i in 0:N + lo + hi
    }"""
    check(text, np.pad(x, (before, after)), x, lo=before, hi=after)


@pytest.mark.parametrize("n, m", [(0, 0), (1, 1), (4, 4), (3, 5), (5, 3)])
def test_triangles(n, m):
    x = random(n, m)
    upper = "def f(float(N,M) x) -> (y) { y(i,j) = x(i,j) where j in i:M }"
    check(upper, np.triu(x), x)
    lower_sum = "def f(float(N,M) x) -> (y) { y(i) +=! x(i,j) else 0 where i in 0:N, j in 0:i + 1 }"
    check(lower_sum, np.tril(x).sum(1), x)
    rows = "def f(float(N,M) x) -> (y) { y(j) max=! x(i,j) where i in 0:j + 1, j in 0:M }"
    if n >= m:
        expected = [x[: j + 1, j].max() for j in range(m)]
        check(rows, np.array(expected, "float32"), x)


def test_range_based_elsewhere_is_shifted_to_0():
    x = random(6)
    check("def f(float(N) x) -> (y) { y(i) = x(i) where i in 2:N }", x[2:], x)
    check("def f(float(N) x) -> (y) { y(i) = x(i - 1) where i in 1:N }", x[:-1], x)
    index = "def f(float(N) x) -> (y) { y(i) = x(i) * i where i in 2:4 }"
    check(index, x[2:4] * np.array([2, 3], "float32"), x)


def test_exists_gives_a_range():
    x = random(4)
    text = "def f(float(N) x, float s) -> (y) { y(i) = s where exists x(i) }"
    check(text, np.full(4, 2, "float32"), x, np.float32(2))


@pytest.mark.parametrize("n", [0, 1, 3])
def test_upsampling(n):
    x = random(n)
    check("def f(float(N) x) -> (y) { y(i) = x(i // 2) }", np.repeat(x, 2), x)


@pytest.mark.parametrize("n, m", [(0, 3), (3, 0), (2, 3), (1, 1)])
def test_concat_by_guarded_reads(n, m):
    a, b = random(n), random(m)
    text = """def f(T(N) a, T(M) b) -> (y) {
        y(i) = i < N ? (a(i) else 0) : (b(i - N) else 0) where i in 0:N + M
    }"""
    check(text, np.concatenate([a, b]), a, b)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_reversal_and_reshape(n):
    x = random(n, 4)
    check("def f(T(N,M) x) -> (y) { y(i,j) = x(N - 1 - i,j) where i in 0:N }", x[::-1], x)
    check("def f(T(N,M) x) -> (y) { y(i) = x[i] where i in 0:N * M }", x.reshape(-1), x)
    columns = "def f(T(N,M) x) -> (y) { y(j,i) = x[i * M + j] where i in 0:N, j in 0:M }"
    check(columns, x.T, x)
    split = "def f(T(N,M) x) -> (y) { y(i,a,b) = x(i,2 * a + b) where a in 0:M // 2, b in 0:2 }"
    check(split, x.reshape(n, 2, 2), x)


def test_tensor_contraction_of_order_4():
    a, b = random(2, 3, 4, 5), random(4, 5, 3, 6)
    text = """def f(float(A,B,C,D) x, float(C,D,B,E) y) -> (z) {
        z(a,b,e) +=! x(a,b,c,d) * y(c,d,b,e)
    }"""
    check(text, np.einsum("abcd,cdbe->abe", a, b), a, b)


def test_minimum_distance():
    a, b = random(7, 2), random(5, 2)
    text = """def f(float(N,D) a, float(M,D) b) -> (near) {
        d(i,j) +=! (a(i,k) - b(j,k)) * (a(i,k) - b(j,k))
        near(i) min=! d(i,j)
    }"""
    check(text, ((a[:, None] - b[None]) ** 2).sum(-1).min(1), a, b)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
def test_reductions_over_nothing_give_the_identity(dtype):
    x = np.empty((2, 0), dtype)
    info = np.iinfo(dtype) if dtype not in ("float32", "float64", "bool") else None
    low = info.min if info else -np.inf
    high = info.max if info else np.inf
    if dtype == "bool":
        low, high = False, True
    check("def f(T(N,M) x) -> (y) { y(i) max=! x(i,j) }", np.full(2, low, dtype), x)
    check("def f(T(N,M) x) -> (y) { y(i) min=! x(i,j) }", np.full(2, high, dtype), x)
    if dtype != "bool":
        check("def f(T(N,M) x) -> (y) { y(i) +=! x(i,j) }", np.zeros(2, dtype), x)
        check("def f(T(N,M) x) -> (y) { y(i) *=! x(i,j) }", np.ones(2, dtype), x)


def test_mean_over_an_ellipsis():
    x = random(2, 3, 4)
    text = """def f(T(N,...s) x) -> (y) {
        t(n) +=! x(n,...s)
        y(n) = t(n) / T(size(...s))
    }"""
    check(text, x.mean((1, 2)), x)
    check(text, random(3), random(3))


def test_dimension_of_a_tensor():
    x = random(3, 4)
    text = "def f(T(...s) x) -> (y) { y(...s) = x(...s) * x.1 + cast<T>(x.0) }"
    check(text, x * 4 + 3, x)
