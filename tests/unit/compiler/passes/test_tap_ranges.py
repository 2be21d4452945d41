"""Promise: windows of known sizes multiply the taps that some position has in bounds."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

import anydim as ad
from anydim.base import settings
from tests.models.building import graph, model, node

CHANNELS = 64
SIDES = ((1, 1), (1, 2), (2, 1), (2, 2), (3, 4))
FREE = ("n", CHANNELS, "h", "v")
TWO = np.float32(2).reshape(())


def convolution(shape: tuple[object, ...], window: int, **more: object) -> ad.Model:
    """A convolution of an image of this shape, as many results as channels."""
    sizes = (CHANNELS, CHANNELS, window, window)
    w = np.random.default_rng(2).standard_normal(sizes).astype(np.float32)
    words = {"pads": [window // 2] * 4, **more}
    x = f"x f[{', '.join(map(str, shape))}]"
    body = graph("convolution", [x], [node("y = Conv(x, w)", **words)], ["y"], {"w": w})
    return ad.compile(model(body))


def image(batch: int, sides: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(3).standard_normal((batch, CHANNELS, *sides), np.float32)


def result(run: ad.Model, x: np.ndarray) -> np.ndarray:
    (found,) = run(x).values()
    return found


def kept(run: ad.Model) -> list[int]:
    """The numbers of taps of the sum, along each axis of the window that is left."""
    found = re.findall(r"k\d in 0:(\d+)", run.show("tap_ranges"))
    return [int(count) for count in found]


def in_bounds(window: int, stride: int, dilation: int, pad: int, side: int) -> int:
    """How many taps along an axis some position has in bounds."""
    places = (side + 2 * pad - dilation * (window - 1) - 1) // stride + 1
    return sum(
        any(0 <= place * stride + tap * dilation - pad < side for place in range(places))
        for tap in range(window)
    )


@pytest.mark.sampled
@pytest.mark.parametrize("layout", ["channels_first", "channels_last"])
@pytest.mark.parametrize("window, stride", [(3, 1), (3, 2), (5, 2), (7, 1)])
def test_tiny_images_are_products_as_free_ones_are(window: int, stride: int, layout: str) -> None:
    with settings.override(layout=layout):
        free = convolution(FREE, window, strides=[stride] * 2)
        for batch, sides in product((1, 8), SIDES):
            run = convolution((batch, CHANNELS, *sides), window, strides=[stride] * 2)
            templates = {site.schedule.partition("(")[0] for site in run.program.sites}
            assert templates & {"contraction", "convolution"}, templates
            assert "rows" not in templates
            x = image(batch, sides)
            np.testing.assert_allclose(result(run, x), result(free, x), atol=2e-4)


@pytest.mark.sampled
@pytest.mark.parametrize("window, stride, dilation", [*product((3, 5, 7), (1, 2), (1, 2))])
@pytest.mark.parametrize("side", [1, 2, 3, 4])
def test_what_some_position_has_in_bounds_is_kept(
    window: int, stride: int, dilation: int, side: int
) -> None:
    pad = window // 2 * dilation
    words = {"strides": [stride] * 2, "dilations": [dilation] * 2, "pads": [pad] * 4}
    run = convolution((2, CHANNELS, side, side), window, **words)
    taps = in_bounds(window, stride, dilation, pad, side)
    assert kept(run) == ([] if taps == 1 else [taps, taps])
    x = image(2, (side, side))
    free = result(convolution(FREE, window, **words), x)
    np.testing.assert_allclose(result(run, x), free, atol=2e-4)


def test_free_sizes_keep_all_taps_and_a_known_height_drops_its_own() -> None:
    assert kept(convolution(FREE, 3)) == [3, 3]
    run = convolution(("n", CHANNELS, 1, "v"), 3)
    assert kept(run) == [3]
    x = image(3, (1, 9))
    np.testing.assert_allclose(result(run, x), result(convolution(FREE, 3), x), atol=2e-4)


def test_positions_without_any_tap_are_zeros() -> None:
    """Every second one of a padded pixel's positions: the pixel is at none of them."""
    run = convolution((1, CHANNELS, 1, 1), 1, strides=[2, 2], pads=[1, 1, 1, 1])
    found = result(run, image(1, (1, 1)))
    assert found.shape == (1, CHANNELS, 2, 2) and not found.any()


def test_no_image_and_an_image_without_pixels() -> None:
    for shape in ((0, CHANNELS, 1, 1), (1, CHANNELS, 0, 1)):
        x = np.zeros(shape, np.float32)
        assert result(convolution(shape, 3), x).size == 0


def test_padding_that_is_not_zero_is_added() -> None:
    constants = {
        "w": np.ones((3, 2, 3, 3), np.float32), "pads": np.array([0, 0, 1, 1] * 2), "two": TWO,
    }  # fmt: skip
    nodes = [node("p = Pad(x, pads, two)"), node("y = Conv(p, w)")]
    run = ad.compile(model(graph("padded", ["x f[1, 2, 1, 1]"], nodes, ["y"], constants)))
    found = result(run, np.ones((1, 2, 1, 1), np.float32))
    np.testing.assert_array_equal(found, np.full((1, 3, 1, 1), 2 * (8 * 2 + 1), np.float32))


@pytest.mark.parametrize("shape", [(1, 1, 2), (8, 2, 1), (1, 2, 2), (1, 14, 14)])
def test_known_sizes_are_copied_channels_last_where_free_ones_are(
    shape: tuple[object, ...],
) -> None:
    batch, *sides = shape
    said = "channels last: 2 of 3 values"
    assert said in str(convolution(FREE, 3).explain())
    assert said in str(convolution((batch, CHANNELS, *sides), 3).explain())
