"""Taps that a panel has outside of x: left out, with the bits of all of them."""

from __future__ import annotations

import numpy
import pytest

from anydim.compiler.kernels.matmul.convolution import convolution_plan, line_buffer
from tests.unit.compiler.kernels.convolution_cases import Case, check

BIASED = {"constant": True, "bias": True}


def window(pad: int, stride: int = 1, dilation: int = 1, groups: int = 1) -> dict:
    strides, dilations = (stride, stride), (dilation, dilation)
    return {"strides": strides, "dilations": dilations, "pads": (pad,) * 4, "groups": groups}


CASES = {
    "flat": Case("n 40 h v", "24 40 5 5", window(2), **BIASED),
    "stride 2": Case("n 3 h v", "24 3 7 7", window(3, 2), **BIASED),
    "far": Case("n 6 h v", "20 6 3 3", window(8, 1, 8)),
    "groups": Case("n 6 h v", "16 3 3 3", window(4, 1, 4, 2)),
    "more padding than taps": Case("n 3 h v", "8 3 3 3", window(5), **BIASED),
    "weights of a call": Case("n 5 h v", "9 5 3 3", window(4, 1, 4), constant=False),
    "along one axis": Case("n 3 v", "8 3 3", {"dilations": (100,), "pads": (100, 100)}),
}
SIZES = ((1, 48), (2, 17), (3, 200), (5, 33), (9, 31), (17, 16), (20, 3), (4, 0), (70, 130))


@pytest.mark.sampled(most=7)
@pytest.mark.parametrize("banded", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_what_is_left_out_changes_no_bits(
    name: str, banded: bool, kernel_target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    if kernel_target == "opencl":
        pytest.skip("kernels of devices multiply all taps")
    monkeypatch.setattr(line_buffer, "_PACKED", 1 << 20 if banded else -(1 << 20))
    some = case.prepared()
    monkeypatch.setattr(convolution_plan, "valid_taps_of", lambda *given: None)
    whole = case.prepared()
    assert some.launch.kernel.name != whole.launch.kernel.name
    for number, (height, width) in enumerate(SIZES):
        sizes = {"n": 1 + number % 2, "h": height, "v": width}
        arrays = case.arrays(sizes)
        check(case, some, sizes)
        (found,) = some.outputs(arrays, sizes, 1 + number % 3, compiled=True)
        (expected,) = whole.outputs(arrays, sizes, compiled=True)
        assert numpy.array_equal(found, expected)


def test_rows_at_the_edge_multiply_no_tap_that_is_outside(kernel_target: str) -> None:
    if kernel_target == "opencl":
        pytest.skip("kernels of devices multiply all taps")
    case, sizes = CASES["far"], {"n": 1, "h": 16, "v": 48}
    x, w = case.arrays(sizes)
    w[:, :, 0] = numpy.nan  # the row of taps that is above the image
    (found,) = case.prepared().outputs([x, w], sizes, compiled=True)
    above = numpy.isnan(found).all(axis=(1, 3))[0]
    assert not above[:8].any() and above[8:].all()


def test_nothing_outside_is_touched(kernel_target: str) -> None:
    if kernel_target != "llvm":
        pytest.skip("nothing is compiled")
    case = Case("n 2 h v", "9 2 3 3", window(4, 1, 4))
    for height, width in ((3, 20), (7, 50)):
        check(case, case.prepared(), {"n": 1, "h": height, "v": width}, compiled=False)
