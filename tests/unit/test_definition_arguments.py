"""Promise: a definition takes attributes and ranks by keyword, and arrays of other libraries."""

from __future__ import annotations

import numpy
import pytest

import anydim as ad

LIBRARY = ad.define("""
def softmax(T(...p,C,...q) x) -> (y) {
  top(...p,...q)   max=! x(...p,c,...q)
  e(...p,c,...q)       = exp(x(...p,c,...q) - top(...p,...q))
  total(...p,...q) +=!   e(...p,c,...q)
  y(...p,c,...q)       = e(...p,c,...q) / total(...p,...q)
}
def add(T(...s) a, T(...s) b; float by = 1.0) -> (y) { y(...s) = a(...s) + by * b(...s) }
def moments(T(...b,C) x) -> (mean, square) {
  total(...b) +=! x(...b,c)
  mean(...b) = total(...b) / T(C)
  sum(...b) +=! x(...b,c) * x(...b,c)
  square(...b) = sum(...b) / T(C)
}
def repeat(float(N) x; int times) -> (y) { y(i) = times * x(i) }
def convert(S(...s) x; type to) -> (y) { y(...s) = cast<to>(x(...s)) }
def longer(T(N) x; size by = 1) -> (y) { y(i) = x(i - by) else 0 where i in 0:N + by }
def flip(T(N) x; bool on = true) -> (y) { y(i) = on ? x(N - 1 - i) : x(i) }
def named(T(...p,C,...q) x; int p = 3) -> (y) { y(...p,...q) +=! p * x(...p,c,...q) }
""")


def draw(*shape: int) -> numpy.ndarray:
    return numpy.random.default_rng(shape).standard_normal(shape, numpy.float32)


# ---- ranks of ellipses -------------------------------------------------------------------------


@pytest.mark.sampled(most=6)
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 0, 5), (0, 1, 1), (7, 17, 16)])
@pytest.mark.parametrize("axis", range(3))
def test_the_rank_of_an_ellipsis_is_a_keyword(axis: int, shape: tuple[int, ...]) -> None:
    x = draw(*shape)
    e = numpy.exp(x - x.max(axis, keepdims=True, initial=-numpy.inf))
    wanted = e / e.sum(axis, keepdims=True)
    numpy.testing.assert_allclose(LIBRARY.softmax(x, p=axis), wanted, rtol=1e-5, atol=1e-6)
    numpy.testing.assert_allclose(LIBRARY.softmax(x, q=2 - axis), wanted, rtol=1e-5, atol=1e-6)
    numpy.testing.assert_array_equal(
        LIBRARY.softmax(x, **{"...p": axis}), LIBRARY.softmax(x, p=axis)
    )
    assert LIBRARY.softmax.sizes(shape, p=axis) == shape


def test_a_rank_beside_an_attribute_of_that_name() -> None:
    x = draw(2, 3, 4)
    numpy.testing.assert_allclose(
        LIBRARY.named(x, p=2, **{"...p": 1}), 2 * x.sum(1), rtol=1e-5, atol=1e-6
    )
    numpy.testing.assert_allclose(LIBRARY.named(x, q=0), 3 * x.sum(2), rtol=1e-5, atol=1e-6)


def test_a_rank_in_a_graph() -> None:
    g = ad.Builder("scores")
    n = g.dim("n", 0, 100)
    x = g.input("x", ad.float32, (n, 4, 2))
    g.output("y", LIBRARY.softmax(x, p=1))
    x = draw(3, 4, 2)
    numpy.testing.assert_allclose(ad.compile(g)(x)["y"], LIBRARY.softmax(x, p=1), rtol=1e-6)


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({}, "the dimensions of 'x' are split ambiguously over its ellipses"),
        ({"p": 5}, "'x' has at least 6 dimensions, but the argument has 3"),
        ({"p": -1}, "'...p' stands for -1 dimensions"),
        ({"p": "one"}, "'...p' stands for 'one' dimensions"),
        ({"p": 1, "q": 0}, "'x' has 2 dimensions, but the argument has 3"),
    ],
)
def test_ranks_that_do_not_fit(named: dict[str, object], words: str) -> None:
    with pytest.raises(ad.LanguageError) as raised:
        LIBRARY.softmax(draw(2, 3, 4), **named)
    assert words in str(raised.value)


# ---- attributes --------------------------------------------------------------------------------


def test_attributes_of_every_kind() -> None:
    x = numpy.float32([1.5, -2.0])
    assert LIBRARY.repeat(x, times=3).tolist() == [4.5, -6]
    assert LIBRARY.repeat(x, times=numpy.int64(3)).tolist() == [4.5, -6]
    assert LIBRARY.add(x, x, by=numpy.float64(2)).tolist() == [4.5, -6]
    assert LIBRARY.longer(x, by=numpy.int32(2)).tolist() == [0, 0, 1.5, -2]
    assert LIBRARY.longer.sizes((5,), by=2) == (7,)
    assert LIBRARY.flip(x, on=numpy.bool_(False)).tolist() == [1.5, -2]
    for kind in ("int32", ad.int32, numpy.int32, numpy.dtype("int32")):
        found = LIBRARY.convert(x, to=kind)
        assert (found.dtype, found.tolist()) == (numpy.int32, [1, -2])


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: LIBRARY.repeat([1.0]), ad.LanguageError, "give it by name, times=..."),
        (lambda: LIBRARY.repeat([1.0], times=2.5), ad.LanguageError, "give a whole number"),
        (lambda: LIBRARY.add([1.0], [1.0], by="a"), ad.LanguageError, "give a number"),
        (lambda: LIBRARY.convert([1.0], to="int33"), ad.LanguageError, "did you mean 'int32'?"),
        (lambda: LIBRARY.repeat([1.0], count=2), ad.InputError, "its attributes are 'times'"),
    ],
)
def test_attributes_that_do_not_fit(call, kind, words: str) -> None:
    with pytest.raises(kind) as raised:
        call()
    assert words in str(raised.value)


def test_options_before_a_call_that_needs_an_attribute() -> None:
    library = ad.define("def repeat(float(N) x; int times) -> (y) { y(i) = times * x(i) }")
    with pytest.raises(ad.OptionError, match="depend on attribute 'times'"):
        _ = library.repeat.options
    library.repeat([1.0], times=2)
    assert "pointwise" in str(library.repeat.options)


# ---- arrays of other libraries -----------------------------------------------------------------


def test_torch_tensors_in_and_out() -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(draw(2, 3, 5))
    mean, square = LIBRARY.moments(x)
    torch.testing.assert_close(mean, x.mean(-1))
    torch.testing.assert_close(square, (x * x).mean(-1))
    out = torch.empty(2, 3)
    found = LIBRARY.moments(x, out={"mean": out})
    assert found.mean is out and isinstance(found.square, torch.Tensor)
    torch.testing.assert_close(out, x.mean(-1))
    strided = torch.from_numpy(draw(5, 4)).T
    torch.testing.assert_close(LIBRARY.add(strided, 1.0), strided + 1.0)
    assert LIBRARY.add(x.double(), 2).dtype == torch.float64
    narrow = x.to(torch.bfloat16)
    assert LIBRARY.add(narrow, narrow).dtype == torch.bfloat16
    assert isinstance(LIBRARY.add(draw(5), x), torch.Tensor)
    assert LIBRARY.add.sizes(x, (5,)) == (2, 3, 5)


def test_a_torch_tensor_is_input_and_output() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(5.0)
    assert LIBRARY.flip(x, out=x) is x
    assert x.tolist() == [4, 3, 2, 1, 0]


def test_torch_tensors_that_do_not_fit() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(3)
    meta = torch.ones(3, device="meta")
    with pytest.raises(ad.InputError, match="argument 'b': the array cannot be shared"):
        LIBRARY.add(x, meta)
    with pytest.raises(ad.InputError, match="the array for 'y': the array cannot be shared"):
        LIBRARY.add(x, x, out=meta)
    with pytest.raises(ad.InputError, match="the array for 'y': the array requires gradients"):
        LIBRARY.add(x, x, out=torch.ones(3, requires_grad=True))
    with pytest.raises(ad.InputError, match="dtype float64, the result has float32"):
        LIBRARY.add(x, x, out=x.double())


class Owned:
    """An array of a library that says whether it may be written, or (`old`) does not."""

    def __init__(self, array: numpy.ndarray, old: bool) -> None:
        self.array, self.old = array, old

    def __dlpack__(self, **options: object) -> object:
        if self.old and options:
            raise TypeError("no such option")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("old", (False, True))
@pytest.mark.parametrize("shared", (False, True))
def test_out_of_a_library_with_dlpack(old: bool, shared: bool) -> None:
    x = draw(7)
    wanted = x[::-1].copy()
    array = x if shared else numpy.zeros(7, numpy.float32)
    out = Owned(array, old)
    assert LIBRARY.flip(x, out=out) is out
    numpy.testing.assert_array_equal(array, wanted)


def test_out_that_its_library_keeps_read_only() -> None:
    array = numpy.zeros(7, numpy.float32)
    array.flags.writeable = False
    with pytest.raises(ad.InputError, match=r"is read-only|cannot be shared"):
        LIBRARY.flip(draw(7), out=Owned(array, old=False))
    assert not array.any()
