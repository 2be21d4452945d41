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
def rows(int(P) ptr, int(E) col, float(E) val, float(C,F) x) -> (y) {
  y(r,f) +=! val(k) * x(col(k),f) where r in 0:P-1, k in ptr(r):ptr(r+1)
}
def rows_looped(int(P) ptr, int(E) col, float(E) val, float(C,F) x) -> (y) {
  for r in 0:P-1 { y(r,f) +=! val(k) * x(col(k),f) where k in ptr(r):ptr(r+1) }
}
def softmax(int(P) ptr, int(E) row, float(E,F) x) -> (y) {
  top(r,f) max=! x(k,f) where r in 0:P-1, k in ptr(r):ptr(r+1)
  total(r,f) +=! exp(x(k,f) - top(r,f)) where k in ptr(r):ptr(r+1)
  y(k,f) = exp(x(k,f) - top(row(k),f)) / total(row(k),f)
}
def words(int(P) sentence, int(S) word, float(E,F) x) -> (y) {
  y(p,f) +=! x(k,f) where p in 0:P-1, s in sentence(p):sentence(p+1), k in word(s):word(s+1)
}
def columns(int(F) length, float(E,F) x) -> (y) { y(f) +=! x(k,f) where k in 0:length(f) }
def lengths(int(R) length, float(R,E) x) -> (y) { y(r) +=! x(r,k) where k in 0:length(r) }
def two(int(P) ptr, int(P) other, float(E) x) -> (a, b) {
  a(r) +=! x(k) where r in 0:P-1, k in ptr(r):ptr(r+1)
  b(r) +=! x(k) where r in 0:P-1, k in other(r):other(r+1)
}
def update(int(P) ptr, float(E) x, float(E) y) -> (y) {
  for r in 0:P-1 { y(k) += x(k) * (r + 1) where k in ptr(r):ptr(r+1) }
}
""")

COLUMNS = [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 64, 65, 131]


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


def test_lanes_run_along_the_columns_that_rows_of_a_table_have() -> None:
    random = numpy.random.default_rng(5)
    for columns, elements in itertools.product(COLUMNS, (0, 1, 15, 131)):
        ptr = parts(random, 7, elements)
        val = random.standard_normal(elements).astype(numpy.float32)
        col = random.integers(0, 5, elements).astype(numpy.int32)
        table = random.standard_normal((5, columns)).astype(numpy.float32)
        wanted = sums(ptr, val[:, None].astype(numpy.float64) * table[col])
        for of in (PARTS.rows, PARTS.rows_looped):
            numpy.testing.assert_allclose(of(ptr, col, val, table), wanted, atol=1e-4)


def test_a_column_has_the_same_bits_beside_others() -> None:
    random = numpy.random.default_rng(9)
    ptr, val = parts(random, 7, 131), random.standard_normal(131).astype(numpy.float32)
    col = random.integers(0, 5, 131).astype(numpy.int32)
    table = random.standard_normal((5, 131)).astype(numpy.float32)
    whole = PARTS.rows(ptr, col, val, table)
    for columns in COLUMNS:
        some = PARTS.rows(ptr, col, val, numpy.ascontiguousarray(table[:, :columns]))
        numpy.testing.assert_array_equal(some, whole[:, :columns])


def test_softmax_of_segments() -> None:
    random = numpy.random.default_rng(6)
    for columns, rows in itertools.product(COLUMNS, (1, 3, 40)):
        counts = random.integers(0, 9, rows)
        row = numpy.repeat(numpy.arange(rows), counts).astype(numpy.int32)
        ptr = numpy.concatenate([[0], numpy.cumsum(counts)]).astype(numpy.int32)
        x = random.standard_normal((len(row), columns)).astype(numpy.float32)
        powers = numpy.exp(x.astype(numpy.float64))
        wanted = powers / sums(ptr, powers)[row]
        numpy.testing.assert_allclose(PARTS.softmax(ptr, row, x), wanted, atol=1e-6)


def test_parts_of_parts() -> None:
    random = numpy.random.default_rng(7)
    for columns in (0, 1, 5, 16, 37):
        word = numpy.sort(random.integers(0, 101, 21)).astype(numpy.int32)
        sentence = numpy.sort(random.integers(0, 21, 6)).astype(numpy.int32)
        x = random.standard_normal((100, columns)).astype(numpy.float32)
        wanted = sums(word[sentence], x.astype(numpy.float64))
        numpy.testing.assert_allclose(PARTS.words(sentence, word, x), wanted, atol=1e-4)
    word[3] = 101
    with pytest.raises(ad.InputError):
        PARTS.words(numpy.array([0, 20], numpy.int32), word, x)


def test_each_column_has_its_own_end() -> None:
    x = numpy.arange(60, dtype=numpy.float32).reshape(3, 20)
    length = numpy.arange(20, dtype=numpy.int32) % 4
    wanted = [x[:end, f].sum() for f, end in enumerate(length)]
    assert PARTS.columns(length, x).tolist() == wanted


def test_reductions_over_two_parts_visit_both() -> None:
    random = numpy.random.default_rng(8)
    ptr, other = parts(random, 9, 50), parts(random, 9, 50)
    x = random.standard_normal(50).astype(numpy.float32)
    a, b = PARTS.two(ptr, other, x)
    numpy.testing.assert_allclose(a, sums(ptr, x[:, None])[:, 0], atol=1e-5)
    numpy.testing.assert_allclose(b, sums(other, x[:, None])[:, 0], atol=1e-5)
    whole = numpy.zeros(20_000, numpy.int32)  # visiting all of x for each row takes seconds
    whole[-1] = 200_000
    for each in PARTS.two(whole, whole, numpy.ones(200_000, numpy.float32)):
        assert each[-1] == 200_000


def test_an_update_in_an_ordered_loop_visits_its_part() -> None:
    five = numpy.full(6, 5, numpy.float32)
    y = PARTS.update(numpy.array([1, 3, 4], numpy.int32), five / 5, five)
    assert y.tolist() == [5, 6, 6, 7, 5, 5]
    ptr = numpy.arange(20_001, dtype=numpy.int32)
    ones = numpy.ones(20_000, numpy.float32)
    numpy.testing.assert_array_equal(PARTS.update(ptr, ones, ones), numpy.arange(20_000) + 2)


def test_ends_are_checked_where_an_element_is_left_for_them() -> None:
    """The second bound is needed only if the first one leaves something."""
    table, none = numpy.ones((5, 3), numpy.float32), numpy.zeros(0, numpy.int32)
    col, val = numpy.zeros(10, numpy.int32), numpy.ones(10, numpy.float32)
    assert PARTS.rows(numpy.array([10, 99], numpy.int32), col, val, table).tolist() == [[0] * 3]
    empty = PARTS.rows(numpy.array([0, 99], numpy.int32), none, val[:0], table)
    assert empty.tolist() == [[0] * 3]
    for ends in ([0, 11], [-1, 5], [3, -2], [2, 1 << 30]):
        with pytest.raises(ad.InputError, match="give indices from 0 to 10"):
            PARTS.rows(numpy.array(ends, numpy.int32), col, val, table)
    with pytest.raises(ad.InputError, match="index 5 is outside"):
        PARTS.rows(numpy.array([0, 4], numpy.int32), col + 5, val, table)
    assert (PARTS.rows(numpy.array([4, 4], numpy.int32), col + 5, val, table) == 0).all()


def test_lanes_across_rows_with_parts_of_their_own_are_refused() -> None:
    text = "def f(int(P) p, float(E) x) -> (y) { y(r) +=! x(k) where r in 0:P-1, k in p(r):p(r+1) }"
    x, ptr = numpy.ones(10, numpy.float32), numpy.array([0, 4, 10], numpy.int32)
    with pytest.raises(ad.OptionError, match="'across' of 'rows' cannot be true"):
        ad.define(text, options={"f": "rows(across=true)"}).f(ptr, x)
    assert "across=false" in str(ad.define(text).f.model(ptr, x).explain(details=True))


@pytest.mark.parametrize("columns", [1, 8, 17, 150])
def test_threads_share_rows_whatever_the_ranges(columns: int) -> None:
    """Sorted, empty, overlapping and backward ranges: each row is computed once."""
    random = numpy.random.default_rng(columns)
    text = """def f(int(P) ptr, int(E) col, float(E) val, float(C,F) x) -> (y) {
      y(r,f) +=! val(k) * x(col(k),f) where r in 0:P-1, k in ptr(r):ptr(r+1)
    }"""
    one, two = (ad.define(text, threads=threads).f for threads in (1, 2))
    val = random.standard_normal(20_000).astype(numpy.float32)
    col = random.integers(0, 5, 20_000).astype(numpy.int32)
    table = random.standard_normal((5, columns)).astype(numpy.float32)
    ends = random.integers(0, 20_001, 301).astype(numpy.int32)
    for ptr in (numpy.sort(ends), ends, ends[::-1] * 0, numpy.sort(ends)[::-1].copy()):
        model = two.model(ptr, col, val, table)
        assert model.plan(P=301, E=20_000, C=5, F=columns).launches[0].parts == 2
        found, wanted = (of(ptr, col, val, table) for of in (two, one))
        numpy.testing.assert_array_equal(found, wanted)
    exact = sums(numpy.sort(ends), val[:, None].astype(numpy.float64) * table[col])
    found = two(numpy.sort(ends), col, val, table)
    numpy.testing.assert_allclose(found, exact, atol=1e-3)


def test_the_work_is_counted_once_for_all_parts() -> None:
    """Adjoining parts together have the elements of the axis; of others, one a row is counted."""
    ptr, col, ones = numpy.zeros(2, numpy.int32), numpy.zeros(1, numpy.int32), numpy.ones(1)
    val, table = ones.astype(numpy.float32), numpy.ones((1, 1), numpy.float32)
    for of in (PARTS.rows, PARTS.rows_looped):
        model = of.model(ptr, col, val, table)
        few, many = (model.plan(P=p, E=10_000, C=50, F=64).flops for p in (11, 5001))
        assert 4 * 10_000 * 64 <= few <= many <= (4 * 10_000 + 5_000) * 64
    model = PARTS.lengths.model(col, table)
    assert model.plan(R=10, E=10_000).flops < 100


def sums(ptr: numpy.ndarray, x: numpy.ndarray) -> numpy.ndarray:
    """The sums of the rows of x in each part."""
    return numpy.stack([x[low:high].sum(0) for low, high in itertools.pairwise(ptr)])
