"""Promise: definitions are operators of torch: with gradients, traced, exported and under vmap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.autograd import gradgradcheck  # noqa: E402

import anydim as ad  # noqa: E402
from tests.definition_texts import definitions  # noqa: E402
from tests.differentiable import PROGRAMS  # noqa: E402
from tests.torch.gradcheck_sweep import RIGHT, checked, outcome, tensor_of  # noqa: E402

LIB = ad.define("""
def matmul(T(M,K) A, T(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def running(T(N) x) -> (total) {
  for t in 0:N { total(t) = 0.5 * (total(t - 1) else 0) * x(t) + x(t) }
}
def scaled(T(...s) x, T by; float plus = 1.0) -> (y, z) {
  y(...s) = by * x(...s)
  z(...s) = x(...s) + plus
}
def chosen(T(N) x, int64(M) at) -> (y) { y(i) = x(at(i)) }
def doubled(T(N) x) -> (y) { y(i) = x(i) where i in 0:N  y(0) *= 2 }
""")


def function(name: str) -> Any:
    """The last definition of a program of `differentiable.py`."""
    lib = ad.define(PROGRAMS[name].text)
    return lib[list(lib)[-1]]


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradcheck(name: str) -> None:
    program = PROGRAMS[name]
    f = function(name)
    for n in (0, 1, 3):
        if n < program.least:
            continue
        checked(f, program.arguments(np.random.default_rng(n), n), program.attributes)


DEFINITIONS = (  # of all those that `python -m tests.torch.gradcheck_sweep` checks
    "tests/golden/definitions.tc: lstm",
    "src/anydim/compiler/frontends/torch/definitions.tc: lu",
    "src/anydim/compiler/frontends/torch/definitions.tc: segment_prod",
    "docs/tutorials/first-definition.md: attention",
)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_gradcheck_of_definitions(name: str) -> None:
    assert outcome(definitions()[name]) == RIGHT


@pytest.mark.parametrize("name", ["matmul", "softmax", "elman", "gather"])
def test_second_derivatives(name: str) -> None:
    program = PROGRAMS[name]
    f = function(name)
    arrays = program.arguments(np.random.default_rng(0), 3)
    tensors = [tensor_of(a) for a in arrays]
    for tensor in tensors:
        tensor.requires_grad_(tensor.is_floating_point())
    assert gradgradcheck(lambda *given: f(*given, **program.attributes), tensors)


def numbers(*shape: int, grad: bool = True) -> Any:
    return torch.randn(shape, dtype=torch.float64, requires_grad=grad)


def net(a: Any, b: Any, at: Any) -> Any:
    """Definitions among operators of torch."""
    c = torch.tanh(LIB.matmul(a, b))
    y, z = LIB.scaled(c, 2.0, plus=3.0)
    return (LIB.chosen(LIB.running(y[0]), at) * z[0, 0]).sum() + z.sin().sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile_traces_definitions(backend: str) -> None:
    torch._dynamo.reset()
    traced = torch.compile(net, backend=backend, fullgraph=True, dynamic=True)
    at = torch.tensor([0, 2, 2])
    for rows, columns in ((3, 4), (5, 7), (2, 3)):
        a, b = numbers(rows, 4), numbers(4, columns)
        wanted = torch.autograd.grad(net(a, b, at), (a, b))
        found = torch.autograd.grad(traced(a, b, at), (a, b))
        for ours, theirs in zip(found, wanted):
            torch.testing.assert_close(ours, theirs)


class Module(torch.nn.Module):
    def forward(self, a: Any, b: Any, at: Any) -> Any:
        return net(a, b, at), LIB.matmul(a, b)


@pytest.mark.parametrize("strict", [False, True])
def test_torch_export_keeps_definitions(strict: bool) -> None:
    auto = torch.export.Dim.AUTO
    shapes = {"a": {0: auto}, "b": {1: auto}, "at": {0: auto}}
    given = numbers(3, 4, grad=False), numbers(4, 5, grad=False), torch.tensor([0, 2, 2])
    program = torch.export.export(Module(), given, dynamic_shapes=shapes, strict=strict)
    names = [str(node.target) for node in program.graph.nodes if "anydim" in str(node.target)]
    assert len(names) == 5
    model = ad.compile(program)
    for rows, columns in ((3, 5), (2, 3), (11, 13)):
        given = numbers(rows, 4, grad=False), numbers(4, columns, grad=False), torch.tensor([1, 0])
        wanted = Module()(*given)
        for found in (
            program.module()(*given),
            tuple(torch.utils._pytree.tree_leaves(model(*given))),
        ):
            for ours, theirs in zip(found, wanted):
                torch.testing.assert_close(ours, theirs)


def test_vmap_and_functional_gradients() -> None:
    x = numbers(3, 5, grad=False)
    rows = torch.stack([LIB.running(row) for row in x])
    torch.testing.assert_close(torch.vmap(LIB.running)(x), rows)
    torch.testing.assert_close(torch.vmap(LIB.running, in_dims=1, out_dims=1)(x.T), rows.T)
    by_row = torch.func.vmap(torch.func.grad(lambda row: LIB.running(row).sum()))(x)
    given = x.clone().requires_grad_()
    total = sum(LIB.running(row).sum() for row in given)
    (wanted,) = torch.autograd.grad(total, given)
    torch.testing.assert_close(by_row, wanted)
    assert torch.vmap(LIB.running)(x[:0]).shape == (0, 5)


def test_vmap_over_some_arguments() -> None:
    x, at = numbers(4, grad=False), torch.tensor([[0, 1, 1], [3, 2, 0]])
    found = torch.vmap(LIB.chosen, in_dims=(None, 0))(x, at)
    torch.testing.assert_close(found, x[at])


def test_results_and_numbers() -> None:
    x = torch.ones(3, requires_grad=True)
    result = LIB.scaled(x, 2.0, plus=5.0)
    assert result._fields == ("y", "z") and result.y.dtype == torch.float32
    (gradient,) = torch.autograd.grad(result.y.sum() + result.z.sum(), x)
    assert (gradient == 3).all()


def test_plain_calls_have_no_graph() -> None:
    x = torch.ones(3)
    assert LIB.doubled(x).grad_fn is None
    with torch.no_grad():
        assert LIB.doubled(torch.ones(3, requires_grad=True)).grad_fn is None


def test_only_wanted_gradients_are_computed() -> None:
    a, b = numbers(2, 3, grad=False), numbers(3, 4)
    LIB.matmul(a, b).sum().backward()
    texts = [d.definition.results for _, d in LIB.matmul.vjp._known.values()]
    assert ("dB",) in texts and a.grad is None


def test_gradients_that_do_not_exist() -> None:
    lib = ad.define("def f(T(N) x) -> (y) { y(i) = nextafter(x(i), 1.0) }")
    x = numbers(3)
    y = lib.f(x)
    with pytest.raises(ad.LanguageError, match=r"f: no derivative: nextafter\(...\)"):
        y.sum().backward()


def test_opcheck() -> None:
    name = LIB.matmul._operator_name(2, (), ())
    operator = getattr(torch.ops.anydim, name).default
    torch.library.opcheck(operator, (numbers(3, 4), numbers(4, 5)))
