"""Reductions over windows agree with float64 numpy at every size, and touch nothing outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy
import pytest

import anydim as ad
import anydim.compiler.ops
from anydim.base.dtypes import float32, float64, int8, int32, uint8
from anydim.compiler.graph.operator import operator
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.window_reduction import window_template as sliding
from anydim.compiler.targets.llvm.host import machine as host_machine
from anydim.lang.tree import TensorType
from anydim.sizes import Box, Dim, parse
from tests.unit.compiler.kernels.convolution_cases import convolved
from tests.unit.compiler.kernels.launching import Prepared

BOX = Box.of(Dim("n", 0, 16), Dim("c", 0, 64), Dim("d", 0, 64), Dim("h", 0, 512), Dim("v", 0, 512))
SMALL = Machine(16, 16, 4 * 1024, 64 * 1024)
WIDTHS = (0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 131)


def window(kernel: tuple[int, ...], pads: Any = None, strides: Any = None, **more: Any) -> dict:
    return {"kernel": kernel, "pads": pads, "strides": strides, **more}


CASES: dict[str, tuple[str, tuple[str, ...], dict]] = {
    "max 3x3": ("max_pool", ("n c h v",), window((3, 3), (1,) * 4)),
    "max 3x3 stride 2": ("max_pool", ("n c h v",), window((3, 3), (1,) * 4, (2, 2))),
    "max 2x2 stride 2": ("max_pool", ("n c h v",), window((2, 2), None, (2, 2))),
    "max stride 3": ("max_pool", ("n c h v",), window((3, 2), (0, 1, 1, 0), (1, 3))),
    "max stride 4": ("max_pool", ("n c h v",), window((3, 5), (1, 2, 1, 2), (1, 4))),
    "max dilated": ("max_pool", ("n c h v",), window((3, 3), (2,) * 4, dilations=(2, 2))),
    "max large": ("max_pool", ("n c h v",), window((1, 9), (0, 3, 0, 3), (2, 1))),
    "max line": ("max_pool", ("n c v",), window((5,), (2, 2))),
    "max cube": ("max_pool", ("n c d h v",), window((2, 3, 3), (1,) * 6, (1, 2, 2))),
    "sum of squares": ("lp_pool", ("n c h v",), window((3, 3), (1,) * 4, (2, 2), p=2)),
    "depthwise": ("conv", ("n 6 h v", "6 1 3 3"), {"groups": 6, "pads": (1,) * 4}),
    "depthwise stride 2": (
        "conv", ("n 6 h v", "6 1 3 3", "6"), {"groups": 6, "pads": (1,) * 4, "strides": (2, 2)},
    ),
    "depthwise 5x5": ("conv", ("n 6 h v", "6 1 5 5"), {"groups": 6, "pads": (2,) * 4}),
    "two inputs a group": ("conv", ("n 8 h v", "4 2 3 3"), {"groups": 4, "pads": (1,) * 4}),
    "one output channel": ("conv", ("n 5 h v", "1 5 3 3", "1"), {"pads": (1,) * 4}),
}  # fmt: skip


def prepared(name: str, machine: Machine, dtype: Any = float32) -> Prepared:
    kind, shapes, attributes = CASES[name]
    types = [TensorType(dtype, tuple(map(parse, shape.split()))) for shape in shapes]
    group = operator(kind).instantiate(types, attributes, BOX)
    return Prepared(group, [sliding.TEMPLATE], BOX, machine)


def arrays(name: str, sizes: Mapping[str, int], dtype: Any = float32) -> list[numpy.ndarray]:
    random = numpy.random.default_rng(sorted(sizes.values()))
    shapes = [[parse(p).evaluate(sizes) for p in s.split()] for s in CASES[name][1]]
    return [(random.standard_normal(shape) * 9).astype(dtype.numpy) for shape in shapes]


def expected(name: str, given: list[numpy.ndarray]) -> numpy.ndarray:
    """The operator in float64, tap by tap."""
    kind, _, attributes = CASES[name]
    if kind == "conv":
        return convolved(*given, **attributes)
    x, kernel = given[0].astype(numpy.float64), attributes["kernel"]
    rank = len(kernel)
    pads = attributes["pads"] or (0,) * (2 * rank)
    strides = attributes["strides"] or (1,) * rank
    dilations = attributes.get("dilations") or (1,) * rank
    outside = -numpy.inf if kind == "max_pool" else 0.0
    wide = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:])]
    for axis in range(rank):  # a window that is longer than its axis is cut
        short = (kernel[axis] - 1) * dilations[axis] + 1 - x.shape[2 + axis] - sum(wide[2 + axis])
        if x.shape[2 + axis] and 0 < short < strides[axis]:
            wide[2 + axis] = (wide[2 + axis][0], wide[2 + axis][1] + short)
    padded = numpy.pad(x, wide, constant_values=outside)
    counts = [
        max(0, (padded.shape[2 + a] - (kernel[a] - 1) * dilations[a] - 1) // strides[a] + 1)
        for a in range(rank)
    ]
    result = numpy.full((*x.shape[:2], *counts), outside)
    for taps in product(*map(range, kernel)):
        cuts = tuple(
            slice(t * d, t * d + s * (count - 1) + 1, s) if count else slice(0, 0)
            for t, d, s, count in zip(taps, dilations, strides, counts)
        )
        part = padded[(slice(None), slice(None), *cuts)]
        result = numpy.maximum(result, part) if kind == "max_pool" else result + part * part
    return result if kind == "max_pool" else numpy.sqrt(result)


def check(name: str, made: Prepared, sizes: Mapping[str, int], parts: int, compiled: bool) -> None:
    """At most 50 roundings of terms of at most some hundreds."""
    given = arrays(name, sizes)
    (found,) = made.outputs(given, sizes, parts, compiled)
    exact = expected(name, given)
    assert found.shape == exact.shape
    numpy.testing.assert_allclose(found, exact, rtol=1e-5, atol=2e-3)


@pytest.mark.sampled(
    "-max large-small",
    "depthwise stride 2-small",
    "two inputs a group-small",
    "one output channel-small",
    most=3,
)
@pytest.mark.parametrize("machine", [None, SMALL], ids=["host", "small"])
@pytest.mark.parametrize("name", CASES)
def test_every_window(name: str, machine: Machine | None) -> None:
    made = prepared(name, machine or host_machine())
    for number, width in enumerate(WIDTHS):
        sizes = {"n": number % 3, "c": 3, "d": 4, "h": width if number % 2 else 5, "v": width}
        check(name, made, sizes, 1 + number % 3, compiled=True)


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("name", CASES)
def test_nothing_outside_is_touched(name: str) -> None:
    made = prepared(name, SMALL)
    for height, width in ((3, 5), (1, 9), (5, 1), (12, 7)):
        sizes = {"n": 1, "c": 2, "d": 2, "h": height, "v": width}
        check(name, made, sizes, 1, compiled=False)


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize(
    "name", ["max 3x3", "max 2x2 stride 2", "max cube", "depthwise", "depthwise stride 2"]
)
def test_rows_of_few_columns_are_merged(name: str) -> None:
    """Or vectors are along channels. Parts begin and end inside of images, with the same bits."""
    made = prepared(name, host_machine())
    for height, width, channels in product((1, 2, 5, 40), (1, 2, 3, 4, 5, 9), (3, 20)):
        sizes = {"n": 2, "c": channels, "d": 4, "h": height, "v": width}
        given = arrays(name, sizes)
        whole = made.outputs(given, sizes, 1, compiled=True)[0]
        numpy.testing.assert_allclose(whole, expected(name, given), rtol=1e-5, atol=2e-3)
        cut = made.outputs(given, sizes, 7, compiled=True)[0]
        numpy.testing.assert_array_equal(whole, cut)


@pytest.mark.parametrize("name", ["max 2x2 stride 2", "max line", "depthwise 5x5"])
def test_blocks_of_rows_begin_anywhere(name: str) -> None:
    """Rows are done some at a time, in strips of 32; where parts begin changes no bit."""
    made = prepared(name, host_machine())
    for height, width in product((4, 7, 11, 37, 70), (10, 33)):
        sizes = {"n": 2, "c": 3, "d": 4, "h": height, "v": width}
        given = arrays(name, sizes)
        whole = made.outputs(given, sizes, 1, compiled=True)[0]
        numpy.testing.assert_allclose(whole, expected(name, given), rtol=1e-5, atol=2e-3)
        cut = made.outputs(given, sizes, 11, compiled=True)[0]
        numpy.testing.assert_array_equal(whole, cut)


@pytest.mark.parametrize("name", ["max 3x3 stride 2", "depthwise 5x5"])
def test_asking_for_the_next_strip_changes_no_bit(name: str) -> None:
    """What tensors have that fill no cache is asked for ahead."""
    near, far = (prepared(name, replace(SMALL, l2_bytes=l2)) for l2 in (1 << 20, 64))
    for height, width in ((9, 33), (70, 17)):
        sizes = {"n": 2, "c": 3, "h": height, "v": width}
        given = arrays(name, sizes)
        found = far.outputs(given, sizes, 3, compiled=True)[0]
        numpy.testing.assert_allclose(found, expected(name, given), rtol=1e-5, atol=2e-3)
        numpy.testing.assert_array_equal(found, near.outputs(given, sizes, 3, compiled=True)[0])
    sizes = {"n": 1, "c": 2, "h": 9, "v": 33}
    check(name, far, sizes, 1, compiled=False)


@pytest.mark.parametrize("stride", [1, 2])
def test_means_count_what_is_inside_of_each_row_and_column(stride: int) -> None:
    attributes = {"kernel": (3, 3), "pads": (1,) * 4, "strides": (stride, stride)}
    g = ad.Builder("means")
    c, h, v = (g.dim(name, 1, 200) for name in "chv")
    x = g.input("x", float32, (2, c, h, v))
    g.output("y", g.average_pool(x, **attributes))
    model = ad.compile(g.graph())
    for channels, height, width in product((2, 24), (1, 3, 40), (1, 2, 3, 7, 40)):
        array = numpy.random.default_rng(width).random((2, channels, height, width)).astype("f")
        found = model(array)["y"]
        sums, counts = (
            sum(
                numpy.pad(a.astype("d"), [(0, 0), (0, 0), (1, 1), (1, 1)])[
                    :, :, i : i + height : stride, j : j + width : stride
                ]
                for i, j in product(range(3), range(3))
            )
            for a in (array, numpy.ones_like(array))
        )
        numpy.testing.assert_allclose(found, sums / counts, rtol=1e-6)


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("outside", [(0, 0), (3, 0), (3, -2)], ids=str)
def test_windows_leave_their_images_apart(outside: tuple[int, int]) -> None:
    """Rows outside of one image are inside of another, and their defaults may count."""
    text = """def both(float(C,H,W) x, float(C,H,W) z) -> (y) {
      y(c,i,j) +=! abs(x(c, i + a - 1, j + b - 1) else %d) * (z(c, i + 2*a - 3, j) else %d)
        where c in 0:C, i in 0:H, j in 0:W, a in 0:3, b in 0:3
    }"""
    model = ad.define(text % outside)
    for height, width in product((1, 2, 5, 9), (1, 3, 7, 16, 40)):
        random = numpy.random.default_rng(width)
        x, z = (random.integers(-9, 9, (2, height, width)).astype("f") for _ in "xz")
        x_wide, z_wide = (
            numpy.pad(a, [(0, 0), (3, 3), (1, 1)], constant_values=default)
            for a, default in zip((x, z), outside)
        )
        expected = sum(
            abs(x_wide[:, 2 + a : 2 + a + height, b : b + width])
            * z_wide[:, 2 * a : 2 * a + height, 1 : 1 + width]
            for a, b in product(range(3), range(3))
        )
        assert (model.both(x, z) == expected).all(), (height, width)


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("dtype", [float64, int32, int8, uint8], ids=str)
def test_other_types(dtype: Any) -> None:
    """Bytes outside are the least there are, so they are left out of maxima."""
    made = prepared("max 3x3 stride 2", host_machine(), dtype)
    for channels, height, width in ((3, 9, 21), (20, 1, 1), (20, 2, 2), (20, 50, 5)):
        sizes = {"n": 2, "c": channels, "h": height, "v": width}
        given = arrays("max 3x3 stride 2", sizes, dtype)
        (found,) = made.outputs(given, sizes, compiled=True)
        assert (found == expected("max 3x3 stride 2", given)).all()


def test_nan_wins_a_maximum() -> None:
    made = prepared("max 3x3", host_machine())
    sizes = {"n": 1, "c": 1, "h": 5, "v": 40}
    given = arrays("max 3x3", sizes)
    given[0][0, 0, 2, 20] = numpy.nan
    (found,) = made.outputs(given, sizes, compiled=True)
    assert numpy.isnan(found[0, 0, 1:4, 19:22]).all() and numpy.isnan(found).sum() == 9


def test_reductions_without_windows_are_left_alone() -> None:
    kind = TensorType(float32, tuple(map(parse, ("n", "c", "h", "v"))))
    for axes in ((2, 3), (1,), (0,)):
        attributes = {"axes": axes, "keepdims": True}
        group = operator("reduce_max").instantiate([kind], attributes, BOX)
        with pytest.raises(AssertionError, match="no template"):
            Prepared(group, [sliding.TEMPLATE], BOX, host_machine())


@pytest.mark.parametrize("kind", ["int8", "float"])
@pytest.mark.parametrize("axes", ["c", "ch", "nh"])
@pytest.mark.parametrize("width", ["20", "V"])
def test_factors_of_all_axes_of_the_result(kind: str, axes: str, width: str) -> None:
    """Lanes along rows have one factor, which may differ at the next position."""
    factor = {"int8": "int32(b({}))", "float": "b({})"}[kind].format(",".join(axes))
    value = {"int8": "int32(x(n,c,h,w+r))", "float": "x(n,c,h,w+r)"}[kind]
    sizes = ",".join(a.upper() for a in axes)
    text = f"""def f({kind}(N,6,5,{width}) x, {kind}({sizes}) b) -> (y) {{
      y(n,c,h,w) +=! {value} * {factor} where n in 0:N, c in 0:6, h in 0:5,
        w in 0:{width} - 1, r in 0:2
    }}""".replace("C", "6").replace("H", "5")
    function = ad.define(text).f
    for n, columns in ((0, 20), (1, 20), (3, 20), *([(2, 3), (1, 41)] if width == "V" else [])):
        numbers = numpy.random.default_rng(n)
        shape = {"n": n, "c": 6, "h": 5}
        dtype = {"int8": numpy.int8, "float": numpy.float32}[kind]
        x = (numbers.standard_normal((n, 6, 5, columns)) * 40).astype(dtype)
        b = (numbers.standard_normal([shape[a] for a in axes]) * 40).astype(dtype)
        by = b.astype(float)[tuple(slice(None) if a in axes else None for a in "nchw")]
        expected = (x.astype(float)[..., :-1] + x.astype(float)[..., 1:]) * by
        numpy.testing.assert_allclose(function(x, b), expected, rtol=1e-5, atol=1e-2)
