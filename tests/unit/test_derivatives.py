"""Promise: `lib.f.vjp` is called, named and refused like a definition, and runs as native code."""

import numpy as np
import pytest

import anydim as ad
from anydim.base.errors import InputError, LanguageError, OptionError
from tests.differentiable import PROGRAMS
from tests.gradients import TOLERANCE, check, values

MATMUL = "def matmul(T(M,K) A, T(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


def compiled(definition, arrays, attributes):
    """The results of a definition, by the compiler."""
    results = ad.define(definition.text)[definition.name](*arrays, **dict(attributes))
    return list(results) if isinstance(results, tuple) else [results]


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize(
    "name", ["attention", "convolution", "lstm", "ctc", "sparse", "gather, some outside", "product"]
)
def test_native_code_agrees(name):
    program = PROGRAMS[name]
    lib = ad.define(program.text)
    f = lib[list(lib)[-1]]
    for n in (0, 1, 7):
        arrays = program.arguments(np.random.default_rng(n), n)
        results = values(f.definition, arrays, program.attributes)
        cotangents = [np.ones(r.shape) for r in results if r.dtype.kind == "f"]
        made = f.vjp(*arrays, *cotangents, **program.attributes)
        function = f.vjp.function(*arrays, **program.attributes)
        wanted = values(function.definition, [*arrays, *cotangents], {})
        for result, value in zip(made if isinstance(made, tuple) else (made,), wanted):
            assert result.shape == value.shape and np.allclose(
                result, value, rtol=1e-10, atol=1e-12
            )


def test_results_are_named():
    f = ad.define(MATMUL).matmul
    a, b = np.ones((2, 3)), np.ones((3, 4))
    result = f.vjp(a, b, dC=np.ones((2, 4)))
    assert result._fields == ("dA", "dB") and (result.dA == 4).all() and (result.dB == 2).all()
    assert (f.vjp(B=b, A=a, dC=np.ones((2, 4))).dA == 4).all()


def test_types_ranks_and_attributes_have_a_derivative_each():
    f = ad.define("def f(T(...s) x; float by = 2.0) -> (y) { y(...s) = by * x(...s) }").f
    assert f.vjp(np.ones(3), np.ones(3)).dtype == np.float64
    assert f.vjp(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)).shape == (2, 3)
    assert (f.vjp(np.ones(3), np.ones(3), by=5.0) == 5).all()
    assert f.vjp.function(np.ones(3)).definition.name == "f_vjp"


def test_half_precision_sums_in_float():
    f = ad.define("def f(half(N) x) -> (y) { y +=! x(i) * x(i) }").f
    x = np.arange(5, dtype=np.float16)
    dx = f.vjp(x, np.float16(1))
    assert dx.dtype == np.float16 and (dx == 2 * x).all()


def test_broadcast_axes_are_summed():
    f = ad.define("def f(T(...s) a, T(...s) b) -> (y) { y(...s) = a(...s) * b(...s) }").f
    da, db = f.vjp(np.ones((3, 1)), np.ones(4), np.ones((3, 4)))
    assert da.shape == (3, 1) and (da == 4).all() and db.shape == (4,) and (db == 3).all()


def test_equal_texts_print_and_parse_again():
    f = ad.define(PROGRAMS["lstm"].text).lstm
    arrays = PROGRAMS["lstm"].arguments(np.random.default_rng(0), 3)
    text = f.vjp.function(*arrays).definition.text
    assert ad.define(text).lstm_vjp.definition == f.vjp.function(*arrays).definition
    assert (
        check(ad.define(text).lstm_vjp.definition, [*arrays, *arrays_like(f, arrays)]) < TOLERANCE
    )


def arrays_like(f, arrays):
    """Arrays of the shapes of the results."""
    return [np.ones(r.shape) for r in values(f.definition, arrays, {})]


REFUSED = {
    "def f(int64(N) x) -> (y) { y(i) = x(i) }": "no argument is of a float type",
    "def f(float(N) x) -> (y) { y(i) = x(i) > 0 }": "no result is of a float type",
    "def f(float(N) x) -> (y) { y(i) = nextafter(x(i), 1.0) }":
        "nextafter(...) has no derivative: y(i) = nextafter(x(i), float32(1.0))",
    "def f(float(N) x, int64(N) at) -> (y) { y(i) = 0 where exists x(i)  y(at(i)) = x(i) }":
        "the last of several values assigned to one element counts: write y(at(i)) = x(i)",
    "def f(float(N) x, int64(N) at) -> (y) { y(i) = 0 where exists x(i)  y(at(i)) max= x(i) }":
        "'max=' at positions that data gives has no derivative: write y(at(i)) max= x(i)",
    "def f(float(N) x, int64 n) -> (y) { y = 1.0 for t in 0:n { y = y * x(0) + y * y } }":
        "the number of iterations to save values of is data: for t in 0:n():1",
    "def f(float x; size depth = 9) -> (y) { if x < 1 { y = x } else { z = f(x - 1) y = z } }":
        "a definition with calls of itself has no derivative",
    "type List { nil; cons(float x, List l) }"
    " def f(List l) -> (y) { match l { nil { y = 0.0 } cons(x, r) { z = f(r) y = x + z } } }":
        "a definition with structures has no derivative",
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_what_has_no_derivative_is_named(text):
    with pytest.raises(LanguageError) as caught:
        _ = ad.define(text).f.vjp.text
    assert REFUSED[text] in str(caught.value)


def test_arguments_of_derivatives_are_checked():
    f = ad.define(MATMUL).matmul
    a, b = np.ones((2, 3)), np.ones((3, 4))
    with pytest.raises(InputError, match="1 cotangents, of 'C'; 0 came"):
        f.vjp(a, b)
    with pytest.raises(InputError, match="expected"):
        f.vjp(a, b, np.ones((2, 5)))
    with pytest.raises(OptionError, match="takes neither out= nor fixed="):
        f.vjp(a, b, np.ones((2, 4)), out=a)


def test_a_definition_of_several_nodes_is_refused() -> None:
    lib = ad.define("def f(float(N) x) -> (y) { s, p = sort(x)\n y(i) = s(i) * 2 }")
    with pytest.raises(ad.LanguageError, match="a definition with algorithms, `while` or calls"):
        lib.f.vjp.text  # noqa: B018
