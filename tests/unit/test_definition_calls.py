"""Promise: a definition is called like a function: results into given arrays, sizes fixed or asked
for, numbers for scalars, several results by name."""

from __future__ import annotations

import copy
import threading

import numpy
import pytest

import anydim as ad
from tests.unit.lang.catalogue import PROGRAMS, Program

LIBRARY = ad.define("""
def matmul(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def axpy(T a, T(...s) x, T(...s) y) -> (z) { z(...s) = a * x(...s) + y(...s) }
def shift(float(N) x) -> (y) { y(i) = x(N - 1 - i) where i in 0:N }
def bounds(float(N) x; int times = 1) -> (low, high) {
  low min=! times * x(i)
  high max=! times * x(i)
}
def scan(float(T,C) x) -> (y) { for t in 0:T { y(t,c) = x(t,c) + (y(t-1,c) else 0) } }
def steps(float(N) x, float(N - 1) w) -> (y) { y(i) = (x(i + 1) - x(i)) * w(i) }
""")


def draw(*shape: int, seed: int = 0) -> numpy.ndarray:
    return numpy.random.default_rng((seed, *shape)).standard_normal(shape, numpy.float32)


# ---- results into given arrays -----------------------------------------------------------------


@pytest.mark.parametrize("rows", (0, 1, 5, 17))
def test_out_is_filled_and_handed_back(rows: int) -> None:
    a, b = draw(rows, 7), draw(7, 9, seed=1)
    out = numpy.full((rows, 9), numpy.nan, numpy.float32)
    assert LIBRARY.matmul(a, b, out=out) is out
    numpy.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-5)


def test_out_may_be_an_input() -> None:
    x = draw(33)
    wanted = x[::-1].copy()
    assert LIBRARY.shift(x, out=x) is x
    assert (x == wanted).all()
    square = draw(4, 4)
    wanted = square @ square
    LIBRARY.matmul(square, square, out=square)
    numpy.testing.assert_allclose(square, wanted, rtol=1e-5, atol=1e-5)
    whole = draw(10)
    wanted = whole[:8][::-1].copy()
    LIBRARY.shift(whole[:8], out=whole[2:])
    assert (whole[2:] == wanted).all()


def test_out_for_some_of_several_results() -> None:
    x, low = draw(9), numpy.empty((), numpy.float32)
    found = LIBRARY.bounds(x, out={"low": low})
    assert found.low is low
    assert (low, found.high) == (x.min(), x.max())
    low, high = (numpy.empty((), numpy.float32) for _ in range(2))
    assert LIBRARY.bounds(x, out=(low, high)) == (low, high)


def test_out_of_another_library() -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.from_numpy(draw(3, 3, seed=seed)) for seed in (0, 1))
    out = torch.zeros(3, 3)
    assert LIBRARY.matmul(a, b, out=out) is out
    torch.testing.assert_close(out, a @ b)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (numpy.zeros((3, 4), numpy.float32), r"has shape \(3, 4\), the result has \(3, 5\)"),
        (numpy.zeros((3, 5)), "has dtype float64, the result has float32"),
        (numpy.zeros((5, 3), numpy.float32).T, "is not contiguous"),
        ([1.0], "expected an array, got float"),
        ({"D": numpy.zeros((3, 5), numpy.float32)}, "no result 'D'"),
        ((numpy.zeros((3, 5), numpy.float32),) * 2, "has 1 result, got 2 arrays"),
    ],
)
def test_out_that_does_not_fit(out: object, words: str) -> None:
    with pytest.raises(ad.InputError, match=words):
        LIBRARY.matmul(draw(3, 4), draw(4, 5), out=out)


def test_out_that_is_read_only_or_shared() -> None:
    out = numpy.zeros((3, 3), numpy.float32)
    with pytest.raises(ad.InputError, match="share memory"):
        LIBRARY.bounds(draw(3), out=(out[0, 0:1].reshape(()), out[0, 0:1].reshape(())))
    out.flags.writeable = False
    with pytest.raises(ad.InputError, match="is read-only"):
        LIBRARY.matmul(draw(3, 3), draw(3, 3), out=out)


# ---- sizes -------------------------------------------------------------------------------------


def test_sizes_without_running() -> None:
    assert LIBRARY.matmul.sizes(A=(3, 4), B=(4, 5)) == (3, 5)
    assert LIBRARY.matmul.sizes((0, 4), (4, 1)) == (0, 1)
    assert LIBRARY.matmul.sizes(draw(2, 3), (3, 7)) == (2, 7)
    assert LIBRARY.axpy.sizes(2.0, (5, 1, 3), (4, 1)) == (5, 4, 3)
    assert LIBRARY.bounds.sizes((9,)) == ((), ())
    assert LIBRARY.bounds.sizes((9,)).high == ()
    assert LIBRARY.scan.sizes((10**6, 10**6)) == (10**6, 10**6)
    assert LIBRARY.steps.sizes((9,), (8,)) == (8,)


def test_sizes_that_do_not_fit() -> None:
    with pytest.raises(ad.DimError, match="size 5 in axis 0"):
        LIBRARY.matmul.sizes((3, 4), (5, 6))
    with pytest.raises(ad.LanguageError, match="has 2 dimensions, but the argument has 1"):
        LIBRARY.matmul.sizes((3,), (5, 6))
    with pytest.raises(ad.InputError, match="is no shape"):
        LIBRARY.matmul.sizes((3, "x"), (5, 6))


# ---- fixed sizes -------------------------------------------------------------------------------


def test_a_fixed_size_is_a_number_in_the_code() -> None:
    library = ad.define(
        "def f(float(M,K) A, float(K) b) -> (c) { c(m) +=! A(m,k) * b(k) }", fixed={"K": 64}
    )
    model = library.f.model(draw(3, 64), draw(64))
    assert model.dims.names == ("M",)
    for rows in (0, 1, 8):
        a, b = draw(rows, 64), draw(64)
        numpy.testing.assert_allclose(library.f(a, b), a @ b, rtol=1e-4, atol=1e-4)
    with pytest.raises(ad.DimError, match="expected 64"):
        library.f(draw(3, 63), draw(63))


def test_a_size_fixed_for_one_call() -> None:
    a, b = draw(3, 64), draw(64, 5)
    fixed = LIBRARY.matmul(a, b, fixed={"K": 64, "N": 5})
    numpy.testing.assert_allclose(fixed, LIBRARY.matmul(a, b), rtol=1e-5, atol=1e-5)
    assert LIBRARY.matmul.model(a, b, fixed={"K": 64}).dims.names == ("M", "N")
    assert LIBRARY.matmul.model(a, b).dims.names == ("K", "M", "N")


@pytest.mark.parametrize(
    ("fixed", "words"), [({"Q": 3}, "no size 'Q'"), ({"K": -1}, "from 0 up"), ({"K": 1.5}, "1.5")]
)
def test_what_cannot_be_fixed(fixed: dict, words: str) -> None:
    with pytest.raises(ad.OptionError, match=words):
        LIBRARY.matmul(draw(2, 3), draw(3, 2), fixed=fixed)
    if "Q" in fixed:
        with pytest.raises(ad.OptionError, match="has a size 'Q'"):
            ad.define("def f(float(N) x) -> (y) { y(i) = x(i) }", fixed=fixed)


# ---- scalars, attributes, results --------------------------------------------------------------


@pytest.mark.parametrize("dtype", ("float32", "float64", "int64", "int16"))
def test_numbers_take_the_type_of_what_they_meet(dtype: str) -> None:
    x = numpy.arange(6).astype(dtype).reshape(2, 3)
    found = LIBRARY.axpy(3, x, x)
    assert found.dtype == dtype
    assert (found == 4 * x).all()


def test_numbers_alone() -> None:
    assert LIBRARY.axpy(2.0, 3.0, 1.0) == 7.0
    assert LIBRARY.axpy(2, 3, 1) == 7
    with pytest.raises(ad.InputError, match="argument 'x'"):
        LIBRARY.bounds("text")


def test_several_results_have_names() -> None:
    x = draw(33)
    found = LIBRARY.bounds(x, times=2)
    assert (found.low, found.high) == (2 * x.min(), 2 * x.max())
    assert found._fields == ("low", "high")


# ---- one compilation ---------------------------------------------------------------------------


def test_another_size_never_compiles_again() -> None:
    library = ad.define("def f(float(T,C) x) -> (y) { y(t,c) = x(t,c) + 1 }")
    for size in (0, 1, 7, 8, 9, 100):
        assert (library.f(numpy.zeros((size, size + 1), numpy.float32)) == 1).all()
    assert len(library.f._models) == 1


def test_the_same_text_is_compiled_once() -> None:
    text = "def f(float(T,C) x) -> (y) { y(t,c) = x(t,c) + 2 }"
    first, second = (ad.define(text).f.model(draw(2, 2)) for _ in range(2))
    assert first is second


def test_threads_share_a_function() -> None:
    library = ad.define("def f(float(T) x) -> (y) { for t in 0:T { y(t) = x(t) + 0.5 } }")
    wrong = []

    def work(seed: int) -> None:
        for size in (0, 1, 5, 100 + seed):
            x = draw(size, seed=seed)
            if not (library.f(x) == x + numpy.float32(0.5)).all():
                wrong.append((seed, size))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(library.f._models) == 1


# ---- every program -----------------------------------------------------------------------------


@pytest.mark.sampled(most=7)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_every_program_at_many_sizes(program: Program) -> None:
    """Compiled once, called at 30 sizes, with an array for the result at every other one."""
    function = list(ad.define(program.text).values())[-1]
    for number, sizes in enumerate(program.sizes(30)):
        arrays = program.arrays(sizes)
        wide = [a.astype("float64") if a.dtype.kind == "f" else a for a in arrays]
        with numpy.errstate(all="ignore"):
            expected = program.reference(*wide)
        expected = expected if isinstance(expected, tuple) else (expected,)
        found = function(*arrays)
        results = found if isinstance(found, tuple) else (found,)
        if number % 2:
            out = tuple(numpy.empty_like(result) for result in results)
            function(*arrays, out=out)
            results = out
        for result, wanted in zip(results, expected, strict=True):
            assert result.shape == numpy.shape(wanted)
            tolerance = {"rtol": program.tolerance, "atol": program.tolerance}
            numpy.testing.assert_allclose(result, wanted, err_msg=str(sizes), **tolerance)
        shapes = function.sizes(*arrays)
        shapes = shapes if len(expected) > 1 else (shapes,)
        assert list(shapes) == [result.shape for result in results]
    assert len(function._models) == 1


def test_a_name_that_begins_with_an_underscore() -> None:
    lib = ad.define("def _twice(float(N) x) -> (y) { y(i) = 2 * x(i) }")
    assert lib._twice(numpy.ones(2, numpy.float32)).tolist() == [2, 2]
    assert copy.copy(lib)["_twice"] is lib._twice
    with pytest.raises(AttributeError, match="there is no definition '_once'"):
        _ = lib._once


def test_next_after_is_for_floats_that_are_computed() -> None:
    lib = ad.define("def after(T(N) x, T(N) y) -> (z) { z(i) = nextafter(x(i), y(i)) }")
    x, y = numpy.array([0, 1, -1, numpy.inf]), numpy.array([1.0, 0, -2, 0])
    numpy.testing.assert_array_equal(lib.after(x, y), numpy.nextafter(x, y))
    with pytest.raises(ad.LanguageError, match="'nextafter' takes float32 or float64, not float16"):
        lib.after(x.astype(numpy.float16), y.astype(numpy.float16))


def test_sizes_of_shapes_whose_element_type_is_not_said() -> None:
    lib = ad.define("""
      def follow(T(N) nxt, T last) -> (path) {
        for t in N { path(t) = nxt(path(t - 1) else last) }
      }
      def add(T(...s) a, T(...s) b) -> (y) { y(...s) = a(...s) + b(...s) }
    """)
    assert lib.follow.sizes((3,), ()) == (3,)
    assert lib.add.sizes(numpy.ones((3, 1)), (4,)) == (3, 4)
    with pytest.raises(ad.UserError):
        lib.add.sizes((3,), (4,))
