"""Promise: a reduction over a part of a row that data gives visits that part alone."""

from __future__ import annotations

import itertools

import numpy
import pytest

import anydim as ad

PARTS = ad.define("""
def total(int(P) ptr, float(E) x) -> (y) {
  y(r) +=! x(k) where r in 0:P-1, k in ptr(r):ptr(r+1)
}
def largest(int(P) ptr, float(E) x) -> (y) {
  y(r) max=! x(k) where r in 0:P-1, k in ptr(r):ptr(r+1)
}
def product(int(P) ptr, int(E) col, float(E) val, float(C) x) -> (y) {
  y(r) +=! val(k) * x(col(k)) where r in 0:P-1, k in ptr(r):ptr(r+1)
}
def looped(int(P) ptr, int(E) col, float(E) val, float(C) x) -> (y) {
  for r in 0:P-1 { y(r) +=! val(k) * x(col(k)) where k in ptr(r):ptr(r+1) }
}
def running(int(P) ptr, float(E) x) -> (y) {
  for r in 0:P-1 { y(r) max=! x(k) + (y(r-1) else 0) where k in ptr(r):ptr(r+1) }
}
def pairs(int(P) ptr, float(H) x) -> (y) {
  y(r) +=! x(k // 2) where r in 0:P-1, k in ptr(r):ptr(r+1), exists x(k // 2)
}
""")


def parts(random: numpy.random.Generator, rows: int, elements: int) -> numpy.ndarray:
    """Ends of parts, some of them empty or backwards."""
    ends = numpy.sort(random.integers(0, elements + 1, rows + 1)).astype(numpy.int32)
    if rows > 3:
        ends[1], ends[2] = ends[2], ends[1]
    return ends


@pytest.mark.parametrize("elements", [0, 1, 15, 16, 17, 64, 131, 1000])
def test_values_are_those_of_the_parts(elements: int) -> None:
    random = numpy.random.default_rng(elements)
    for rows in (0, 1, 7, 40):
        ptr = parts(random, rows, elements)
        x = random.standard_normal(elements).astype(numpy.float32)
        wanted = [x[low:high] for low, high in itertools.pairwise(ptr)]
        sums = numpy.array([part.sum(dtype=numpy.float64) for part in wanted])
        # the magnitude of the sums is that of their parts, whatever cancels
        close = 1e-6 * max(1.0, float(numpy.abs(x).sum()))
        numpy.testing.assert_allclose(PARTS.total(ptr, x), sums, rtol=0, atol=close)
        tops = [part.max(initial=-numpy.inf) for part in wanted]
        numpy.testing.assert_array_equal(PARTS.largest(ptr, x), numpy.array(tops, numpy.float32))
        col = random.integers(0, 5, elements).astype(numpy.int32)
        table = random.standard_normal(5).astype(numpy.float32)
        held = [float((part * table[c]).sum()) for part, c in
                zip(wanted, (col[low:high] for low, high in itertools.pairwise(ptr)))]  # fmt: skip
        numpy.testing.assert_allclose(
            PARTS.product(ptr, col, x, table), held, rtol=0, atol=4 * close
        )


def test_parts_inside_of_loops_that_run_in_order() -> None:
    random = numpy.random.default_rng(3)
    for elements in (0, 1, 40, 300):
        ptr = parts(random, 9, elements)
        x = random.standard_normal(elements).astype(numpy.float32)
        col = random.integers(0, 5, elements).astype(numpy.int32)
        table = random.standard_normal(5).astype(numpy.float32)
        together = PARTS.product(ptr, col, x, table)
        # the same products in another order: some roundings of sums of at most 300 terms near 1
        numpy.testing.assert_allclose(PARTS.looped(ptr, col, x, table), together, atol=1e-4)
        held, wanted = numpy.float32(0), []
        for low, high in itertools.pairwise(ptr):
            held = (x[low:high] + held).max(initial=-numpy.inf)
            wanted.append(held)
        numpy.testing.assert_array_equal(PARTS.running(ptr, x), numpy.array(wanted, numpy.float32))
    with pytest.raises(ad.InputError):
        PARTS.looped(numpy.array([0, 11], numpy.int32), col[:10], x[:10], table)


def test_a_row_has_the_same_bits_wherever_its_part_begins() -> None:
    x = numpy.random.default_rng(1).standard_normal(100).astype(numpy.float32)
    moved = numpy.concatenate([numpy.ones(13, numpy.float32), x])
    first = PARTS.total(numpy.array([0, 100], numpy.int32), x)
    second = PARTS.total(numpy.array([13, 113], numpy.int32), moved)
    assert first.tobytes() == second.tobytes()


def test_ends_outside_of_the_row_are_errors() -> None:
    x = numpy.ones(10, numpy.float32)
    for ends in ([0, 11], [-1, 5], [3, -2], [2, 1 << 30]):
        with pytest.raises(ad.InputError):
            PARTS.total(numpy.array(ends, numpy.int32), x)


def test_only_the_part_is_visited() -> None:
    """An index outside its table is met in the part that holds it, and in no other."""
    col = numpy.full(1000, 3, numpy.int32)
    col[500] = 99
    val, table = numpy.ones(1000, numpy.float32), numpy.ones(5, numpy.float32)
    assert PARTS.product(numpy.array([0, 500], numpy.int32), col, val, table).tolist() == [500]
    text = PARTS.product.model(numpy.array([0, 500], numpy.int32), col, val, table).show("kernels")
    assert " in 0:" not in text
