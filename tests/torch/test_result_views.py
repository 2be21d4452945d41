"""Promise: results of torch.compile that are views of inputs or of each other are those of eager.

Elements, and the memory that a view shares with an input; for inputs in other orders of memory too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import anydim.torch.backend  # noqa: E402, F401
from tests.torch.compiling import anew  # noqa: E402, F401


def _several(x: Any, n: int) -> Any:
    y = x + 1
    return y[n:], y.t(), y


def _written(x: Any, n: int) -> Any:
    x.add_(1)
    return x[n:], x.t()


def _part_written(x: Any, n: int) -> Any:
    x[n:].mul_(2)
    return x[n:]


def _of_a_hidden_value(x: Any, n: int) -> Any:
    y = x.exp()
    return y[n:], y.t(), y.diagonal(n)


_FUNCTIONS: dict[str, Callable[[Any, int], Any]] = {
    "row by a quotient": lambda x, n: x.select(0, int(n / 2) - 1),
    "rows by a root": lambda x, n: x[int(n**0.5) :],
    "rows by a condition": lambda x, n: x[1:] if n > 1 else x[: n - 2],
    "rows": lambda x, n: x[n:],
    "columns": lambda x, n: x[:, n:],
    "row": lambda x, n: x[n],
    "narrow": lambda x, n: x.narrow(0, n, 2),
    "diagonal": lambda x, n: x.diagonal(n),
    "constant": lambda x, n: x[2:],
    "transpose": lambda x, n: x.t(),
    "expand": lambda x, n: x[:, None].expand(-1, 3, -1),
    "split": lambda x, n: x.split(2),
    "chunks": lambda x, n: x.chunk(3),
    "parts": lambda x, n: x.split(n + 1, 1)[1],
    "columns apart": lambda x, n: x[n:].unbind(1),
    "beside": lambda x, n: (x[n:], x * n),
    "computed": lambda x, n: (x * 2)[n:],
    "several": _several,
    "written": _written,
    "part written": _part_written,
    "strided": lambda x, n: torch.as_strided(x, (4, 3), (2, 1), 3),
    "strided of computed": lambda x, n: torch.as_strided(x + 1, (4, 3), (2, 1)),
    "scattered": lambda x, n: torch.as_strided_scatter(x * 1, x[:2, :2] - 9, (2, 2), (3, 1), 1),
}


def _shares(view: Any, base: Any) -> int | None:
    """How far into the memory of an input a result begins; None if it has memory of its own."""
    if view.untyped_storage().data_ptr() != base.untyped_storage().data_ptr():
        return None
    return view.storage_offset()


def check_alike(found: Any, wanted: Any, bases: tuple[Any, Any]) -> None:
    """Elements and strides are eager's, and memory is shared alike with a tensor of each."""
    for own, eager in zip(found, wanted):
        torch.testing.assert_close(own, eager)
        assert own.stride() == eager.stride()
        assert _shares(own, bases[0]) == _shares(eager, bases[1])


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("name", _FUNCTIONS)
def test_results_equal_eager(name: str, in_order: bool) -> None:
    call = torch.compile(_FUNCTIONS[name], backend="anydim", dynamic=True)
    for n in (1, 2, 3):
        ours = torch.rand(6, 5) if in_order else torch.rand(5, 6).t()
        theirs = ours.clone(memory_format=torch.preserve_format)
        found, wanted = call(ours, n), _FUNCTIONS[name](theirs, n)
        pairs = zip(found, wanted) if isinstance(wanted, tuple) else [(found, wanted)]
        for own, eager in pairs:
            torch.testing.assert_close(own, eager)
            assert _shares(own, ours) == _shares(eager, theirs)
        torch.testing.assert_close(ours, theirs)


_TOGETHER: dict[str, Callable[[Any, int], Any]] = {
    "the same": lambda x, n: (lambda y: (y, y * 1, y.resolve_neg()))(x.nan_to_num()),
    "of a hidden value": _of_a_hidden_value,
    "several": _several,
}


def _half_negated(x: Any) -> Any:
    y = x.view(x.shape)
    y.chunk(2)[1].neg_()
    return y[1:], y, x.t()


def _narrowed_and_written(x: Any) -> Any:
    y = x.narrow(0, 1, x.shape[0] - 1)
    y.mul_(2)
    x[0].add_(1)
    return y, x.diagonal(), x


_PLACED: dict[str, Callable[[Any], Any]] = {
    "plain": lambda base: base,
    "offset": lambda base: base[1:],
    "cut": lambda base: base[1:-1, 2:],
    "strided": lambda base: base[:, ::2],
    "transposed": lambda base: base.t(),
    "all": lambda base: base.t()[1:, 1::2],
}


@pytest.mark.parametrize("place", _PLACED)
@pytest.mark.parametrize("function", [_half_negated, _narrowed_and_written])
def test_views_of_inputs_that_a_call_writes(function: Callable[..., Any], place: str) -> None:
    """The inputs lie anywhere in a memory that is larger."""
    call = torch.compile(function, backend="anydim", dynamic=True)
    for rows in (6, 8, 9):
        ours, theirs = (torch.arange(rows * 8.0).view(rows, 8) for _ in range(2))
        found, wanted = call(_PLACED[place](ours)), function(_PLACED[place](theirs))
        torch.testing.assert_close(ours, theirs)
        check_alike(found, wanted, (ours, theirs))


def test_gradients_of_views_of_inputs_that_a_call_writes() -> None:
    """What is saved for the backward pass is a value before the input is written."""

    def function(x: Any, n: int) -> Any:
        y = x[n:]
        y.mul_(2)
        return y.t(), y.exp(), y

    call = torch.compile(function, backend="anydim", dynamic=True)
    for rows in (4, 6, 7):
        ours = torch.rand(rows, 3, requires_grad=True)
        theirs = ours.detach().requires_grad_()
        for each, own in ((call, ours), (function, theirs)):
            sum((result * result).sum() for result in each(own * 1, 1)).backward()
        torch.testing.assert_close(ours.grad, theirs.grad)


_PASSED: dict[str, Callable[[Any, int], Any]] = {
    "views and a plain number": lambda x, n: (x[n:], x.t(), 3, None),
    "parts of a size that is known": lambda x, n: x[: len(x) // 2].unbind(0),
}


@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize("name", _PASSED)
def test_functions_of_views_alone(name: str, is_recorded: bool) -> None:
    """Nothing runs in torch, with a line in its log."""
    call = torch.compile(_PASSED[name], backend="anydim", dynamic=True)
    for rows in (6, 8, 4):
        x = torch.rand(rows, 5, requires_grad=is_recorded) * 1
        found, wanted = call(x, 1), _PASSED[name](x, 1)
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", _TOGETHER)
def test_results_share_memory_as_in_eager_torch(name: str) -> None:
    """A change of one is seen in the others."""
    call = torch.compile(_TOGETHER[name], backend="anydim", dynamic=True)
    for n in (1, 2, 3):
        x = torch.rand(6, 5)
        found, wanted = call(x, n), _TOGETHER[name](x, n)
        for each in (found, wanted):
            each[0].fill_(7)
        check_alike(found, wanted, (found[0], wanted[0]))


def test_inputs_may_be_resized_after_a_call() -> None:
    call = torch.compile(lambda x: x + 1, backend="anydim", dynamic=True)
    for size in (3, 4, 5):
        x = torch.rand(size)
        call(x)
        assert x.resize_(9).shape == (9,)


def _aliased(y: Any) -> Any:
    return y.t().view(-1)[1:], y


_ALIASES: dict[str, Callable[[Any], Any]] = {
    "flat": lambda x: _aliased(x.exp()),
    "strided": lambda x: (lambda y: (torch.as_strided(y, (2,), (1,)), y))(x.exp()),
    "complex": lambda x: _aliased(torch.complex(x, x + 1)),
    "order": lambda x: x.exp(),
}


@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize("name", _ALIASES)
def test_aliases_of_results_in_another_order_of_memory(name: str, is_recorded: bool) -> None:
    """Elements, strides, memory that results share, and gradients."""
    call = torch.compile(_ALIASES[name], backend="anydim", dynamic=True)
    for columns in (5, 3, 7):
        ours = torch.rand(4, columns).t().requires_grad_(is_recorded)
        theirs = ours.detach().requires_grad_(is_recorded)
        given = zip((call, _ALIASES[name]), (ours, theirs))
        found, wanted = ([y] if torch.is_tensor(y) else list(y) for y in (f(x) for f, x in given))
        check_alike(found, wanted, (found[0], wanted[0]))
        if is_recorded:
            for each in (found, wanted):
                sum(torch.view_as_real(y.to(torch.complex64)).pow(2).sum() for y in each).backward()
            torch.testing.assert_close(ours.grad, theirs.grad)


def test_two_inputs_that_are_views_of_one_tensor() -> None:
    def f(x: Any, y: Any) -> Any:
        x.add_(1)
        return y * 2

    call = torch.compile(f, backend="anydim", dynamic=True)
    for first in (1, 2, 3):
        ours, theirs = torch.rand(2, 6, 4).unbind(0)
        theirs.copy_(ours)
        torch.testing.assert_close(call(ours[first:], ours[:-1]), f(theirs[first:], theirs[:-1]))
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("numbers", [(3, -3, 0, -1, 7), (-3, -7, 3)])
def test_numbers_may_be_negative(numbers: tuple[int, ...]) -> None:
    x = torch.rand(9, 2)
    functions: list[Callable[[Any, int], Any]] = [
        lambda x, n: x * n, lambda x, n: x[n:] + 1, lambda x, n: x.roll(n, 0) - n // 2,
    ]  # fmt: skip
    for function in functions:
        call = torch.compile(function, backend="anydim", dynamic=True)
        for n in numbers:
            torch.testing.assert_close(call(x, n), function(x, n))


def test_numbers_may_be_large() -> None:
    x = torch.rand(3)
    call = torch.compile(lambda x, n: x * n, backend="anydim", dynamic=True)
    for n in (3, 1 << 40, -(1 << 40), (1 << 62) - 1):
        torch.testing.assert_close(call(x, n), x * n)


def test_steps_of_a_range_may_be_negative() -> None:
    call = torch.compile(lambda n: torch.arange(512, -512, n) * 2, backend="anydim", dynamic=True)
    for n in (-1, -3, -1000):
        assert call(n).tolist() == torch.arange(512, -512, n).mul(2).tolist()


def test_a_squeezed_axis_may_be_1() -> None:
    """torch compiles that size apart; the result has an axis less."""
    for function in (lambda x: x.squeeze(0) + 1, lambda x: x.squeeze() * 2):
        call = torch.compile(function, backend="anydim", dynamic=True)
        for rows in (3, 1, 5, 1):
            x = torch.rand(rows, 4)
            torch.testing.assert_close(call(x), function(x))


@pytest.mark.parametrize(("before", "after"), [
    ("float32", "int32"), ("int32", "float32"), ("bfloat16", "int16"), ("float16", "bfloat16"),
    ("float64", "int64"), ("int64", "float64"), ("int8", "uint8"),
])  # fmt: skip
def test_bits_as_another_type(before: str, after: str) -> None:
    def f(x: Any) -> Any:
        return (x + x).view(getattr(torch, after)) * 1

    x = torch.arange(1, 30).to(getattr(torch, before))
    found, wanted = torch.compile(f, backend="anydim", dynamic=True)(x), f(x)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("size", [0, (0, 3), (3, 0), (2, 3)])
@pytest.mark.parametrize("kind", ["avg", "max"])
def test_adaptive_pooling_to_any_size(kind: str, size: Any) -> None:
    rank = len(size) if isinstance(size, tuple) else 1
    pool = getattr(torch.nn.functional, f"adaptive_{kind}_pool{rank}d")
    call = torch.compile(lambda x: pool(x, size) + 1, backend="anydim", dynamic=True)
    x = torch.rand(2, 3, 7, 6)[..., :7] if rank == 2 else torch.rand(2, 3, 7)
    torch.testing.assert_close(call(x), pool(x, size) + 1)


@pytest.mark.parametrize("shape", [(0, 8), (8, 0), (2, 0, 3)])
def test_results_of_no_elements_have_strides_of_eager(shape: tuple[int, ...]) -> None:
    function = lambda x: (x + 1, x.bfloat16())  # noqa: E731
    x = torch.ones(shape)
    for ours, eager in zip(torch.compile(function, backend="anydim")(x), function(x)):
        assert ours.stride() == eager.stride()


def _of_gaps(x: Any) -> Any:
    y = torch.slice_scatter(x[:, ::2], x[:1, ::2] * 2, 0, 0, 1)
    return y, y.detach(), y[1:]


@pytest.mark.parametrize("is_recorded", [False, True])
def test_results_with_gaps_share_memory_as_in_eager_torch(is_recorded: bool) -> None:
    call = torch.compile(_of_gaps, backend="anydim", dynamic=True)
    for columns in (6, 8, 4):
        ours = torch.rand(4, columns, requires_grad=is_recorded)
        found, wanted = call(ours * 1), _of_gaps(ours * 1)
        check_alike(found, wanted, (found[0], wanted[0]))
        for each in (found, wanted):
            each[1].detach().fill_(7)
        assert torch.equal(found[2], wanted[2])


def test_a_view_of_a_copy_that_is_written_has_its_strides() -> None:
    def function(x: Any) -> Any:
        return x.clone()[:, 1].masked_fill_(x[:, 1] > 0, 0.0)

    call = torch.compile(function, backend="anydim", dynamic=True)
    for size in (4, 5, 3):
        x = torch.rand(size, size) - 0.5
        assert torch.equal(call(x), function(x))
        assert call(x).stride() == function(x).stride() == (size,)
