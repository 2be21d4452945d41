"""Stages and tiles: the bits of one thread on any number of threads, and right at every size."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import anydim as ad
from anydim.base import settings
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.loop_nest import nest_plan
from anydim.compiler.kernels.loop_nest import nest_template as nest
from anydim.lang.tree import Group
from tests.unit.compiler.kernels.launching import Prepared
from tests.unit.compiler.kernels.nest_cases import BOX, LEVENSHTEIN, STENCIL, levenshtein, stencil

Arrays = list[np.ndarray]

HISTORY = """
def history(float(N) x, float(K) steps) -> (u) {
  u(0,i) = x(i) where i in 0:N
  for t in 0:K {
    u(t + 1,i) = 0.5 * u(t,i) + 0.25 * (u(t,i - 1) else 0) + 0.25 * (u(t,i + 1) else 0)
  }
}
"""
PLATE = """
def plate(float(H,W) x, float(K) steps) -> (x) {
  for t in 0:K {
    across(i,j) = (x(i,j-1) else 0) + (x(i,j+1) else 0) where exists x(i,j)
    y(i,j) = 0.5 * x(i,j) + 0.125 * ((x(i-1,j) else 0) + (x(i+1,j) else 0) + across(i,j))
    x(i,j) = y(i,j)
  }
}
"""
POWER = """
def power(float(N,N) A, float(N) x, float(K) steps) -> (x) {
  for t in 0:K {
    y(i) +=! A(i,j) * x(j)
    top max=! abs(y(i))
    x(i) = y(i) / top
  }
}
"""
EDIT = """
def edit(int32(N) a, int32(M) b) -> (distance) {
  for i in 0:N + 1 {
    for j in 0:M + 1 {
      if i == 0 { d(i,j) = int32(j) } else if j == 0 { d(i,j) = int32(i) } else {
        d(i,j) = min(min(d(i-1,j) + 1, d(i,j-1) + 1), d(i-1,j-1) + (a(i-1) == b(j-1) ? 0 : 1))
      }
    }
  }
  distance = d(N,M)
}
"""
WARP = """
def warp(float(N,M) c) -> (d) {
  d(i,j) = 0 where i in 0:N+1, j in 0:M+1
  for i in 1:N + 1 {
    for j in 1:M + 1 { d(i,j) = min(min(d(i-1,j), d(i,j-1)), d(i-1,j-1)) + c(i-1,j-1) }
  }
}
"""
LOCAL = """
def local(float(N,M) c) -> (h) {
  e(i,j) = 0 where i in 0:N+1, j in 0:M+1
  h(i,j) = 0 where i in 0:N+1, j in 0:M+1
  for i in 1:N + 1 {
    for j in 1:M + 1 {
      e(i,j) = max(e(i,j-1) - 0.25, h(i,j-1) - 1)
      h(i,j) = max(max(0, h(i-1,j-1) + c(i-1,j-1)), max(e(i,j), h(i-1,j) - 1))
    }
  }
}
"""
SIZES = (
    (0, 0),
    (1, 0),
    (0, 3),
    (1, 1),
    (7, 2),
    (15, 5),
    (16, 9),
    (17, 33),
    (97, 8),
    (3, 131),
    (131, 3),
)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def letters(size: int) -> np.ndarray:
    return np.random.default_rng(size).integers(0, 4, size).astype(np.int32)


def _plate(x: np.ndarray, steps: np.ndarray) -> np.ndarray:
    for _ in steps:
        w = np.pad(x.astype(np.float64), 1)
        x = 0.5 * w[1:-1, 1:-1] + 0.125 * (w[:-2, 1:-1] + w[2:, 1:-1] + w[1:-1, :-2] + w[1:-1, 2:])
    return x


def _power(a: np.ndarray, x: np.ndarray, steps: np.ndarray) -> np.ndarray:
    for _ in steps:
        y = a.astype(np.float64) @ x
        x = y / np.abs(y).max(initial=-np.inf)
    return x


def _warp(c: np.ndarray) -> np.ndarray:
    d = np.zeros((c.shape[0] + 1, c.shape[1] + 1))
    for i, j in np.ndindex(c.shape):
        d[i + 1, j + 1] = min(d[i, j + 1], d[i + 1, j], d[i, j]) + c[i, j]
    return d


def _local(c: np.ndarray) -> np.ndarray:
    e, h = np.zeros((2, c.shape[0] + 1, c.shape[1] + 1))
    for i, j in np.ndindex(c.shape):
        e[i + 1, j + 1] = max(e[i + 1, j] - 0.25, h[i + 1, j] - 1)
        h[i + 1, j + 1] = max(0, h[i, j] + c[i, j], e[i + 1, j + 1], h[i, j + 1] - 1)
    return h


CASES: dict[str, tuple[str, Callable[[int, int], Arrays], Callable[..., np.ndarray]]] = {
    "history": (HISTORY, lambda n, k: [normal(n), normal(k)], lambda x, k: stencil(x, len(k))),
    "plate": (PLATE, lambda n, k: [normal(n, n + 3), normal(k)], _plate),
    "power": (POWER, lambda n, k: [normal(n, n), normal(n), normal(k)], _power),
    "edit": (EDIT, lambda n, m: [letters(n), letters(m)], lambda a, b: levenshtein(a, b)[-1, -1]),
    "warp": (WARP, lambda n, m: [normal(n, m)], _warp),
    "local": (LOCAL, lambda n, m: [normal(n, m)], _local),
}


@pytest.fixture(autouse=True)
def _all_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(nest_plan, "STAGE_WORK", 1)
    monkeypatch.setattr(nest_plan, "BAND_WORK", 1)
    with ad.settings.override(use_cache=False):
        yield


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("name", CASES)
def test_the_same_bits_on_any_number_of_threads(name: str) -> None:
    text, arrays, expected = CASES[name]
    models = [getattr(ad.define(text, threads=threads), name) for threads in (1, 2, 3, 7)]
    for sizes in (*SIZES, *reversed(SIZES)):
        given = arrays(*sizes)
        found = [np.asarray(model(*given)) for model in models]
        assert {one.tobytes() for one in found} == {found[0].tobytes()}, sizes
        np.testing.assert_allclose(found[0], expected(*given), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("group, expected", [(STENCIL, stencil), (LEVENSHTEIN, levenshtein)])
def test_every_access_is_inside_however_the_range_is_cut(
    group: Group, expected: Callable[..., np.ndarray]
) -> None:
    made = Prepared(group, (nest.TEMPLATE,), BOX, Machine(32, 16, threads=3))
    if settings.target == "opencl":
        pytest.skip("an accelerator has no stages")
    assert made.schedule.parallel == nest_plan.STAGES
    assert "threads synchronize after each stage" in made.launch.reason
    for n, m in ((0, 0), (0, 4), (1, 1), (5, 9), (9, 5), (17, 3)):
        env = {"T": m, "N": n, "M": m}
        given = [normal(n)] if group is STENCIL else [letters(n), letters(m)]
        wanted = expected(*given, m) if group is STENCIL else expected(*given)
        for parts in (1, 4):
            (found,) = made.outputs(given, env, parts, compiled=parts == 4)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


BACKWARDS = "d(i,j) = (d(i-1,j+1) else 0) + c(i,j)"
ROW = "d(i,j) = (d(i-1,j) else 0) + (d(i,j-1) else 0) + c(i,j) + (d(i-1,M-1) else 0)"


@pytest.mark.parametrize("step", (BACKWARDS, ROW))
def test_what_goes_back_has_no_tiles(step: str) -> None:
    text = f"def f(float(N,M) c) -> (d) {{ for i in N {{ for j in M {{ {step} }} }} }}"
    found = [np.asarray(ad.define(text, threads=t).f(normal(19, 23))) for t in (1, 3)]
    wanted = np.zeros((20, 24))
    for i, j in np.ndindex(19, 23):
        up, left = wanted[i - 1, j] if i else 0, wanted[i, j - 1] if j else 0
        last = wanted[i - 1, 22] if i else 0
        back = wanted[i - 1, j + 1] if i else 0
        wanted[i, j] = normal(19, 23)[i, j] + (back if step == BACKWARDS else up + left + last)
    for one in found:
        np.testing.assert_allclose(one, wanted[:19, :23], rtol=1e-3, atol=1e-3)
    assert found[0].tobytes() == found[1].tobytes()
