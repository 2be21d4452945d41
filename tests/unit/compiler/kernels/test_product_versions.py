"""Versions of products: each is forced at sizes on both sides of its condition.

All versions of convolutions and of integers have the same bits at these sizes.
"""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.base import settings
from anydim.base.errors import OptionError
from anydim.base.frozen import FrozenMapping
from anydim.compiler.passes.options import WHOLE, KernelOptions
from tests.unit.compiler.kernels.launching import once_for_each_target

IMAGES = (
    (0, 3, 3),
    (1, 1, 1),
    (3, 2, 2),
    (17, 3, 3),
    (16, 4, 4),
    (40, 1, 5),
    (1, 7, 40),
    (2, 33, 64),
)
MATRICES = (
    (0, 5, 7),
    (1, 64, 300),
    (2, 3, 64),
    (4, 70, 129),
    (5, 33, 200),
    (4, 8, 20),
    (50, 64, 8),
)


BATCHES = (
    (0, 3, 3, 3),
    (5, 1, 40, 50),
    (9, 3, 4, 5),
    (2, 6, 16, 16),
    (2, 10, 80, 90),
    (1, 40, 30, 20),
)
PRODUCTS = ((1, 64, 300), (2, 200, 100), (10, 80, 90), (33, 40, 50), (5, 0, 7))


def _compiled(graph: ad.Builder, schedule: str, version: str) -> ad.Model:
    text = {} if version == "any" else {WHOLE: f"{schedule}(version={version})"}
    return ad.compile(graph, schedules=KernelOptions(FrozenMapping(text)), strategy="generic()")


@once_for_each_target
def convolution(version: str) -> ad.Model:
    """5 x 5 windows of 16 channels, with constant weights and padding."""
    g = ad.Builder("net")
    n, h, w = g.dim("n", 0, 64), g.dim("h", 1, 64), g.dim("w", 1, 64)
    x = g.input("x", ad.float32, (n, 16, h, w))
    weights = numpy.random.default_rng(0).standard_normal((24, 16, 5, 5)).astype("f4")
    g.output("y", g.conv(x, g.constant(weights), pads=(2,) * 4))
    return _compiled(g, "convolution", version)


@once_for_each_target
def integers(version: str) -> ad.Model:
    """A product of integers of 8 bits, both of the call."""
    g = ad.Builder("net")
    m, k, n = g.dim("m", 0, 64), g.dim("k", 1, 99), g.dim("n", 1, 999)
    a, b = g.input("a", ad.uint8, (m, k)), g.input("b", ad.int8, (k, n))
    g.output("y", g.matmul_integer(a, b, *(g.constant(z) for z in (numpy.uint8(0), numpy.int8(0)))))
    return _compiled(g, "int8", version)


@once_for_each_target
def matrices(version: str) -> ad.Model:
    """A batch of products of floats, B of the call."""
    g = ad.Builder("net")
    s, m, k, n = (g.dim(name, 0, 999) for name in "smkn")
    a, b = g.input("a", ad.float32, (s, m, k)), g.input("b", ad.float32, (s, k, n))
    g.output("y", g.matmul(a, b))
    return _compiled(g, "contraction", version)


@once_for_each_target
def transposed(version: str) -> ad.Model:
    """A product of floats, B of the call with contiguous k."""
    g = ad.Builder("net")
    m, k, n = (g.dim(name, 0, 999) for name in "mkn")
    a, b = g.input("a", ad.float32, (m, k)), g.input("b", ad.float32, (n, k))
    g.output("y", g.matmul(a, g.transpose(b, perm=(1, 0))))
    return _compiled(g, "contraction", version)


def _floats(*shapes: tuple[int, ...]) -> list[numpy.ndarray]:
    random = numpy.random.default_rng(1)
    return [random.standard_normal(shape).astype("f4") for shape in shapes]


def _images(sizes: tuple[int, ...]) -> list[numpy.ndarray]:
    n, h, w = sizes
    return [numpy.random.default_rng(1).standard_normal((n, 16, h, w)).astype("f4")]


def _bytes(sizes: tuple[int, ...]) -> list[numpy.ndarray]:
    (m, k, n), random = sizes, numpy.random.default_rng(1)
    return [random.integers(0, 255, (m, k), "u1"), random.integers(-128, 127, (k, n), "i1")]


CASES = {
    "convolution": (
        convolution, ("n", "h", "w"), IMAGES, _images,
        ("by_position", "joined", "line_buffer", "merged_rows", "panels"),
    ),
    "matrices": (
        matrices, ("s", "m", "k", "n"), BATCHES,
        lambda sizes: _floats(sizes[:3], (sizes[0], *sizes[2:])),
        ("small_matrices", "one_row", "tall_tile", "panels"),
    ),
    "transposed": (
        transposed, ("m", "k", "n"), PRODUCTS, lambda sizes: _floats(sizes[:2], sizes[:0:-1]),
        ("one_row", "tall_tile", "panels"),
    ),
    "integers": (integers, ("m", "k", "n"), MATRICES, _bytes, ("few_rows", "panels")),
}  # fmt: skip


def case(name: str) -> tuple[Any, ...]:
    """A case; on devices, products are kernels without versions."""
    if settings.target not in ("llvm", "c"):
        pytest.skip("products on devices have no versions")
    return CASES[name]


def version_at(model: ad.Model, names: tuple[str, ...], sizes: tuple[int, ...]) -> str:
    """The version that a call of these sizes takes; "" for a kernel of one version."""
    return model.plan(**dict(zip(names, sizes))).launches[-1].version


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("name", CASES)
def test_versions_have_the_same_bits(name: str) -> None:
    make, dims, every, arrays, versions = case(name)
    taken = set()
    for sizes in every:
        given = arrays(sizes)
        expected = make("any")(*given)["y"]
        for version in versions:
            found = make(version)(*given)["y"]
            assert found.tobytes() == expected.tobytes(), (version, sizes)
            taken.add(version_at(make(version), dims, sizes) or version)
    assert taken == set(versions)


@pytest.mark.parametrize("name", CASES)
def test_sizes_select_versions(name: str) -> None:
    make, dims, every, _, versions = case(name)
    found = {version_at(make("any"), dims, sizes) for sizes in every}
    assert set(versions) - {"panels"} <= found


@pytest.mark.parametrize("name", CASES)
def test_an_unknown_version(name: str) -> None:
    make, *_ = case(name)
    with pytest.raises(OptionError, match="no kernel has this version"):
        make("quick")


@pytest.mark.parametrize("version", ["one_column", "one_short_column", "few_rows", "interleaved"])
def test_versions_that_add_in_another_order(version: str) -> None:
    case("transposed")
    sizes = {"one_column": (9, 200, 1), "one_short_column": (9, 20, 1), "few_rows": (2, 400, 200)}
    for m, k, n in (sizes.get(version, (50, 400, 200)), (7, 30, 20)):
        a, b = _floats((m, k), (n, k))
        numpy.testing.assert_allclose(transposed(version)(a, b)["y"], a @ b.T, rtol=1e-4, atol=1e-4)
        forced = version_at(transposed(version), ("m", "k", "n"), (m, k, n))
        assert (forced == version) == ((m, k, n) != (7, 30, 20))
