"""Promise: products of float32 in parts of bfloat16 have the bits of a model in numpy.

The products of parts are added for each 32 k-steps, as `pair_micro_kernels.PRODUCTS` orders them;
rows with numbers that have no parts are float32 sums in the order of k.
"""

from __future__ import annotations

import numpy
import pytest

from anydim.base.dtypes import bfloat16, convert_array, float32
from anydim.compiler.graph.derivations import Converted
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.int8.float_parts import LARGEST
from anydim.compiler.kernels.matmul.int8.int8_template import BFLOAT16
from anydim.compiler.kernels.matmul.int8.pair_micro_kernels import PRODUCTS
from anydim.compiler.targets.evaluated.functions import flushing_sum, fused_flushing, multiply_add
from tests.unit.compiler.kernels.launching import Prepared
from tests.unit.compiler.kernels.test_bfloat16 import BOX, _vectors_of_words, group_of, runs

__all__ = ["_vectors_of_words"]
MACHINES = pytest.mark.parametrize("machine", [Machine(64, 32, pair_tiles=True)], ids=["tiles"])
PARTS = pytest.mark.parametrize("parts", [2, 3])
TAPS = 3
PLAIN = """
def product(bfloat16(P,K,N) w, float(M,K) a) -> (c) {
  c(m,n) +=! cast<float>(w(j,k,n)) * a(m,k) }"""
EPILOGUE = """
def product(bfloat16(P,K,N) w, float(M,K) a, float(N) bias) -> (y) {
  c(m,n) +=! cast<float>(w(j,k,n)) * a(m,k)
  y(m,n) = max(c(m,n) + bias(n), 0.0) }"""
TRANSPOSED = """
def product(bfloat16(P,N,K) w, float(K,M) a) -> (c) {
  c(m,n) +=! cast<float>(w(j,n,k)) * a(k,m) }"""
WINDOWS = """
def product(bfloat16(P,O,C,R) w, float(K,N,C) x) -> (y) {
  y(b,i,o) +=! cast<float>(w(j,o,c,r)) * (x(b,2*i+r-1,c) else 0) where
    i in 0:(N+1)//2, b in 0:K }"""
HARD = numpy.float32([
    numpy.inf, -numpy.inf, numpy.nan, 1e-40, -1e-40, 2.0**-126, 3.4e38, LARGEST, -2 * LARGEST,
    1e-20, -0.0, 2.0**-149, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 65536.0, 1 + 2.0**-23, 2.0**-110,
])  # fmt: skip


def numbers(*shape: int) -> numpy.ndarray:
    random = numpy.random.default_rng(sum(shape))
    return (random.standard_normal(shape) * 2.0 ** random.integers(-3, 4, shape)).astype("f")


def as_floats(parts: numpy.ndarray, axis: int) -> numpy.ndarray:
    """bfloat16 as float32, padded with zeros along an axis to whole tiles."""
    pads = [(0, 0)] * parts.ndim
    pads[axis] = (0, -parts.shape[axis] % 32)
    return numpy.pad(convert_array(parts, float32.numpy), pads)


def product(a: numpy.ndarray, w: numpy.ndarray) -> numpy.ndarray:
    """float32 [m, k] times parts [parts, k, n]."""
    with numpy.errstate(all="ignore"):
        unfit = ~(abs(a) <= LARGEST).all(1)
        left = as_floats(Converted(bfloat16, len(w)).run(numpy.where(unfit[:, None], 0, a)), 2)
    right = as_floats(w, 1)
    total = numpy.zeros((len(a), w.shape[2]), numpy.float32)
    for start in range(0, left.shape[2], 32):
        for i, j in PRODUCTS[len(w)]:
            halves = [numpy.zeros_like(total) for _ in range(2)]
            for at in range(start, start + 32):
                factors = left[i, :, at, None], right[j, None, at]
                halves[at % 2] = fused_flushing(*factors, halves[at % 2])
            total = flushing_sum(total, flushing_sum(*halves))
    whole = right[0]
    for part in right[1:]:
        whole = whole + part
    for row in numpy.flatnonzero(unfit):
        total[row] = 0
        for k in range(a.shape[1]):
            with numpy.errstate(all="ignore"):
                total[row] = multiply_add(a[row, k], whole[k], total[row])
    return total


def check(found: numpy.ndarray, want: numpy.ndarray) -> None:
    both = numpy.isnan(found) & numpy.isnan(want)
    assert ((found.view("u4") == want.view("u4")) | both).all()


@pytest.mark.sampled
@MACHINES
@PARTS
@pytest.mark.parametrize("text", [PLAIN, EPILOGUE, TRANSPOSED])
@pytest.mark.parametrize("k, n", [(2, 3), (31, 17), (33, 33), (64, 50), (97, 70)])
def test_bits_at_every_size(text: str, k: int, n: int, parts: int, machine: Machine) -> None:
    group = group_of(text, {"p": parts, "k": k, "n": n})
    prepared = Prepared(group, [BFLOAT16], BOX, machine, frozenset("w"))
    weights = Converted(bfloat16, parts).run(numbers(k, n))
    for m in (0, 1, 5, 17, 40):
        a, bias = numbers(m, k), numbers(n)
        for row in range(0, m if k else 0, 2):
            a[row, row % k] = HARD[row // 2 % len(HARD)]
        want = product(a, weights)
        given = [weights, a]
        if text == TRANSPOSED:
            given = [numpy.ascontiguousarray(weights.transpose(0, 2, 1)), a.T.copy()]
        if text == EPILOGUE:
            given.append(bias)
            with numpy.errstate(all="ignore"):
                want = numpy.maximum(want + bias, 0)
        for compiled in {False, runs(machine)}:
            (found,) = prepared.outputs(given, {"m": m}, 1 + m % 2, compiled)
            check(found, want)


@MACHINES
@PARTS
@pytest.mark.parametrize("channels", [16, 19])
def test_bits_of_windows(channels: int, parts: int, machine: Machine) -> None:
    group = group_of(WINDOWS, {"p": parts, "o": 21, "c": channels, "r": TAPS})
    prepared = Prepared(group, [BFLOAT16], BOX, machine, frozenset("w"))
    w = Converted(bfloat16, parts).run(numbers(21, channels, TAPS))
    odd = channels % 2
    rows = numpy.pad(w, ((0, 0), (0, 0), (0, odd), (0, 0))).transpose(0, 3, 2, 1)
    rows = rows.reshape(parts, TAPS * (channels + odd), 21)
    for batch, size in ((1, 1), (3, 9), (1, 37), (0, 5)):
        x = numbers(batch, size, channels)
        if batch and size > 2:
            x[0, 1, 3], x[0, size - 1, 4] = numpy.nan, 3e38
        image = numpy.pad(x, ((0, 0), (1, 2), (0, odd)))
        count = (size + 1) // 2
        windows = [image[:, r : r + 2 * count : 2] for r in range(TAPS)]
        windows = numpy.concatenate([each[:, :count] for each in windows], axis=2)
        want = product(windows.reshape(-1, windows.shape[2]), rows).reshape(batch, count, 21)
        for compiled in {False, runs(machine)}:
            (found,) = prepared.outputs([w, x], {"k": batch, "n": size}, 2, compiled)
            check(found, want)


@pytest.mark.parametrize("machine", [Machine(64, 32), Machine(64, 32, pairs=True)])
def test_machines_without_tiles_do_without(machine: Machine) -> None:
    group = group_of(PLAIN, {"p": 3, "k": 64, "n": 50})
    assert BFLOAT16.match(group, BOX, machine, frozenset("w")) is None


@PARTS
def test_parts_of_numbers(parts: int) -> None:
    """Three parts are a number of 24 bits, two are it to 2^-16, unless they are too small."""
    random = numpy.random.default_rng(0)
    x = (random.uniform(1, 2, 4096) * 2.0 ** random.integers(-100, 40, 4096)).astype("f")
    x[:3] = 0, -0.0, LARGEST
    found = convert_array(Converted(bfloat16, parts).run(x), float32.numpy).astype(float).sum(0)
    assert (abs(found - x) <= (0 if parts == 3 else 2.0**-16) * abs(x)).all()
    assert Converted(bfloat16, parts).run(x).dtype == bfloat16.numpy
