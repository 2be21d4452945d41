"""Promise: a pass over a part of a row leaves the passes after it the whole row."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad

SIZES = (1, 2, 3, 7, 8, 9, 31, 100)
lib = ad.define("""
def first_then_all(T(R,N) x) -> (y) {
  most(r) max=! (k < 2 ? x(r,k) : -inf) where k in 0:N
  y(r) min=! x(r,k) + most(r)
}
def all_then_first(T(R,N) x) -> (y) {
  most(r) max=! x(r,k)
  y(r) +=! (k < 3 ? x(r,k) - most(r) : 0) where k in 0:N
}
def columns(T(N,R) x) -> (y) {
  most(r) max=! (k < 2 ? x(k,r) : -inf) where k in 0:N
  y(r) +=! x(k,r) * most(r)
}
""")


@pytest.mark.parametrize("size", SIZES)
def test_every_pass_visits_its_own_part(size: int) -> None:
    x = numpy.random.default_rng(0).normal(size=(5, size)).astype(numpy.float32)
    wanted = x.min(1) + x[:, :2].max(1)
    numpy.testing.assert_allclose(lib.first_then_all(x), wanted, rtol=1e-6)
    wanted = (x[:, :3] - x.max(1, keepdims=True)).sum(1)
    numpy.testing.assert_allclose(lib.all_then_first(x), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
def test_every_pass_over_columns_visits_its_own_part(size: int) -> None:
    x = numpy.random.default_rng(1).normal(size=(size, 21)).astype(numpy.float32)
    wanted = (x.astype(float) * x[:2].max(0)).sum(0)
    numpy.testing.assert_allclose(lib.columns(x), wanted, rtol=1e-4, atol=1e-4)
