"""Promise: weights of 16 bits are widened once, also where they take more than 64 MiB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy
import onnx
import pytest

import anydim as ad
from tests.models.building import graph, model, node
from tests.unit.compiler.passes.graphs import weights

DEPTH, SMALL, LARGE = 64, 320, (64 << 20) // (4 * 64) + 320  # columns: 80 KiB, more than 64 MiB
NARROW = {"builder": numpy.float16, "onnx": numpy.float16, "torch": ml_dtypes.bfloat16}


def of_builder(columns: int) -> ad.Model:
    g = ad.Builder("product")
    x = g.input("x", ad.float32, (g.dim("n", 0, 9), DEPTH))
    w = g.constant(weights(columns, DEPTH).astype(numpy.float16))
    g.output("y", g.matmul(x, g.transpose(g.cast(w, to=ad.float32))))
    return ad.compile(g, threads=1)


def of_onnx(columns: int) -> ad.Model:
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    nodes = [node("h = Cast(x)", to=half), node("p = MatMul(h, w)"), node("y = Cast(p)", to=single)]
    w = numpy.ascontiguousarray(weights(columns, DEPTH).astype(numpy.float16).T)
    made = graph("product", [f"x f[n, {DEPTH}]"], nodes, [f"y f[n, {columns}]"], {"w": w})
    return ad.compile(model(made), threads=1)


def of_torch(columns: int) -> ad.Model:
    torch = pytest.importorskip("torch")

    class Product(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(DEPTH, columns, bias=False, dtype=torch.bfloat16)
            self.inner.weight.data.copy_(torch.from_numpy(weights(columns, DEPTH)))

        def forward(self, x: Any) -> Any:
            return self.inner(x.bfloat16()).float()

    return ad.compile(Product().eval(), (torch.zeros(3, DEPTH),), threads=1, precision="exact")


MADE: dict[str, Callable[[int], ad.Model]] = {
    "builder": of_builder, "onnx": of_onnx, "torch": of_torch,
}  # fmt: skip


def exact(name: str, x: numpy.ndarray, w: numpy.ndarray) -> numpy.ndarray:
    """The product in float32 of the narrow values, with its result as narrow as the source's."""
    g = ad.Builder("wide")
    wide = g.constant(w.astype(NARROW[name]).astype(numpy.float32))
    given = g.input("x", ad.float32, x.shape)
    g.output("y", g.matmul(given, g.transpose(wide)))
    given_narrow = name != "builder"
    x = x.astype(NARROW[name]).astype(numpy.float32) if given_narrow else x
    found = ad.compile(g, threads=1)(x)["y"]
    return found.astype(NARROW[name]).astype(numpy.float32) if given_narrow else found


@pytest.mark.parametrize("name", [name for name in MADE if name != "torch"])
def test_a_call_computes_nothing_of_a_large_weight_alone(name: str) -> None:
    check(name)  # that of torch: tests/torch/test_weights.py


def check(name: str) -> None:
    """Calls of a small weight and of a large one have the same launches and few bytes."""
    small, large = MADE[name](SMALL), MADE[name](LARGE)
    x = weights(3, DEPTH, seed=1)
    sizes = {} if name == "torch" else {"n": 3}
    few, many = (each.plan(**sizes).launches for each in (small, large))
    assert [launch.kernel for launch in many] == [launch.kernel for launch in few]
    assert large.memory.at(**sizes) < 9 * 4 * LARGE  # no weight of 64 rows beside three rows
    assert large.memory.constants == 4 * DEPTH * LARGE
    (found,) = large(x).values()
    assert numpy.array_equal(numpy.asarray(found), exact(name, x, weights(LARGE, DEPTH)))
