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
from anydim.passes.options import WHOLE, KernelOptions
from tests.unit.kernels.launching import once_for_each_target

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
    return _compiled(g, "bytes", version)


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
    with pytest.raises(OptionError, match="this kernel has no version 'quick'"):
        make("quick")
