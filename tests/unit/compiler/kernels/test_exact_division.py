"""Promise: elements divided by what they share are divided, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.rows import pointwise
from anydim.compiler.kernels.rows import row_template as rows
from anydim.compiler.targets.evaluated.functions import multiply_add
from tests.unit.compiler.kernels.launching import Prepared
from tests.unit.compiler.kernels.row_cases import BOX, Case

TYPES = (np.float16, np.float32, np.float64)

# `count` keeps the division in the kernel of a row, whatever is divided by what
TEXT = """
def by(T(R,C) x, T(R) d) -> (y, count) {
  count(r) +=! x(r,c) > 0 ? 1 : 0
  y(r,c) = x(r,c) / (count(r) >= 0 ? d(r) : 1)
}
def across(T(R,C) x, T(C) d) -> (y, count) {
  count(c) +=! x(r,c) > 0 ? 1 : 0
  y(r,c) = x(r,c) / (count(c) >= 0 ? d(c) : 1)
}
def share(T(R,C) x) -> (y) { most(r) max=! x(r,c)
  y(r,c) = x(r,c) / most(r) }
def softmax(T(R,C) x) -> (e, total, y) {
  top(r) max=! x(r,c)
  e(r,c) = exp(x(r,c) - top(r))
  total(r) +=! e(r,c)
  y(r,c) = e(r,c) / total(r)
}
def magnitudes(T(R,C) x) -> (total, y) {
  total(r) +=! abs(x(r,c))
  y(r,c) = abs(x(r,c)) / total(r)
}
"""

SHARE = Case(
    "share",
    "def f(T(R,C) x) -> (y) { d(r) max=! x(r,c)\n y(r,c) = x(r,c) / d(r) }",
    ("R C",),
    lambda x: x / x.max(1, keepdims=True),
)


def equal(found: np.ndarray, wanted: np.ndarray) -> None:
    """The same bits, but for those of a NaN."""
    nan = np.isnan(found) & np.isnan(wanted)
    same = nan | ((found == wanted) & (np.signbit(found) == np.signbit(wanted)))
    assert same.all(), [(found[at], wanted[at]) for at in map(tuple, np.argwhere(~same)[:4])]


def special(dtype: type) -> np.ndarray:
    """Signed zeros, subnormals, infinities, NaN, the largest, and neighbours of 1."""
    kind = np.finfo(dtype)
    small, tiny = kind.smallest_subnormal, kind.tiny
    sizes = [0, 1, 3, 41, 1e-4, small, 5 * small, tiny, 3 * tiny, kind.max, kind.max / 3, np.inf,
             1 - kind.epsneg, 1 + kind.eps, np.nan]  # fmt: skip
    positive = np.array(sizes, dtype)
    return np.concatenate([positive, -positive])


@pytest.mark.parametrize("dtype", TYPES)
def test_special_values_by_special_values(dtype: type) -> None:
    lib, values = ad.define(TEXT), special(dtype)
    usual = np.random.default_rng(0).standard_normal(40).astype(dtype)
    with np.errstate(all="ignore"):
        for scale in (1.0, 2.0**-13, np.finfo(dtype).tiny, float(np.finfo(dtype).max) / 8):
            x = np.tile(np.concatenate([values, usual]), (len(values), 1)) * dtype(scale)
            x = x.astype(dtype)
            equal(lib.by(x, values).y, x / values[:, None])
            equal(lib.across(np.ascontiguousarray(x.T), values).y, x.T / values)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("columns", (1, 7, 15, 16, 17, 100))
def test_the_largest_of_a_row_is_all_of_it(dtype: type, columns: int) -> None:
    x = np.random.default_rng(columns).uniform(0.01, 1, (2000, columns)).astype(dtype)
    share = ad.define(TEXT).share
    equal(share(x), x / x.max(1, keepdims=True))
    assert (share(x).max(1) == 1).all()
    assert (share(np.full((3, columns), np.finfo(dtype).tiny / 8, dtype)) == 1).all()
    assert (share(np.full((3, columns), np.finfo(dtype).max, dtype)) == 1).all()


@pytest.mark.parametrize("dtype", TYPES)
def test_shares_of_a_total(dtype: type) -> None:
    """Powers far below the total are divided too; where one is infinite, so is the total."""
    lib, chance = ad.define(TEXT), np.random.default_rng(1)
    for spread in (1, 30, 200):
        x = (chance.standard_normal((300, 37)) * spread).astype(dtype)
        x[chance.random(x.shape) < 0.2] = -np.inf
        x[:, 0] = 0
        found = lib.softmax(x)
        equal(found.y, found.e / found.total[:, None])
    x = np.concatenate([special(dtype), chance.standard_normal(20).astype(dtype)])
    for row in (x, x[np.isfinite(x)], x[abs(x) <= 1], x[abs(x) < 1e-4]):
        found = lib.magnitudes(row[None])
        with np.errstate(all="ignore"):
            equal(found.y, abs(row[None]) / found.total[:, None])


@pytest.mark.parametrize("dtype", TYPES)
def test_every_small_divisor(dtype: type) -> None:
    """Multiples come out whole, and their neighbours on their side of a whole number."""
    d, times = np.arange(1, 4097), np.array([1, 2, 3, 5, 7, 10, 15])
    exact = (d[:, None] * times <= 2048) | (dtype != np.float16)
    x, d = np.where(exact, d[:, None] * times, 0).astype(dtype), d.astype(dtype)
    near = [np.nextafter(x, dtype(0)), x, np.nextafter(x, dtype(np.inf)), np.full((4096, 2), -0.0)]
    near = np.concatenate(near, axis=1).astype(dtype)
    found = ad.define(TEXT).by(near, d).y
    equal(found, near / d[:, None])
    equal(np.floor(found[:, 7:14]), np.where(exact, times, 0).astype(dtype))


@pytest.mark.parametrize("vector_bytes", (16, 64))
def test_no_access_leaves_its_tensor(vector_bytes: int) -> None:
    """The kernel of loop IR, step by step in the evaluator, at a length with a rest."""
    made = Prepared(SHARE.group(), (rows.TEMPLATE, pointwise.TEMPLATE), BOX,
                    Machine(vector_bytes, 16))  # fmt: skip
    x = np.random.default_rng(3).uniform(0.1, 1, (4, 35)).astype(np.float32)
    x[1, 5], x[2] = 1e-38, 1e-39
    (found,) = made.outputs([x], {"R": 4, "C": 35}, 1, compiled=False)
    equal(found, x / x.max(1, keepdims=True))


def test_a_machine_without_fused_operations_divides() -> None:
    for has in (True, False):
        made = Prepared(SHARE.group(), (rows.TEMPLATE,), BOX, Machine(fused=has))
        assert ("fma" in str(made.launch.kernel)) == has


# ---- the proof ---------------------------------------------------------------------------------


def _hard_cases(significands: np.ndarray, k: int, power: int) -> tuple[np.ndarray, np.ndarray]:
    """(A, B) with A * 2**power = B * M + k for an odd M of 25 bits, A of 24: k is far below B.

    For each B there are as many as powers of two in it, if k has them too.
    """
    both_a, both_b = [], []
    for twos in range(abs(k & -k).bit_length()):
        b = significands[(significands & -significands) == 1 << twos]
        odd = b >> twos
        inverse = odd.copy()
        for _ in range(5):  # Newton's iteration in integers modulo 2**64
            inverse = inverse * (2 - odd * inverse)
        modulus = 1 << (power - twos)
        first = (-(k >> twos) * inverse) & (modulus - 1)
        for more in range(0, 1 << 25, modulus):
            m = first + more
            a = (b * m + k) >> power
            fine = (m >= 1 << 24) & (m < 1 << 25) & (m & 1 == 1) & (a >= 1 << 23) & (a < 1 << 24)
            fine &= (a << power) == b * m + k
            both_a.append(a[fine])
            both_b.append(b[fine])
    return np.concatenate(both_a), np.concatenate(both_b)


def _three_operations(x: np.ndarray, d: np.ndarray) -> np.ndarray:
    z = np.float32(1) / d
    q = x * z
    return multiply_add(-multiply_add(q, d, -x), z, q)


def _walk(significands: np.ndarray) -> int:
    count = 0
    for power in (24, 25):  # quotients from 1 on, and below 1
        for k in (-4, -3, -2, -1, 1, 2, 3, 4):
            a, b = (found.astype(np.float32) for found in _hard_cases(significands, k, power))
            np.testing.assert_array_equal(_three_operations(a, b), a / b)
            count += len(a)
    return count


def test_quotients_nearest_to_the_middle_of_two_floats() -> None:
    chance = np.random.default_rng(4)
    few = np.unique(chance.integers(1 << 23, 1 << 24, 1 << 15))
    low, high = 1 << 23, 1 << 24
    ends = np.concatenate([np.arange(low, low + 2048), np.arange(high - 2048, high)])
    assert _walk(few) > len(few)
    assert _walk(ends) > len(ends)


@pytest.mark.slow
def test_all_quotients_nearest_to_the_middle_of_two_floats() -> None:
    """Every significand of a divisor: with this, three operations are proven for float32."""
    total = 0
    for start in range(1 << 23, 1 << 24, 1 << 19):
        total += _walk(np.arange(start, start + (1 << 19)))
    assert total > 1 << 23
