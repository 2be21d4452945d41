"""Windows over tiny images, vectors along channels: float64 numpy's sums, the same in any batch."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import anydim.ops  # noqa: F401  fills the registry of operators
from anydim.base.dtypes import float32, float64
from anydim.graph.operator import operator
from anydim.kernels.launch import Machine
from anydim.kernels.sliding import template as sliding
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, parse
from anydim.targets.llvm.host import machine as host_machine
from tests.unit.kernels.convolution_cases import convolved
from tests.unit.kernels.launching import Prepared

BOX = Box.of(Dim("n", 0, 64), Dim("h", 0, 512), Dim("v", 0, 512))
SMALL = Machine(16, 16, 4 * 1024, 64 * 1024)
IMAGES = ((0, 2), (1, 1), (1, 2), (2, 1), (2, 2), (3, 3), (4, 4), (1, 7), (7, 1), (3, 5), (5, 5))
WINDOWS: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "3x3": ((3, 3), {"pads": (1, 1, 1, 1)}),
    "5x5": ((5, 5), {"pads": (2, 2, 2, 2)}),
    "7x7": ((7, 7), {"pads": (3, 3, 3, 3)}),
    "stride 2": ((3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 2)}),
    "dilated": ((3, 3), {"pads": (2, 2, 2, 2), "dilations": (2, 2)}),
    "uneven": ((3, 2), {"pads": (0, 1, 2, 3), "strides": (1, 2)}),
    "far outside": ((2, 2), {"pads": (4, 0, 4, 3), "strides": (2, 1)}),
}


def prepared(
    channels: int, window: str, dtype: Any, machine: Machine, bias: bool = True
) -> Prepared:
    taps, attributes = WINDOWS[window]
    shapes = [f"n {channels} h v", f"{channels} 1 {taps[0]} {taps[1]}"]
    types = [
        TensorType(dtype, tuple(map(parse, shape.split())))
        for shape in (*shapes, *[str(channels)] * bias)
    ]
    group = operator("conv").instantiate(types, {"groups": channels, **attributes}, BOX)
    return Prepared(group, [sliding.TEMPLATE], BOX, machine)


def arrays(channels: int, window: str, dtype: Any, sizes: dict[str, int]) -> list[numpy.ndarray]:
    taps, _ = WINDOWS[window]
    random = numpy.random.default_rng(channels)
    shapes = ((sizes["n"], channels, sizes["h"], sizes["v"]), (channels, 1, *taps), (channels,))
    return [random.standard_normal(shape).astype(dtype.numpy) for shape in shapes]


def check(channels: int, window: str, dtype: Any, machine: Machine, compiled: bool) -> None:
    made = prepared(channels, window, dtype, machine)
    for number, (height, width) in enumerate(IMAGES):
        for images in (0, 1, 5, 32) if compiled else (2,):
            sizes = {"n": images, "h": height, "v": width}
            given = arrays(channels, window, dtype, sizes)
            exact = convolved(*given, groups=channels, **WINDOWS[window][1])
            (found,) = made.outputs(given, sizes, 1 + number % 3, compiled)
            assert found.shape == exact.shape
            close = 1e-12 if dtype == float64 else 1e-4
            numpy.testing.assert_allclose(found, exact, rtol=close, atol=close)


@pytest.mark.parametrize("window", WINDOWS)
def test_tiny_images(window: str) -> None:
    check(17, window, float32, host_machine(), compiled=True)


@pytest.mark.parametrize("channels", [3, 8, 15, 16, 64])
def test_channels(channels: int) -> None:
    check(channels, "uneven", float32, host_machine(), compiled=True)


def test_doubles() -> None:
    check(17, "stride 2", float64, host_machine(), compiled=True)


@pytest.mark.parametrize("window", ["stride 2", "far outside"])
def test_nothing_outside_is_touched(window: str) -> None:
    check(6, window, float32, SMALL, compiled=False)


def test_an_image_has_the_same_bits_in_every_batch() -> None:
    made = prepared(40, "5x5", float32, host_machine())
    for height, width in IMAGES:
        sizes = {"n": 9, "h": height, "v": width}
        x, w, b = arrays(40, "5x5", float32, sizes)
        (together,) = made.outputs([x, w, b], sizes, 4, True)
        for image in (0, 4, 8):
            (alone,) = made.outputs([x[image : image + 1], w, b], {**sizes, "n": 1}, 1, True)
            assert alone.tobytes() == together[image : image + 1].tobytes()
