"""A forced version that no size can take is an error; one for some sizes is named in the plan."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.base.errors import OptionError
from anydim.base.frozen import FrozenMapping
from anydim.compiler.passes.options import WHOLE, KernelOptions


def compiled(graph: ad.Builder, schedule: str, version: str, result: str = WHOLE) -> ad.Model:
    """A model with one version forced, for the kernel of `result` or for all kernels."""
    texts = {} if version == "any" else {result: f"{schedule}(version={version})"}
    return ad.compile(graph, schedules=KernelOptions(FrozenMapping(texts)), strategy="generic()")


def reduced(low: int, high: int) -> ad.Builder:
    g = ad.Builder("net")
    x = g.input("x", ad.float32, (g.dim("r", 0, 99), g.dim("c", low, high)))
    g.output("y", g.reduce_max(x, axes=(1,)))
    return g


def elements(low: int, high: int) -> ad.Builder:
    g = ad.Builder("net")
    x = g.input("x", ad.float32, (g.dim("r", 0, 99), g.dim("c", low, high)))
    g.output("y", x * g.input("s", ad.float32, (99, 1))[: x.shape[0]])
    return g


def pooled(low: int, high: int) -> ad.Builder:
    g = ad.Builder("net")
    x = g.input("x", ad.float32, (g.dim("n", 1, 9), 16, g.dim("h", 3, 2000), g.dim("w", low, high)))
    g.output("y", g.max_pool(x, kernel=(3, 3)))
    return g


def multiplied(low: int, high: int) -> ad.Builder:
    g = ad.Builder("net")
    a = g.input("a", ad.float32, (g.dim("m", low, high), g.dim("k", 1, 99)))
    g.output("y", g.matmul(a, g.input("b", ad.float32, (a.shape[1], g.dim("n", 1, 99)))))
    return g


def convolved(low: int, high: int) -> ad.Builder:
    g = ad.Builder("net")
    x = g.input("x", ad.float32, (g.dim("n", low, high), 16, g.dim("h", 3, 64), 32))
    weights = numpy.ones((24, 16, 5, 5), "f4")
    g.output("y", g.conv(x, g.constant(weights), pads=(2,) * 4))
    return g


def tiled(low: int, high: int) -> ad.Builder:
    g = ad.Builder("net")
    x = g.input("x", ad.float32, (g.dim("n", low, high), 32, 28, 28))
    g.output("y", g.conv(x, g.constant(numpy.ones((32, 32, 3, 3), "f4")), pads=(1,) * 4))
    return g


def integers(low: int, high: int) -> ad.Builder:
    g = ad.Builder("net")
    a = g.input("a", ad.uint8, (g.dim("m", low, high), g.dim("k", 1, 99)))
    b = g.input("b", ad.int8, (a.shape[1], g.dim("n", 1, 999)))
    zeros = g.constant(numpy.uint8(0)), g.constant(numpy.int8(0))
    g.output("y", g.matmul_integer(a, b, *zeros))
    return g


Case = tuple[Callable[[int, int], ad.Builder], str, str, tuple[int, int]]
NEVER: dict[str, Case] = {
    "rows": (reduced, "rows", "transposed", (500, 900)),
    "rows without": (reduced, "rows", "few_columns", (1, 900)),
    "elements": (elements, "pointwise", "vector4", (500, 900)),
    "windows": (pooled, "window_reduction", "strips", (1200, 2000)),
    "windows without": (pooled, "window_reduction", "panels", (3, 2000)),
    "products": (multiplied, "contraction", "one_row", (2, 99)),
    "products without": (multiplied, "contraction", "by_position", (1, 99)),
    "convolutions": (convolved, "convolution", "by_position", (1, 1)),
    "winograd": (tiled, "winograd", "panels", (1, 9)),
    "integers": (integers, "int8", "few_rows", (10, 99)),
    "integers without": (integers, "int8", "joined", (1, 99)),
}


@pytest.fixture(autouse=True)
def _versions() -> None:
    if settings.target not in ("llvm", "c"):
        pytest.skip("kernels of devices have fewer versions")


@pytest.mark.sampled(most=6)
@pytest.mark.parametrize("name", NEVER)
def test_a_version_of_no_size(name: str) -> None:
    make, schedule, version, bounds = NEVER[name]
    with settings.override(winograd=True):
        with pytest.raises(OptionError, match=f"this kernel has no version '{version}'") as caught:
            compiled(make(*bounds), schedule, version, "y")
        assert "its versions are '" in str(caught.value)
        with pytest.raises(OptionError, match="no kernel has this version") as caught:
            compiled(make(*bounds), schedule, version)
        assert "their versions are '" in str(caught.value)


def test_all_kernels_of_a_kind_that_have_a_version_take_it() -> None:
    g = reduced(1, 900)
    g.output("top", g.reduce_max(g.input("z", ad.float32, (g.dim("s", 1, 99), g.dim("d", 1, 99))),
                                 axes=(0,)))  # fmt: skip
    model = compiled(g, "rows", "few_columns")
    found = [plan.version for plan in model.plan(r=3, c=500, s=3, d=2).launches]
    assert sorted(found) == ["few_columns", "vectors"]


def test_a_plan_names_a_forced_version() -> None:
    model = compiled(multiplied(1, 99), "contraction", "one_row", "y")
    one, many = (model.plan(m=m, k=9, n=9).launches[-1] for m in (1, 7))
    assert (one.version, one.because) == ("one_row", "it is forced")
    assert many.because == "one_row, which is forced, is for m == 1"
    assert ": panels, since one_row, which is forced, is for m == 1" in str(
        model.plan(m=7, k=9, n=9)
    )
