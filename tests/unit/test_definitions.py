"""Promise: a definition is a function of arrays of any size; another size compiles nothing."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad

LIBRARY = ad.define("""
def matmul(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def softmax(T(...p,C) x) -> (y) {
  top(...p)     max=! x(...p,c)
  e(...p,c)         = exp(x(...p,c) - top(...p))
  total(...p)   +=!   e(...p,c)
  y(...p,c)         = e(...p,c) / total(...p)
}
def blend(T(...s) x, T(...s) y; float alpha = 0.5) -> (z) { z(...s) = alpha * x(...s) + y(...s) }
def conv(float(C,W) I, float(O,C,KW) F) -> (R) { R(o,w) +=! I(c, w + k) * F(o,c,k) }
def bounds(float(N) x) -> (low, high) { low min=! x(i)  high max=! x(i) }
""")


def draw(*shape: int, seed: int = 0) -> numpy.ndarray:
    return numpy.random.default_rng((seed, *shape)).standard_normal(shape, numpy.float32)


def test_matmul_at_every_size_from_one_compile() -> None:
    for m, k, n in [(0, 3, 2), (3, 4, 5), (2, 0, 3), (1, 1, 1), (17, 33, 65), (2, 3, 0), (0, 0, 0)]:
        a, b = draw(m, k), draw(k, n, seed=1)
        wanted = a.astype(numpy.float64) @ b
        numpy.testing.assert_allclose(LIBRARY.matmul(a, b), wanted, rtol=1e-5, atol=1e-5)
    assert len(LIBRARY.matmul._models) == 1


@pytest.mark.parametrize("shape", [(5,), (4, 7), (2, 3, 16), (1, 1), (0, 4)])
def test_an_ellipsis_takes_any_rank(shape: tuple[int, ...]) -> None:
    x = draw(*shape)
    e = numpy.exp(x - x.max(-1, keepdims=True, initial=-numpy.inf))
    wanted = e / e.sum(-1, keepdims=True)
    numpy.testing.assert_allclose(LIBRARY.softmax(x), wanted, rtol=1e-5, atol=1e-6)


def test_an_ellipsis_broadcasts_and_attributes_are_keywords() -> None:
    x, y = draw(4, 5, 6), draw(5, 1)
    came = LIBRARY.blend(x, y, alpha=2.0)
    numpy.testing.assert_allclose(came, 2 * x + y, rtol=1e-6, atol=1e-6)
    assert LIBRARY.blend(x, x).shape == x.shape


def test_a_sliding_window_has_the_inferred_range() -> None:
    image, taps = draw(3, 20), draw(2, 3, 4)
    wanted = sum(numpy.einsum("cw,oc->ow", image[:, k : k + 17], taps[:, :, k]) for k in range(4))
    numpy.testing.assert_allclose(LIBRARY.conv(image, taps), wanted, rtol=1e-4, atol=1e-5)


def test_several_results_are_a_tuple() -> None:
    x = draw(33)
    low, high = LIBRARY.bounds(x)
    assert (low, high) == (x.min(), x.max())


def test_what_does_not_fit_is_a_clear_error_and_the_next_call_works() -> None:
    a = draw(2, 3)
    with pytest.raises(ad.InputError, match="'B' is missing"):
        LIBRARY.matmul(a)
    with pytest.raises(ad.InputError, match="not 'Q'"):
        LIBRARY.matmul(a, Q=a)
    with pytest.raises(ad.DimError, match="dim 'K' is 3"):
        LIBRARY.matmul(a, draw(4, 5))
    with pytest.raises(ad.LanguageError, match="'A' is float32"):
        LIBRARY.matmul(a.astype(numpy.float64), draw(3, 5))
    with pytest.raises(ad.LanguageError, match="has 2 dimensions, but the argument has 1"):
        LIBRARY.matmul(a[0], draw(3, 5))
    with pytest.raises(AttributeError, match="matmul"):
        _ = LIBRARY.matmull
    assert LIBRARY.matmul(a, draw(3, 5)).shape == (2, 5)


def test_a_bad_text_points_at_the_place() -> None:
    with pytest.raises(ad.LanguageError, match=r"mine\.tc:1:\d+"):
        ad.define("def f(float(N) x) -> (y) { y(i) = x(i) +* 2 }", file="mine.tc")
