"""Promise: a mistake of a user gives an error of anydim that says what to change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.export import Dim  # noqa: E402

import anydim as ad  # noqa: E402

X = torch.ones(4, 3)
ROWS = {0: Dim("n", max=8)}
LIB = ad.define("""
def f(float(N) x) -> (y) { y(i) = x(i) * x(i) }
def g(int(N) x) -> (y) { y(i) = x(i) * x(i) }
""")


class Applied(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def compiled(function: Callable[..., Any], x: Any = X) -> Any:
    return ad.compile(Applied(function), (x,), dynamic_shapes=({0: Dim("n")},))


def linear() -> Any:
    return ad.compile(nn.Linear(3, 2), (X,), dynamic_shapes=(ROWS,))


def program() -> Any:
    return torch.export.export(nn.Linear(3, 2), (X,), dynamic_shapes=(ROWS,))


PROGRAMS: dict[str, tuple[Callable[[], Any], str]] = {
    "an overload without a row": (
        lambda: compiled(lambda x: torch.linalg.eig(x.T @ x)[0].abs()), "linalg_eig.default"),
    "a complex number": (lambda: compiled(lambda x: (x * 1j).tan().real), "complex numbers"),
    "a function of complex numbers": (
        lambda: compiled(torch.tan, X.to(torch.complex64)), "aten.tan.default .*complex numbers"),
    "a branch on data": (
        lambda: compiled(lambda x: x if x.sum() > 0 else -x),
        "torch.export cannot export Applied: GuardOnDataDependentSymNode"),
    "a branch on a size": (
        lambda: compiled(lambda x: x if x.shape[0] % 2 else -x), "Constraints violated"),
    "a size of the data in Python": (
        lambda: compiled(lambda x: x[: int(x.sum())]), "GuardOnDataDependentSymNode"),
    "a size of the example": (lambda: compiled(lambda x: x + torch.ones(4, 1)), "Constraints"),
    "an example that does not fit": (
        lambda: ad.compile(nn.Linear(3, 2), (torch.ones(4, 5),)), "torch.export cannot export"),
    "shapes of another number": (
        lambda: ad.compile(nn.Linear(3, 2), (X,), dynamic_shapes=(None, None)), "mismatch"),
    "an example outside of the bounds": (
        lambda: ad.compile(nn.Linear(3, 2), (X,), dynamic_shapes=({0: Dim("n", max=2)},)),
        "4 not in range"),
    "dropout between layers in training": (
        lambda: ad.compile(nn.GRU(3, 4, 2, dropout=0.5), (torch.ones(2, 4, 3),)),
        "dropout between layers in training"),
    "a scripted module": (
        lambda: ad.compile(torch.jit.script(nn.Linear(3, 2)), (X,)), "ScriptModule"),
    "a missing file": (lambda: ad.compile("missing.pt2"), "missing.pt2 cannot be read"),
}  # fmt: skip
SOURCES: dict[str, tuple[Callable[[], Any], str]] = {
    "no example": (lambda: ad.compile(nn.Linear(3, 2)), "example arguments of a module are None"),
    "an example without a tuple": (
        lambda: ad.compile(nn.Linear(3, 2), X), "example arguments of a module are a Tensor"),
    "a function": (lambda: ad.compile(lambda x: x, (X,)), "a value of type function"),
    "a state dict": (
        lambda: ad.compile(nn.Linear(3, 2).state_dict()), "a value of type OrderedDict"),
    "a tensor": (lambda: ad.compile(X), "a value of type Tensor"),
    "bounds beyond the export": (
        lambda: ad.compile(program(), {"input": {0: (1, 64)}}), "exported for 0..8"),
    "an unknown dim": (lambda: ad.compile(program(), {"batch": 4}), "has no dim 'batch'"),
}  # fmt: skip
CALLS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a size above its bound": (
        lambda: linear()(torch.ones(9, 3)), ad.DimError, "'n' is 9, above its bound 8"),
    "another last axis": (
        lambda: linear()(torch.ones(4, 5)), ad.DimError, "axis 1 is 5, expected 3"),
    "another type": (lambda: linear()(X.double()), ad.InputError, "float32, got float64"),
    "another rank": (lambda: linear()(X[0]), ad.InputError, "expected 2 axes"),
    "too many inputs": (lambda: linear()(X, X), ad.InputError, "got 2 positional inputs"),
    "no input": (lambda: linear()(), ad.InputError, "input 'input' is missing"),
    "an unknown name": (lambda: linear()(y=X), ad.InputError, "has no input 'y'"),
    "gradients": (
        lambda: linear()(X.clone().requires_grad_()), ad.InputError, "requires gradients"),
    "a sparse tensor": (lambda: linear()(X.to_sparse()), ad.InputError, "give a dense array"),
    "a quantised tensor": (
        lambda: linear()(torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)), ad.InputError,
        "cannot be shared"),
    "a tensor without data": (lambda: linear()(X.to("meta")), ad.InputError, "cannot be shared"),
    "a text": (lambda: linear()("abc"), ad.InputError, "got text"),
    "None": (lambda: linear()(None), ad.InputError, "got Python objects"),
    "an extreme of no elements": (
        lambda: compiled(lambda x: x.amax(0))(X[:0]), ad.DimError, "has no extreme"),
    "a squeezed size of 1": (
        lambda: compiled(lambda x: x.squeeze(0) + 1)(X[:1]), ad.DimError, "has fewer axes"),
    "a definition of another type": (
        lambda: LIB.f(torch.ones(3, dtype=torch.int64)), ad.LanguageError, "argument is int64"),
    "a definition of another rank": (lambda: LIB.f(X), ad.LanguageError, "has 1 dimension"),
    "no cotangent": (lambda: LIB.f.vjp(torch.ones(3)), ad.InputError, "takes the arguments and 1"),
    "the derivative of integers": (
        lambda: LIB.g.vjp(*(torch.ones(3, dtype=torch.int32),) * 2), ad.LanguageError,
        "no argument is of a float type"),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    act, text = PROGRAMS[name]
    with pytest.raises(ad.ModelError, match=text) as caught:
        act()
    assert type(caught.value) is ad.ModelError  # tracebacks show a documented name


@pytest.mark.parametrize("name", SOURCES)
def test_sources(name: str) -> None:
    act, text = SOURCES[name]
    with pytest.raises(ad.OptionError, match=text):
        act()


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    act, kind, text = CALLS[name]
    with pytest.raises(kind, match=text):
        act()
