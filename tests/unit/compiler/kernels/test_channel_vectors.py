"""Windows over narrow images, vectors along channels: numpy's sums, the same in any batch."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import anydim.compiler.ops  # noqa: F401  fills the registry of operators
from anydim.base.dtypes import float32, float64, int8, uint8
from anydim.compiler.graph.operator import operator
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.window_reduction import window_template as sliding
from anydim.compiler.targets.llvm.host import machine as host_machine
from anydim.lang.meaning.evaluate import evaluate
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim
from anydim.sizes import parse as size
from tests.unit.compiler.kernels.convolution_cases import convolved
from tests.unit.compiler.kernels.launching import Prepared

BOX = Box.of(Dim("n", 0, 64), Dim("h", 0, 512), Dim("v", 0, 512))
SMALL = Machine(16, 16, 4 * 1024, 64 * 1024)
TINY = (
    (0, 2), (1, 1), (1, 2), (2, 1), (2, 2), (3, 3), (4, 4), (1, 7), (7, 1), (3, 5), (5, 5), (2, 9),
    (1, 17), (1, 32), (2, 16), (33, 1), (1, 33), (2, 47),
)  # fmt: skip
TALL = ((70, 3), (41, 8), (23, 10), (97, 16), (12, 20), (300, 1))  # in strips, with and without
IMAGES = (*TINY, *TALL)
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
        TensorType(dtype, tuple(map(size, shape.split())))
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
    for number, (height, width) in enumerate(IMAGES if compiled else (*TINY, TALL[0])):
        for images in (0, 1, 5, 32 if height < 9 else 2) if compiled else (2,):
            sizes = {"n": images, "h": height, "v": width}
            given = arrays(channels, window, dtype, sizes)
            exact = convolved(*given, groups=channels, **WINDOWS[window][1])
            (found,) = made.outputs(given, sizes, 1 + number % 3, compiled)
            assert found.shape == exact.shape
            close = 1e-12 if dtype == float64 else 1e-4
            numpy.testing.assert_allclose(found, exact, rtol=close, atol=close)


@pytest.mark.sampled(most=4)
@pytest.mark.parametrize("window", WINDOWS)
def test_tiny_images(window: str) -> None:
    check(17, window, float32, host_machine(), compiled=True)


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("channels", [3, 8, 15, 16, 64])
def test_channels(channels: int) -> None:
    check(channels, "uneven", float32, host_machine(), compiled=True)


def test_doubles() -> None:
    check(17, "stride 2", float64, host_machine(), compiled=True)


@pytest.mark.parametrize("window", ["stride 2", "far outside"])
def test_nothing_outside_is_touched(window: str) -> None:
    check(6, window, float32, SMALL, compiled=False)


@pytest.mark.parametrize("window", ["5x5", "stride 2"])
def test_an_image_has_the_same_bits_in_every_batch(window: str) -> None:
    """Threads begin inside of images, and strips with them."""
    made = prepared(40, window, float32, host_machine())
    for height, width in IMAGES:
        sizes = {"n": 9, "h": height, "v": width}
        x, w, b = arrays(40, window, float32, sizes)
        (together,) = made.outputs([x, w, b], sizes, 11, True)
        for image in (0, 4, 8):
            (alone,) = made.outputs([x[image : image + 1], w, b], {**sizes, "n": 1}, 1, True)
            assert alone.tobytes() == together[image : image + 1].tobytes()


BYTES = """
def windows(uint8(N,C,H,V) x, int8(C,3,3) w) -> (y) {
  t(n,c,i,j) +=! (int(x(n, c, i + r - 1, j + s - 1) else 3) - 3) * int(w(c,r,s))
    where n in 0:N, c in 0:C, i in 0:H, j in 0:V, r in 0:3, s in 0:3
  y(n,c,i,j) = cast<uint8>(int(min(max(round(float(t(n,c,i,j)) * 0.05) + 3.0, 0.0), 255.0)))
}"""


@pytest.mark.parametrize("channels", [15, 64])
def test_bytes_less_their_zero_point(channels: int) -> None:
    shapes = {uint8: f"n {channels} h v", int8: f"{channels} 3 3"}
    types = [TensorType(kind, tuple(map(size, text.split()))) for kind, text in shapes.items()]
    group = instantiate(parse(BYTES)["windows"], types, {}, BOX)
    made = Prepared(group, [sliding.TEMPLATE], BOX, host_machine())
    names = [name for name, _ in made.launch.versions]
    assert names == ["strips", "merged_rows", "single_rows", "rows"]
    random = numpy.random.default_rng(5)
    for number, (height, width) in enumerate(IMAGES):
        sizes = {"n": 3, "h": height, "v": width}
        x = random.integers(0, 256, (3, channels, height, width)).astype(numpy.uint8)
        w = random.integers(-128, 128, (channels, 3, 3)).astype(numpy.int8)
        for image in (x, numpy.full_like(x, 255)):
            (found,) = made.outputs([image, w], sizes, 1 + number % 3, True)
            wanted = evaluate(group, {"x": image, "w": w}, sizes)["y"]
            numpy.testing.assert_array_equal(found, wanted)
