"""Promise: numbers and sizes that a program computes are Python's, negative ones too."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import anydim.torch.backend  # noqa: E402, F401  registers the backend
from anydim.base.errors import UserError  # noqa: E402
from tests.torch.compiling import anew  # noqa: E402, F401  before and after each test

Function = Callable[[Any, Any], Any]
NATURAL = (5, 2, 3, 4, 7)
SIGNED = (5, -3, -1, 2, -2, -4, 3, 6, -9)


def compiled(function: Function) -> Any:
    return torch.compile(function, backend="anydim", dynamic=True)


def power_of_a_size(x: Any, n: int) -> Any:
    return torch.arange(n, dtype=torch.int64).sum() + 3 ** x.new_zeros(n).shape[0]


POWERS: dict[str, Function] = {
    "a number": lambda x, n: torch.arange(2) + 2**n,
    "many digits": lambda x, n: torch.arange(2) + 43 ** (n + 4),
    "in a sum": lambda x, n: torch.arange(2) + (3**n * 5 + n),
    "a shape": lambda x, n: x.new_zeros(2**n),
    "a size": power_of_a_size,
    "of floats, cut": lambda x, n: torch.arange(2) + int(2.0**n) + int(3.0**n),
}


@pytest.mark.parametrize("name", POWERS)
def test_integer_powers_are_exact(name: str) -> None:
    """43**11 has 60 bits: float64 does not hold it."""
    call, x = compiled(POWERS[name]), torch.rand(6, 4)
    for number in NATURAL:
        torch.testing.assert_close(call(x, number), POWERS[name](x, number), rtol=0, atol=0)


QUOTIENTS: dict[str, Function] = {
    "of a quotient": lambda x, n: (x + n // 2 // -2, n // 2 // -2),
    "by a negative number": lambda x, n: (x + n // -3, n // -3),
    "by a computed number": lambda x, n: (x + 7 // 2 // n, n // 2 // -n),
    "of a size": lambda x, n: (x + x.repeat(7)[:5].shape[0] // 2 // -n, n),
    "of a sum": lambda x, n: (x + (n + 1) // 3 // -2 // -2, (n + 1) // -1),
}


@pytest.mark.parametrize("name", QUOTIENTS)
def test_quotients_by_negative_numbers(name: str) -> None:
    call, x = compiled(QUOTIENTS[name]), torch.zeros(2, dtype=torch.int64)
    for number in SIGNED:
        found, wanted = call(x, number), QUOTIENTS[name](x, number)
        assert found[0].tolist() == wanted[0].tolist() and found[1] == wanted[1]


ROUNDED: dict[str, Function] = {
    "int of a half": lambda x, n: x + int(n / 2),
    "int of a product": lambda x, n: x + int(n * -0.5),
    "trunc of a third": lambda x, n: x + math.trunc(n / 3),
    "floor": lambda x, n: x + math.floor(n / 2),
    "ceil": lambda x, n: x + math.ceil(n / 3),
    "round": lambda x, n: x + round(n / 2),
    "floor of an inexact product": lambda x, n: x + math.floor(n * 0.3),
    "int of an inexact product": lambda x, n: x + int(n * 0.3),
    "ceil of an inexact product": lambda x, n: x + math.ceil(n * 0.3),
    "a shape": lambda x, n: x.new_zeros(12 + int(n / 2)),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_numbers_are_rounded_as_by_python(name: str) -> None:
    call, x = compiled(ROUNDED[name]), torch.zeros(2, 3, dtype=torch.float64)
    for number in SIGNED:
        torch.testing.assert_close(call(x, number), ROUNDED[name](x, number), rtol=0, atol=0)


def written(place: Callable[[Any, int], Any]) -> Function:
    """x with a view of it set to 0, in place."""

    def function(x: Any, i: int) -> Any:
        y = x * 1
        place(y, i).zero_()
        return y

    return function


PLACES: dict[str, tuple[Function, tuple[int, ...]]] = {
    "from": (lambda x, i: x[i:], (-2, -1, 2, -6, -7, 0, 5, 6, 9)),
    "to": (lambda x, i: x[:i], (-2, -1, 2, -6, -7, 0, 5, 6, 9)),
    "from and to": (lambda x, i: x[i : i + 3], (-5, -1, 2, -6, -9, 4, 9)),
    "columns from": (lambda x, i: x[:, i:], (-2, 3, -4, -9, 9)),
    "element": (lambda x, i: x[i], (-2, -1, 2, -6, 5, 0)),
    "computed element": (lambda x, i: x[i - 3], (2, 1, 5, -3, 3, 8)),
}


@pytest.mark.parametrize("name", PLACES)
def test_negative_places_count_from_the_end(name: str) -> None:
    """Read, written and differentiated."""
    place, numbers = PLACES[name]
    for function in (lambda x, i: place(x, i) * 2, written(place)):
        call = compiled(function)
        for number in numbers:
            wanted = torch.rand(6, 4, requires_grad=True)
            found = wanted.detach().clone().requires_grad_()
            result, expected = call(found, number), function(wanted, number)
            torch.testing.assert_close(result, expected)
            result.square().sum().backward()
            expected.square().sum().backward()
            torch.testing.assert_close(found.grad, wanted.grad)


RESULTS: dict[str, Function] = {
    "a comparison": lambda x, n: (x * 1, n == 3),
    "of large numbers": lambda x, n: (x * 1, n + (1 << 60) == 3 + (1 << 60)),
    "a power": lambda x, n: (x * 1, 2 ** abs(n)),
    "a quotient": lambda x, n: (x * 1, n / 2),
    "a remainder": lambda x, n: (x * 1, abs(n) % 3),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_that_are_numbers(name: str) -> None:
    """They are Python's, in value and type."""
    call, x = compiled(RESULTS[name]), torch.rand(6, 4)
    for number in SIGNED:
        found, wanted = call(x, number)[1], RESULTS[name](x, number)[1]
        assert found == wanted and type(found) is type(wanted)


COMPUTED: dict[str, Function] = {
    "leaky_relu": lambda x, n: torch.nn.functional.leaky_relu(x - 0.5, n),
    "elu": lambda x, n: torch.nn.functional.elu(x - 0.5, n),
    "softplus": lambda x, n: torch.nn.functional.softplus(x, n),
    "hardshrink": lambda x, n: torch.nn.functional.hardshrink(x, n / 10),
    "var": lambda x, n: x.var(0, correction=n),
    "layer_norm": lambda x, n: torch.nn.functional.layer_norm(x, (4,), eps=n),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_parameters_of_operators_may_be_computed(name: str) -> None:
    call, x = compiled(COMPUTED[name]), torch.rand(6, 4)
    for number in NATURAL:
        torch.testing.assert_close(call(x, number), COMPUTED[name](x, number))


def test_integers_have_no_negative_powers() -> None:
    call, x = compiled(lambda x, n: x**n), torch.arange(1, 4)
    for number in NATURAL:
        assert call(x, number).tolist() == (x**number).tolist()
    with pytest.raises(UserError, match="integers have no negative integer powers"):
        call(x, -2)


DIVISIONS: dict[str, Function] = {
    "remainder": lambda x, n: x % n,
    "floor": lambda x, n: x // n,
    "trunc": lambda x, n: torch.div(x, n, rounding_mode="trunc"),
    "of a size": lambda x, n: x % x.new_zeros(n).shape[0],
}


@pytest.mark.parametrize("name", DIVISIONS)
def test_integers_are_not_divided_by_a_size_of_zero(name: str) -> None:
    call, x = compiled(DIVISIONS[name]), torch.arange(-3, 4)
    for number in NATURAL:
        assert call(x, number).tolist() == DIVISIONS[name](x, number).tolist()
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        DIVISIONS[name](x, 0)
    with pytest.raises((UserError, RuntimeError)):
        call(x, 0)
    assert call(x[:0], 0).tolist() == DIVISIONS[name](x[:0], 0).tolist() == []


EMPTY: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "max": (lambda x: x.max(), False),
    "max of an axis": (lambda x: x.max(0)[0], False),
    "amin": (lambda x: x.amin(0), False),
    "argmax": (lambda x: x.argmax(), False),
    "median of an axis": (lambda x: x.median(0)[0], False),
    "max of another axis": (lambda x: x.max(1)[0], True),
    "median": (lambda x: x.median(), True),
    "nanmedian": (lambda x: x.nanmedian(), True),
    "cummax": (lambda x: x.cummax(0)[0], True),
    "cummin": (lambda x: x.cummin(0)[0], True),
    "sum": (lambda x: x.sum(0), True),
    "prod": (lambda x: x.prod(), True),
}


@pytest.mark.parametrize("name", EMPTY)
def test_of_no_elements(name: str) -> None:
    """What torch refuses is an error; the rest has torch's value."""
    function, is_defined = EMPTY[name]
    call = torch.compile(function, backend="anydim", dynamic=True)
    for rows in (3, 5, 0):
        x = torch.rand(rows, 4)
        if rows or is_defined:
            torch.testing.assert_close(call(x), function(x), equal_nan=True)
        else:
            with pytest.raises((IndexError, RuntimeError)):
                function(x)
            with pytest.raises((UserError, RuntimeError)):
                call(x)


def test_large_sizes_that_torch_does_not_unite_broadcast() -> None:
    x, y = (torch.ones(2, 1 << 21, dtype=torch.uint8) for _ in range(2))
    made = compiled(lambda x, y: x.view(-1) + y.view(-1))(x, y)
    assert made.shape == (1 << 22,) and bool((made == 2).all())


def _rows_of_four(x: Any) -> Any:
    places = x.nonzero()
    torch._check(places.size(0) == 4)
    return places + 3


def _at_least_three(x: Any) -> Any:
    places = x.nonzero()
    torch._check(places.size(0) >= 3)
    return places + 3


def _four(x: Any) -> Any:
    count = x.sum().item()
    torch._check(count == 4)
    return x.new_ones(count)


@pytest.mark.parametrize("function", [_rows_of_four, _at_least_three, _four])
def test_a_program_asserts_what_data_decide(function: Any) -> None:
    captured = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    with torch._dynamo.config.patch(captured):
        call = compiled(function)
        for values in ([1, 1, 1, 1], [0, 0, 1, 0], [0, 1, 1, 1, 1], [0, 1, 0]):
            x = torch.tensor(values)
            if sum(values) == 4:
                assert torch.equal(call(x), function(x))
            else:
                with pytest.raises(UserError):
                    call(x)


@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32", "int64"])
def test_shifts_by_the_width_and_more(name: str) -> None:
    def function(x: Any, count: Any) -> Any:
        numbers = [x >> 8, x << 8, x >> 16, x >> 64, x << 63, x >> 70]
        return torch.stack([*numbers, x >> count, x << count])

    dtype = getattr(torch, name)
    x = torch.tensor([0, 1, -1, 127, -128, 255, 7, 100]).to(dtype)
    count = torch.tensor([0, 1, 7, 8, 16, 31, 63, 64]).to(dtype)
    call = torch.compile(function, backend="anydim", dynamic=True)
    for turn in range(4):
        assert torch.equal(call(x, count.roll(turn)), function(x, count.roll(turn)))
