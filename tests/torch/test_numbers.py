"""Promise: numbers and sizes that a program computes are Python's, negative ones too."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import anydim.torch_backend  # noqa: E402, F401  registers the backend
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
