"""Promise: `precision="bfloat16"` reaches the products of torch modules, compiled and exported."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import anydim as ad  # noqa: E402
from anydim.compiler.targets.llvm.host import machine  # noqa: E402


def perceptron() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 96), torch.nn.GELU(), torch.nn.Linear(96, 64)
    return torch.nn.Sequential(*layers).eval()


def error(found: object, wanted: torch.Tensor) -> float:
    return float(abs(np.asarray(found).astype(np.float32) - wanted.numpy()).max())


@torch.no_grad()
def test_compiled_and_exported() -> None:
    module, x = perceptron(), torch.randn(5, 64)
    wanted = module(x)
    compiled = torch.compile(module, backend="anydim", options={"precision": "bfloat16"})
    rows = {0: torch.export.Dim("rows", min=1, max=64)}
    exported = ad.compile(torch.export.export(module, (x,), dynamic_shapes=(rows,)),
                          precision="bfloat16")  # fmt: skip
    (result,) = exported(x.numpy()).values()
    least = 1e-4 if machine().pairs else 0
    assert least <= error(compiled(x), wanted) < 1e-2
    assert least <= error(result, wanted) < 1e-2
    if machine().pairs:
        assert "2 of 2 products" in str(exported.explain())
    torch._dynamo.reset()


@torch.no_grad()
@pytest.mark.parametrize("how", ["autocast", "medium"])
def test_torch_decides_where_no_precision_is_given(how: str) -> None:
    module, x = perceptron(), torch.randn(5, 64)
    wanted = module(x)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium" if how == "medium" else "highest")
        with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
            found = ad.compile(module, (x,), threads=1)
            exact = ad.compile(module, (x,), threads=1, precision="exact")
            compiled = torch.compile(module, backend="anydim")(x)
    finally:
        torch.set_float32_matmul_precision(before)
        torch._dynamo.reset()
    assert "precision bfloat16" in str(found.explain())
    assert "precision" not in str(exact.explain())
    least = 1e-4 if machine().pairs else 0
    (result,) = found(x.numpy()).values()
    assert least <= error(result, wanted) < 3e-2
    assert least <= error(compiled.float(), wanted) < 3e-2
    later = ad.compile(module, (x,), threads=1)
    assert "precision" not in str(later.explain())
