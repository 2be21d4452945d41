"""Windows read from a band of x: right at every width, with the bits of panels."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest

import anydim as ad
from anydim.base.dtypes import float64
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.matmul.convolution import convolution_plan, line_buffer
from tests.unit.compiler.kernels.convolution_cases import Case, check, convolved

SMALL = Machine(16, 16, 4 * 1024, 64 * 1024)
WIDTHS = (0, 1, 12, 13, 15, 16, 17, 28, 31, 33, 57, 111, 128, 300, 512)


def window(k: int, pad: int, stride: int = 1, dilation: int = 1, groups: int = 1) -> dict:
    strides, dilations = (stride, stride), (dilation, dilation)
    return {"strides": strides, "dilations": dilations, "pads": (pad,) * 4, "groups": groups}


CASES = {
    "5x5 in chunks": Case("n 40 h v", "24 40 5 5", window(5, 2), bias=True),
    "3x3": Case("n 3 h v", "24 3 3 3", window(3, 1), bias=True),
    "far taps": Case("n 3 h v", "24 3 3 3", window(3, 8, 1, 8)),
    "stride 2": Case("n 3 h v", "24 3 7 7", window(7, 3, 2), bias=True),
    "stride 3, dilated": Case("n 2 h v", "24 2 4 4", window(4, 4, 3, 2)),
    "groups": Case("n 6 h v", "48 3 3 3", window(3, 1, 1, 1, 2)),
    "weights of a call": Case("n 3 h v", "24 3 3 3", window(3, 1), constant=False),
    "unlike sides": Case("n 3 h v", "24 3 2 6", {"pads": (1, 0, 2, 9), "strides": (3, 1)}),
    "float64": Case("n 3 h v", "24 3 3 3", window(3, 1), dtype=float64),
    "a line": Case("n 5 v", "24 5 9", {"pads": (4, 4)}, bias=True),
}


@pytest.fixture(autouse=True)
def _wherever_it_can(kernel_target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A band, whatever a panel would cost."""
    if kernel_target == "opencl":
        pytest.skip("kernels of devices have panels alone")
    monkeypatch.setattr(line_buffer, "_PACKED", 1 << 20)


@pytest.mark.sampled(most=3)
@pytest.mark.parametrize("name", CASES)
def test_every_width_has_the_bits_of_panels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    band = case.prepared()
    monkeypatch.setattr(convolution_plan, "line_buffer_of", lambda *given: None)
    panels = case.prepared()
    assert band.launch.kernel.name != panels.launch.kernel.name
    for number, width in enumerate(WIDTHS):
        sizes = {"n": 1 + number % 2, "h": 3 + number * 5 % 17, "v": width}
        check(case, band, sizes)
        arrays = case.arrays(sizes)
        (found,) = band.outputs(arrays, sizes, 1 + number % 3, compiled=True)
        (expected,) = panels.outputs(arrays, sizes, compiled=True)
        assert found.tobytes() == expected.tobytes()


@pytest.mark.sampled(most=5)
@pytest.mark.parametrize("name", CASES)
def test_nothing_outside_is_touched(name: str, kernel_target: str) -> None:
    if kernel_target != "llvm":
        pytest.skip("nothing is compiled")
    case = CASES[name]
    few = {"24 40 5 5": "6 2 5 5", "48 3 3 3": "12 3 3 3", "24 3 7 7": "6 1 7 7"}
    w = few.get(case.w, case.w.replace("24", "6"))
    x = case.x.replace("40", "2") if "7 7" not in w else "n 1 h v"
    case = replace(case, w=w, x=x)
    for height, width in ((3, 13), (2, 22)):
        check(case, case.prepared(SMALL), {"n": 1, "h": height, "v": width}, compiled=False)


def test_rows_too_long_for_a_band_go_into_panels() -> None:
    case = CASES["3x3"]
    prepared = case.prepared(SMALL)
    check(case, prepared, {"n": 1, "h": 4, "v": 512}, compiled=True)


@pytest.mark.parametrize("apart", [False, True], ids=["in the tile", "behind it"])
def test_what_follows_is_done_with_it(apart: bool) -> None:
    g = ad.Builder("block")
    n, h, v = g.dim("n", 0, 8), g.dim("h", 0, 64), g.dim("v", 0, 200)
    random = numpy.random.default_rng(3)
    w, b = (random.standard_normal(s).astype(numpy.float32) for s in ((24, 32, 5, 5), (24,)))
    x, more = g.input("x", ad.float32, (n, 32, h, v)), g.input("z", ad.float32, (n, 24, h, v))
    y = g.conv(x, g.constant(w), g.constant(b), pads=(2, 2, 2, 2)) + more
    g.output("y", g.tanh(y) * more if apart else g.relu(y))
    model = ad.compile(g)
    assert "convolution: " in model.explain(details=True)
    for sizes in ((1, 9, 33), (2, 5, 17), (1, 30, 100), (3, 2, 2), (1, 7, 64)):
        x_now, z = (
            random.standard_normal((sizes[0], channels, *sizes[1:])).astype(numpy.float32)
            for channels in (32, 24)
        )
        exact = convolved(x_now, w, b, pads=(2,) * 4) + z
        exact = numpy.tanh(exact) * z if apart else numpy.maximum(exact, 0)
        found = model(x=x_now, z=z)["y"]
        numpy.testing.assert_allclose(found, exact, atol=2e-3, rtol=1e-5)
        for image in range(sizes[0]):
            alone = model(x=x_now[image : image + 1], z=z[image : image + 1])["y"]
            assert alone.tobytes() == found[image : image + 1].tobytes()
