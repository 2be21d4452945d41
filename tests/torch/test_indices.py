"""Promise: an index or a probability that eager torch refuses is an error of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

import anydim as ad  # noqa: E402
import anydim.torch.backend  # noqa: E402
from tests.torch.compiling import Applied  # noqa: E402

Function = Callable[[Any, Any], Any]
X = torch.arange(1.0, 13.0).reshape(4, 3)

# name: (a function of x [4, 3] and indices, valid indices, invalid indices)
INDICES: dict[str, tuple[Function, list[Any], list[list[Any]]]] = {
    "index_select": (lambda x, i: x.index_select(0, i), [0, 3], [[0, -1], [0, 4]]),
    "gather": (lambda x, i: x.gather(1, i[:, None]), [0, 2], [[0, -1], [0, 3]]),
    "embedding": (lambda x, i: functional.embedding(i, x), [0, 3], [[0, -1], [0, 4]]),
    "int32": (lambda x, i: functional.embedding(i.int(), x), [0, 3], [[-1, 0]]),
    "computed": (lambda x, i: x.index_select(0, i - 1), [1, 4], [[0, 1], [1, 5]]),
    "scatter": (lambda x, i: x.scatter(1, i[:, None], 5.0), [0, 2], [[0, -1], [0, 3]]),
    "scatter_add": (
        lambda x, i: x.scatter_add(1, i[:, None], x[:2, :1]), [0, 2], [[0, -1], [0, 3]]),
    "scatter_reduce": (lambda x, i: x.scatter_reduce(1, i[:, None], x, "amax"), [0, 2], [[0, -1]]),
    "index_add": (lambda x, i: x.index_add(0, i, x[:2]), [0, 3], [[0, -1], [0, 4]]),
    "index_add, columns": (lambda x, i: x.index_add(1, i, x[:, :2]), [0, 2], [[0, -1], [0, 3]]),
    "index_copy": (lambda x, i: x.index_copy(0, i, x[:2]), [0, 3], [[0, -1], [0, 4]]),
    "index_reduce": (lambda x, i: x.index_reduce(0, i, x[:2], "amin"), [0, 3], [[0, -1]]),
    "bag": (
        lambda x, i: functional.embedding_bag(i, x, torch.tensor([0, 1])), [0, 3],
        [[0, -1], [0, 4]]),
    "offsets of bags": (
        lambda x, i: functional.embedding_bag(torch.tensor([0, 1, 2]), x, i), [0, 3],
        [[0, -1], [0, 4], [1, 2]]),
    "nll_loss": (
        lambda x, i: functional.nll_loss(x[:2].log_softmax(1), i), [2, -100], [[0, -1], [0, 3]]),
    "cross_entropy": (
        lambda x, i: functional.cross_entropy(x[:2], i, label_smoothing=0.1), [2, -100],
        [[0, -1], [0, 3]]),
    "cross_entropy, -1 ignored": (
        lambda x, i: functional.cross_entropy(x[:2], i, ignore_index=-1), [2, -1], [[0, -2]]),
    "classes": (lambda x, i: functional.one_hot(i, 3) * x[:2], [0, 2], [[0, -1], [5, 0]]),
    "multi_margin_loss": (
        lambda x, i: functional.multi_margin_loss(x[:2], i), [0, 2], [[0, -1], [0, 3]]),
    "a sorter": (
        lambda x, i: torch.searchsorted(x[0, :2], x[1], sorter=i), [0, 1], [[0, -1], [0, 2]]),
    "max_unpool": (
        lambda x, i: functional.max_unpool1d(x[:1, :2], i[None], 2), [0, 3], [[0, -1], [0, 9]]),
}  # fmt: skip
GRADIENTS = ["index_select", "scatter_add", "cross_entropy", "classes"]
PROBABILITIES: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "bernoulli": (torch.bernoulli, [2.0, 0.5]),
    "bernoulli, not a number": (torch.bernoulli, [float("nan"), 0.5]),
    "no weight": (lambda p: torch.multinomial(p, 1), [0.0, 0.0]),
    "no weight, replaced": (lambda p: torch.multinomial(p, 2, True), [0.0, 0.0]),
    "a weight below 0": (lambda p: torch.multinomial(p, 1), [-1.0, 2.0]),
    "an infinite weight": (lambda p: torch.multinomial(p, 2, True), [float("inf"), 2.0]),
    "a deviation below 0": (lambda p: torch.normal(0.0, p), [-1.0, 2.0]),
}


def doors(function: Any, *arguments: Any) -> list[Callable[..., Any]]:
    """The function compiled by torch.compile, and its exported program."""
    torch._dynamo.reset()
    model = ad.compile(torch.export.export(Applied(function), arguments))
    return [
        torch.compile(function, backend="anydim", dynamic=True),
        lambda *given: torch.utils._pytree.tree_leaves(model(*given))[0],
    ]


@pytest.mark.parametrize("name", INDICES)
def test_indices(name: str) -> None:
    function, valid, invalid = INDICES[name]
    good = torch.tensor(valid)
    for call in doors(function, X, good):
        assert torch.allclose(call(X, good), function(X, good))
        for bad in map(torch.tensor, invalid):
            with pytest.raises((IndexError, RuntimeError)):
                function(X, bad)
            with pytest.raises(ad.InputError):
                call(X, bad)


@pytest.mark.parametrize("name", GRADIENTS)
def test_indices_in_training(name: str) -> None:
    function, valid, invalid = INDICES[name]
    torch._dynamo.reset()
    call = torch.compile(function, backend="anydim", dynamic=True)
    x = X.clone().requires_grad_()
    call(x, torch.tensor(valid)).sum().backward()
    for bad in invalid:
        with pytest.raises(ad.InputError):
            call(x, torch.tensor(bad))


@pytest.mark.parametrize("name", PROBABILITIES)
def test_probabilities(name: str) -> None:
    function, invalid = PROBABILITIES[name]
    good, bad = torch.tensor([0.5, 0.5]), torch.tensor(invalid)
    for call in doors(function, good):
        call(good)
        with pytest.raises(RuntimeError):
            function(bad)
        with pytest.raises(ad.InputError, match=r"bernoulli|multinomial|normal"):
            call(bad)


@pytest.mark.parametrize("index", [-1, -2])
def test_indices_that_count_from_the_end(index: int) -> None:
    """Subscripts, `take`, `put` and `index_fill` take them, as in eager torch."""

    def function(x: Any, i: Any) -> Any:
        return x[i] + x.take(i) + x.index_fill(0, i, 2.0)[i] + x.index_put((i,), x[:1])[i]

    at = torch.tensor([index])
    for call in doors(function, X, at):
        assert torch.equal(call(X, at), function(X, at))


def test_an_assertion_about_data() -> None:
    def function(x: Any) -> Any:
        torch._assert_async((x > 0).all(), "x is positive")
        return x.sqrt()

    for call in doors(function, X):
        assert torch.allclose(call(X), X.sqrt())
        with pytest.raises(ad.InputError, match="x is positive"):
            call(-X)
