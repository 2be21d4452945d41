"""`precision="int8"` of convolutions: bits of each image, errors, and what stays float32."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.base import settings
from tests.models.building import graph, model, node

RANDOM = np.random.default_rng(1)
LAYOUTS = ("channels_first", "channels_last")
SIDE = 15


def weights(inner: int, outer: int, window: int, groups: int = 1) -> np.ndarray:
    shape = (outer, inner // groups, window, window)
    return np.random.default_rng(2).standard_normal(shape).astype(np.float32)


def convolution(
    inner: int = 33, outer: int = 69, window: int = 3, layout: str = LAYOUTS[0], sides: str = "",
    precision: str = "int8", threads: int = 1, **attributes: object,
) -> ad.Model:  # fmt: skip
    """Between two pointwise nodes, so that the layout of its image may be chosen."""
    held = weights(inner, outer, window, int(str(attributes.get("group", 1))))
    words = {"strides": [2, 2], "pads": [window // 2] * 4, **attributes}
    nodes = [node("r = Abs(x)"), node("t = Conv(r, w)", **words), node("y = Relu(t)")]
    shape = f"x f[n, {inner}, {sides or f'{SIDE}, {SIDE}'}]"
    made = model(graph("convolution", [shape], nodes, ["y f[n, m, i, j]"], {"w": held}))
    with settings.override(layout=layout):
        return ad.compile(made, precision=precision, threads=threads)


def call(run: ad.Model, x: np.ndarray) -> np.ndarray:
    (result,) = run(x).values()
    return result


def images(count: int, channels: int = 33) -> np.ndarray:
    return RANDOM.standard_normal((count, channels, SIDE, SIDE)).astype(np.float32)


def is_quantised(run: ad.Model) -> bool:
    return "int8: 1 of 1 product" in " ".join(str(run.explain()).split())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("pads", [[1] * 4, [0] * 4, [0, 1, 2, 1]], ids=str)
def test_sums_are_those_of_integers(layout: str, pads: list[int]) -> None:
    run, x, w = convolution(layout=layout, pads=pads), images(2), weights(33, 69, 3)
    top = abs(x).max((1, 2, 3), keepdims=True)
    most = abs(w).max((1, 2, 3), keepdims=True)
    q = np.rint(abs(x) * (np.float32(127) / top))
    q = np.pad(q, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    v = np.rint(w * (127.0 / most)).astype(np.int64)
    seen = np.lib.stride_tricks.sliding_window_view(q, (3, 3), (2, 3))[:, :, ::2, ::2]
    sums = np.einsum("nchwrq,mcrq->nmhw", seen.astype(np.int64), v, optimize=True)
    scale = (most.astype(np.float64) / 127 / 127).astype(np.float32).reshape(69, 1, 1)
    want = np.maximum(sums.astype(np.float32) * (top * scale), 0)
    np.testing.assert_allclose(call(run, x), want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("window", [3, 5])
def test_an_image_has_the_same_bits_in_every_batch(layout: str, window: int) -> None:
    run, shared = (convolution(window=window, layout=layout, threads=n) for n in (1, 3))
    assert is_quantised(run)
    x = images(9)
    whole = call(run, x)
    for start, stop in ((0, 0), (0, 1), (1, 3), (3, 9), (8, 9), (0, 8)):
        np.testing.assert_array_equal(call(run, x[start:stop]), whole[start:stop])
    np.testing.assert_array_equal(call(shared, x), whole)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_errors_are_within_the_bound(layout: str) -> None:
    """A factor is off by half a step: 1/254 of the largest of its image or channel."""
    run, exact = (convolution(layout=layout, precision=p) for p in ("int8", "exact"))
    x, w = images(3), weights(33, 69, 3)
    most_x, most_w = abs(x).max(), abs(w).max((1, 2, 3)).reshape(69, 1, 1)
    terms = 33 * 9
    sums = most_x * abs(w).sum((1, 2, 3)).reshape(69, 1, 1) + most_w * terms * most_x
    bound = (sums + terms * most_x * most_w / 254) / 253.9
    error = abs(call(run, x) - call(exact, x))
    assert (error <= bound).all() and error.max() > 1e-2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_hostile_images_stay_alone(layout: str) -> None:
    """A number that is not finite makes its image NaN, tiny numbers and zeros give zeros."""
    run, x = convolution(layout=layout), images(6)
    plain = call(run, x)
    x[1, 4, 6, 7], x[2, 0, 0, 0], x[3], x[4] = np.nan, np.inf, 0, 1e-40
    found = call(run, x)
    np.testing.assert_array_equal(found[::5], plain[::5])
    assert np.isnan(found[1:3]).all() and not found[3:5].any()


def test_what_is_quantised() -> None:
    """Not few channels, groups, images that may be small, nor Winograd's of few channels."""
    assert is_quantised(convolution(8, 32)) and is_quantised(convolution(3, 32, window=7))
    assert is_quantised(convolution(sides="15, 14"))
    last = LAYOUTS[1]
    assert is_quantised(convolution(3, 64, window=7, layout=last))
    stay = [
        convolution(3, 64, window=5, layout=last), convolution(3, 32, window=7, layout=last),
        convolution(sides="h, v"), convolution(sides="12, 12"), convolution(outer=31),
        convolution(7, 32), convolution(32, 64, group=2), convolution(32, 32, group=32),
        convolution(64, 64, strides=[1, 1], sides="40, 40"),
    ]  # fmt: skip
    assert not any(map(is_quantised, stay))
    with settings.override(winograd=False):
        assert is_quantised(convolution(64, 64, strides=[1, 1]))


@pytest.mark.parametrize("rank", [1, 3])
def test_windows_of_other_ranks(rank: int) -> None:
    """In lines and volumes; a known single image is one row."""
    held = RANDOM.standard_normal((40, 34, *[3] * rank)).astype(np.float32)
    size = {1: 100, 3: 8}[rank]
    inside = ", ".join([str(size)] * rank)
    for batch in ("n", "1"):
        nodes = [node("y = Conv(x, w)", pads=[1] * 2 * rank, strides=[2] * rank)]
        result = f"y f[{batch}, 40, {', '.join('dhv'[:rank])}]"
        held_by = graph("windows", [f"x f[{batch}, 34, {inside}]"], nodes, [result], {"w": held})
        made = model(held_by)
        run, exact = (ad.compile(made, precision=p, threads=1) for p in ("int8", "exact"))
        assert is_quantised(run)
        x = RANDOM.standard_normal((1, 34, *[size] * rank)).astype(np.float32)
        error = abs(call(run, x) - call(exact, x)).max()
        assert 0 < error < 0.05 * abs(call(exact, x)).max()


def test_check_permits_the_steps() -> None:
    report = convolution().check(samples=4)
    assert report.ok, str(report)
