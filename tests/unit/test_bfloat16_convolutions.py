"""`precision="bfloat16"` of convolutions: bits of each image, errors, and what stays float32."""

from __future__ import annotations

import numpy as np
import pytest

import anydim as ad
from anydim.base import settings
from anydim.base.dtypes import bfloat16, convert_array
from anydim.compiler.targets.llvm.host import machine
from tests.models.building import graph, model, node

RANDOM = np.random.default_rng(1)
needs_pairs = pytest.mark.skipif(not machine().pairs, reason="no bfloat16 products")
LAYOUTS = ("channels_first", "channels_last")


def convolution(
    inner: int = 33, outer: int = 69, window: int = 3, layout: str = "channels_last",
    precision: str = "bfloat16", threads: int = 1, **attributes: object,
) -> ad.Model:  # fmt: skip
    """Between two pointwise nodes, so that the layout of its image may be chosen."""
    groups = int(str(attributes.get("group", 1)))
    w = np.random.default_rng(2).standard_normal((outer, inner // groups, window, window))
    words = {"strides": [2, 2], "pads": [window // 2] * 4, **attributes}
    nodes = [node("r = Abs(x)"), node("t = Conv(r, w)", **words), node("y = Relu(t)")]
    made = model(graph("convolution", [f"x f[n, {inner}, h, v]"], nodes, ["y f[n, m, i, j]"],
                       {"w": w.astype(np.float32)}))  # fmt: skip
    with settings.override(layout=layout):
        return ad.compile(made, precision=precision, threads=threads)


def call(run: ad.Model, x: np.ndarray) -> np.ndarray:
    (result,) = run(x).values()
    return result


def images(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def is_rounded(run: ad.Model) -> bool:
    return "bfloat16: 1 of 1 product" in " ".join(str(run.explain()).split())


@needs_pairs
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("window", [1, 3, 5])
def test_an_image_has_the_same_bits_in_every_batch(layout: str, window: int) -> None:
    run, shared = (convolution(window=window, layout=layout, threads=n) for n in (1, 2))
    assert is_rounded(run)
    x = images(9, 33, 11, 14)
    whole = call(run, x)
    for start, stop in ((0, 1), (1, 3), (3, 9), (8, 9), (0, 8)):
        np.testing.assert_array_equal(call(run, x[start:stop]), whole[start:stop])
    np.testing.assert_array_equal(call(shared, x), whole)


@needs_pairs
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pixel_has_the_same_bits_in_every_image(layout: str) -> None:
    """Sums do not depend on the extents of an image, where windows are inside of it."""
    run, x = convolution(layout=layout, pads=[0] * 4), images(1, 33, 33, 41)
    whole = call(run, x)
    for high, wide in ((3, 3), (3, 41), (33, 3), (7, 20), (20, 7)):
        found = call(run, x[:, :, :high, :wide])
        np.testing.assert_array_equal(found, whole[:, :, : found.shape[2], : found.shape[3]])


@needs_pairs
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (0, 5, 5), (2, 1, 40), (3, 23, 2), (1, 30, 31)])
def test_errors_are_within_the_bound(layout: str, sizes: tuple[int, int, int]) -> None:
    run, exact = (convolution(layout=layout, precision=p) for p in ("bfloat16", "exact"))
    x = images(sizes[0], 33, *sizes[1:])
    found, want = call(run, x), call(exact, x)
    assert found.shape == want.shape
    # 297 terms of |x| below 5 and |w| below 5: 2^-8 of the sum of magnitudes
    bound = 2.0**-8 * 297 * 5 * abs(x).max(initial=0)
    assert (abs(found - want) <= bound).all()


@needs_pairs
@pytest.mark.parametrize("layout", LAYOUTS)
def test_hostile_pixels_stay_in_their_windows(layout: str) -> None:
    """NaN and infinities reach no result whose window leaves them out, nor another image."""
    run, x = convolution(layout=layout), images(3, 33, 12, 13)
    plain = call(run, x)
    x[1, 4, 6, 7], x[1, 32, 0, 12] = np.nan, np.inf
    found = call(run, x)
    np.testing.assert_array_equal(found[::2], plain[::2])
    touched = np.zeros((6, 7), bool)
    touched[3:4, 3:5] = touched[0, 6] = True
    np.testing.assert_array_equal(found[1][:, ~touched], plain[1][:, ~touched])
    assert not np.isfinite(found[1][:, 3, 3:5]).any()


@needs_pairs
def test_weights_are_rounded_to_nearest() -> None:
    """A window of one pixel with factors that bfloat16 holds is exact."""
    x = convert_array(convert_array(images(1, 33, 5, 5), bfloat16.numpy), np.dtype(np.float32))
    exact, run = (convolution(window=1, precision=p) for p in ("exact", "bfloat16"))
    error = abs(call(run, x) - call(exact, x))
    assert 0 < error.max() <= 2.0**-9 * 33 * 25


@needs_pairs
def test_convolutions_that_would_take_longer_stay_float32() -> None:
    assert is_rounded(convolution(16, 32)) and is_rounded(convolution(4, 32, layout=LAYOUTS[0]))
    for layout in LAYOUTS:
        stay = [
            convolution(layout=layout, inner=32, outer=64, group=2),
            convolution(layout=layout, inner=32, outer=32, group=32),
            convolution(layout=layout, inner=32, outer=31),
            convolution(layout=layout, inner=32, outer=32, strides=[1, 1]),  # Winograd
            convolution(layout=layout, inner=1, outer=32, window=7),  # words along the window
        ]
        assert not any(map(is_rounded, stay))
    assert not is_rounded(convolution(15, 32))
    assert not is_rounded(convolution(4, 32, window=33))
    assert not is_rounded(convolution(3, 32, layout=LAYOUTS[0]))
    assert not is_rounded(convolution(32, 63, window=1, layout=LAYOUTS[0]))
    with settings.override(winograd=False):
        assert is_rounded(convolution(32, 32, strides=[1, 1]))


WINDOWS = (
    {"window": 3}, {"window": 5, "strides": [1, 1]}, {"window": 3, "dilations": [4, 2]},
    {"window": 4, "pads": [0, 3, 2, 1], "strides": [1, 3]}, {"window": 7},
)  # fmt: skip


@needs_pairs
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("words", WINDOWS, ids=str)
def test_taps_out_of_bounds_add_zeros(layout: str, words: dict[str, object]) -> None:
    """Tiny images have the bits of images with zeros around them, in every batch."""
    pads = [int(p) for p in words.get("pads", [int(str(words["window"])) // 2] * 4)]  # type: ignore[attr-defined]
    run = convolution(layout=layout, **{**words, "pads": pads})  # type: ignore[arg-type]
    plain = convolution(layout=layout, **{**words, "pads": [0] * 4})  # type: ignore[arg-type]
    for sizes in ((1, 1, 1), (9, 1, 1), (2, 2, 2), (1, 1, 7), (3, 4, 1), (17, 2, 3), (1, 9, 8)):
        x = images(sizes[0], 33, *sizes[1:])
        around = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
        reached = 1 + (int(str(words["window"])) - 1) * max(words.get("dilations", [1]))  # type: ignore[call-overload]
        if min(around.shape[2:]) >= reached:
            np.testing.assert_array_equal(call(run, x), call(plain, around))


@needs_pairs
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pixels_have_the_same_bits_in_any_number(layout: str) -> None:
    """Of 1 to 200 pixels, in images of any extents and in any batch."""
    run, x = convolution(window=1, layout=layout, strides=[1, 1]), images(1, 33, 1, 200)
    whole = call(run, x)
    for count in range(1, 201):
        np.testing.assert_array_equal(call(run, x[..., :count]), whole[..., :count])
    apart = np.ascontiguousarray(x.transpose(3, 1, 2, 0))  # 200 images of a pixel
    np.testing.assert_array_equal(call(run, apart), whole.transpose(3, 1, 2, 0))
    tall = x.reshape(1, 33, 40, 5)
    np.testing.assert_array_equal(call(run, tall), whole.reshape(1, -1, 40, 5))


@needs_pairs
@pytest.mark.parametrize("layout", LAYOUTS)
def test_threads_share_few_pixels(layout: str) -> None:
    runs = [convolution(512, 600, layout=layout, threads=n) for n in (1, 2, 3)]
    for sizes in ((1, 1, 1), (1, 3, 4), (5, 2, 2), (16, 1, 1), (1, 9, 7)):
        x = images(sizes[0], 512, *sizes[1:])
        one, *others = (call(run, x) for run in runs)
        for other in others:
            np.testing.assert_array_equal(one, other)


@needs_pairs
@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_windows_of_other_ranks(rank: int, size: int) -> None:
    """In lines and volumes as small as a pixel."""
    w = np.random.default_rng(2).standard_normal((40, 34, *[3] * rank)).astype(np.float32)
    extents = ", ".join("dhv"[:rank])
    nodes = [node("y = Conv(x, w)", pads=[1] * 2 * rank, strides=[2] * rank)]
    made = model(graph("windows", [f"x f[n, 34, {extents}]"], nodes,
                       [f"y f[n, 40, {extents.upper()}]"], {"w": w}))  # fmt: skip
    run, exact = (ad.compile(made, precision=p, threads=1) for p in ("bfloat16", "exact"))
    x = images(3, 34, *[size] * rank)
    error = abs(call(run, x) - call(exact, x)).max()
    assert is_rounded(run) and 0 < error <= 2.0**-8 * 34 * 3**rank * 5 * abs(x).max()
    np.testing.assert_array_equal(call(run, x[1:2]), call(run, x)[1:2])


def test_check_permits_the_rounding() -> None:
    report = convolution().check(samples=4)
    assert report.ok, str(report)
