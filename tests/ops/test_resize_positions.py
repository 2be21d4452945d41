"""Promise: Resize reads from the positions that exact arithmetic gives, at every width to 400.

A scale counts as the number of the file, a float32; sizes count as their ratio.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import anydim as ad

COORDINATES = (
    "asymmetric", "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
)  # fmt: skip
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
NEAREST = [(coordinates, rounding) for coordinates in COORDINATES for rounding in ROUNDINGS]
SCALES = (1.5, 1 / 3, 0.25, 0.5, 0.75, 1.25, 0.3, 2.7, 0.1, 3.0)
WIDTHS = range(1, 401)


def model(kind: str, nodes: list[dict[str, Any]], scale: float = 1.0) -> onnx.ModelProto:
    """Resizes of x [w], each with its attributes; y0, y1, ... are the results."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["w"])]
    if kind != "constant":
        element = TensorProto.FLOAT if kind == "scales" else TensorProto.INT64
        inputs.append(helper.make_tensor_value_info("by", element, [1]))
    given = ["x", "", "", "by"] if kind == "sizes" else ["x", "", "by"]
    made = [
        helper.make_node("Resize", given, [f"y{number}"], **attributes)
        for number, attributes in enumerate(nodes)
    ]
    results = [onnx.ValueInfoProto(name=f"y{number}") for number in range(len(nodes))]
    for result in results:
        result.type.tensor_type.elem_type = TensorProto.FLOAT
    by = numpy_helper.from_array(numpy.array([scale], numpy.float32), "by")
    graph = helper.make_graph(made, "g", inputs, results, [by] if kind == "constant" else [])
    opsets = [helper.make_opsetid("", 19)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def nearest(kind: str, scale: float = 1.0) -> onnx.ModelProto:
    attributes = [
        {"mode": "nearest", "coordinate_transformation_mode": each, "nearest_mode": rounding}
        for each, rounding in NEAREST
    ]
    return model(kind, attributes, scale)


def positions(coordinates: str, width: int, count: int, scale: Fraction) -> tuple[Any, int]:
    """The positions that the standard's formulas give, as numerators int64 and a denominator."""
    o, (above, below) = numpy.arange(count), (scale.numerator, scale.denominator)
    middle = (2 * o + 1) * below - above
    if coordinates == "asymmetric":
        return o * below, above
    if coordinates == "half_pixel_symmetric":
        # width / 2 * (1 - count / (scale * width)) + (o + 1/2) / scale - 1/2
        return (width - 1) * above + (2 * o + 1 - count) * below, 2 * above
    if coordinates == "align_corners":
        return (o * (width - 1), count - 1) if count > 1 else (0 * o, 1)
    if coordinates == "pytorch_half_pixel" and count <= 1:
        return 0 * o, 1
    return middle, 2 * above


def rounded(rounding: str, above: Any, below: int) -> Any:
    return {
        "floor": above // below,
        "ceil": -(-above // below),
        "round_prefer_floor": -((below - 2 * above) // (2 * below)),
        "round_prefer_ceil": (2 * above + below) // (2 * below),
    }[rounding]


def wrong(
    width: int, count: int, scale: Fraction, results: dict[str, Any]
) -> list[tuple[int, str, str]]:
    """The modes whose results are not the elements that exact positions name."""
    found = []
    for number, (coordinates, rounding) in enumerate(NEAREST):
        at = rounded(rounding, *positions(coordinates, width, count, scale))
        right = numpy.clip(at, 0, width - 1)
        if not numpy.array_equal(results[f"y{number}"], right):
            found.append((width, coordinates, rounding))
    return found


@pytest.mark.parametrize("scale", [0.75, 0.3])
def test_by_a_scale_of_the_file(scale: float) -> None:
    compiled, exact = ad.compile(nearest("constant", scale)), Fraction(float(numpy.float32(scale)))
    for width in WIDTHS:
        results = compiled(numpy.arange(width, dtype=numpy.float32))
        assert not wrong(width, int(width * exact), exact, results)


@pytest.mark.parametrize(
    "scales", [SCALES[:2], pytest.param(SCALES[2:], marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_by_scales_of_a_call(scales: tuple[float, ...]) -> None:
    compiled = ad.compile(nearest("scales"))
    for scale in scales:
        exact = Fraction(float(numpy.float32(scale)))
        for width in WIDTHS:
            x = numpy.arange(width, dtype=numpy.float32)
            results = compiled(x, numpy.array([scale], numpy.float32))
            assert not wrong(width, int(width * exact), exact, results), scale


COUNTS: dict[str, Callable[[int], int]] = {
    "half": lambda width: width // 2 + 1, "double": lambda width: 2 * width,
    "one more": lambda width: width + 1, "a third": lambda width: (width + 2) // 3,
    "one": lambda width: 1,
}  # fmt: skip


def test_by_sizes() -> None:
    compiled = ad.compile(nearest("sizes"))
    for counted in COUNTS.values():
        for width in WIDTHS:
            count = counted(width)
            results = compiled(numpy.arange(width, dtype=numpy.float32), numpy.array([count]))
            assert not wrong(width, count, Fraction(count, width), results)


def test_thirteen_by_half() -> None:
    attributes = {"coordinate_transformation_mode": "half_pixel_symmetric", "nearest_mode": "floor"}
    compiled = ad.compile(model("constant", [attributes], 0.5))
    assert compiled(numpy.arange(13, dtype=numpy.float32))["y0"].tolist() == [1, 3, 5, 7, 9, 11]


@pytest.mark.parametrize("opset", [11, 13, 18, 19])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("kind", ["constant", "scales"])
def test_the_last_element_lands_on_the_last_one(kind: str, mode: str, opset: int) -> None:
    """Also where the product of size and scale is not whole: 7 x 1.5 gives 10 elements."""
    attributes = {"mode": mode, "coordinate_transformation_mode": "align_corners"}
    whole = {**attributes, "coordinate_transformation_mode": "tf_crop_and_resize"}
    proto = model(kind, [attributes, whole], 1.5)
    proto.opset_import[0].version = opset
    proto.graph.initializer.append(numpy_helper.from_array(numpy.float32([0, 1]), "part"))
    for node, part in zip(proto.graph.node, ("", "part")):
        node.input[1] = part
    compiled = ad.compile(proto)
    by = () if kind == "constant" else (numpy.float32([1.5]),)
    for width in (2, 3, 7, 13, 99):
        results = compiled(numpy.arange(width, dtype=numpy.float32), *by)
        for name in ("y0", "y1"):
            assert len(results[name]) == width * 3 // 2
            assert results[name][0] == 0 and results[name][-1] == width - 1
    seven = compiled(numpy.arange(7, dtype=numpy.float32), *by)["y0"]
    if mode == "linear":
        numpy.testing.assert_allclose(seven, numpy.arange(10) * 6 / 9, rtol=1e-6)
    if mode == "nearest":
        assert seven.tolist() == [0, 1, 1, 2, 3, 3, 4, 5, 5, 6]


@pytest.mark.parametrize("kind", ["scales", "sizes"])
def test_lines_stay_lines(kind: str) -> None:
    """Of x = 0, 1, 2, ... linear weights, and cubic ones of a = -0.5, give the position itself."""
    nodes = [
        {"mode": mode, "coordinate_transformation_mode": coordinates, "cubic_coeff_a": -0.5}
        for mode in ("linear", "cubic") for coordinates in COORDINATES
    ]  # fmt: skip
    compiled = ad.compile(model(kind, nodes))
    for width in (2, 5, 13, 64, 97, 400):
        for scale in SCALES:
            exact = Fraction(float(numpy.float32(scale)))
            count = int(width * exact)
            by = numpy.array([scale], numpy.float32) if kind == "scales" else numpy.array([count])
            exact = exact if kind == "scales" else Fraction(count, width)
            if not exact:
                continue
            results = compiled(numpy.arange(width, dtype=numpy.float32), by)
            for number, attributes in enumerate(nodes):
                coordinates = attributes["coordinate_transformation_mode"]
                above, below = positions(coordinates, width, count, exact)
                reach = 2 if attributes["mode"] == "cubic" else 0
                at = numpy.array([Fraction(int(a), below) for a in above], float)
                inside = (at >= reach) & (at <= width - 1 - reach)
                # weights and sums of four numbers below 400 in float32
                numpy.testing.assert_allclose(
                    results[f"y{number}"][inside], at[inside], rtol=4e-6, atol=4e-6
                )


def test_a_whole_image_cropped_is_aligned_at_its_corners() -> None:
    nodes = [
        {"mode": "nearest", "coordinate_transformation_mode": "tf_crop_and_resize",
         "nearest_mode": rounding, "extrapolation_value": -1.0}
        for rounding in ROUNDINGS
    ]  # fmt: skip
    source = model("sizes", nodes)
    for node in source.graph.node:
        node.input[1] = "part"
    part = numpy_helper.from_array(numpy.array([0, 1], numpy.float32), "part")
    source.graph.initializer.append(part)
    compiled = ad.compile(source)
    for width in WIDTHS:
        for count in (2, width // 2 + 2, 2 * width):
            results = compiled(numpy.arange(width, dtype=numpy.float32), numpy.array([count]))
            above, below = positions("align_corners", width, count, Fraction(count, width))
            for number, rounding in enumerate(ROUNDINGS):
                right = rounded(rounding, above, below)
                numpy.testing.assert_array_equal(results[f"y{number}"], right)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_a_ratio_that_is_kept_is_a_ratio(policy: str) -> None:
    """x [w] is scaled as the axis of 3 or 7 beside it is: by 1/3, 2/3, 5/7, which no float is."""
    node = helper.make_node(
        "Resize", ["x", "", "", "by"], ["y"], keep_aspect_ratio_policy=policy, nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["w", "h"]),
         helper.make_tensor_value_info("by", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 19)]
    compiled = ad.compile(helper.make_model(graph, opset_imports=opsets, ir_version=9))
    for height, other in ((3, 1), (3, 2), (7, 5), (7, 9)):
        for width in range(1, 100):
            far = 10 * width if policy == "not_larger" else 0
            x = numpy.repeat(numpy.arange(width, dtype=numpy.float32)[:, None], height, 1)
            result = compiled(x, numpy.array([far, other]))["y"]
            scale = Fraction(other, height)
            count = int(width * scale + Fraction(1, 2))
            right = [min(int(o / scale), width - 1) for o in range(count)]
            assert result.shape == (count, other)
            numpy.testing.assert_array_equal(result[:, 0], right)
