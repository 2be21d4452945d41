"""Convolutions agree with float64 numpy at every size, whatever their window."""

from __future__ import annotations

import numpy
import pytest

from anydim.base.dtypes import float64, int32
from anydim.compiler.kernels.ir_text import print_kernel
from anydim.compiler.kernels.launch import Machine
from tests.unit.compiler.kernels.convolution_cases import Case, check

AVX2 = Machine(32, 16)
SMALL = Machine(16, 16, 4 * 1024, 64 * 1024)
PERMUTING = Machine(64, 32, permutes=True)
WIDTHS = (0, 1, 2, 3, 5, 7, 15, 16, 17, 31, 33, 47, 48, 49, 97)


def square(k: int, pad: int = 0, stride: int = 1, dilation: int = 1, groups: int = 1) -> dict:
    return {
        "strides": (stride, stride),
        "dilations": (dilation, dilation),
        "pads": (pad,) * 4,
        "groups": groups,
    }


CASES = {
    "3x3 padded": Case("n 5 h v", "9 5 3 3", square(3, 1)),
    "3x3 bias": Case("n 5 h v", "17 5 3 3", square(3, 1), bias=True),
    "3x3 stride 2": Case("n 4 h v", "8 4 3 3", square(3, 1, 2)),
    "3x3 stride 3": Case("n 4 h v", "8 4 3 3", square(3, 1, 3)),
    "5x5 stride 4": Case("n 3 h v", "8 3 5 5", square(5, 2, 4)),
    "5x5 stride 5": Case("n 3 h v", "8 3 5 5", square(5, 2, 5)),
    "patches": Case("n 3 h v", "8 3 6 6", square(6, 0, 6)),
    "wide patches, padded": Case("n 2 h v", "8 2 3 18", {"strides": (2, 7), "pads": (1, 9, 1, 9)}),
    "7x7 first layer": Case("n 3 h v", "16 3 7 7", square(7, 3, 2), bias=True),
    "dilated": Case("n 4 h v", "8 4 3 3", square(3, 2, 1, 2)),
    "dilated, strided": Case("n 4 h v", "8 4 3 3", square(3, 3, 2, 3)),
    "one-sided padding": Case("n 4 h v", "7 4 2 3", {"pads": (1, 0, 0, 2)}),
    "no padding": Case("n 4 h v", "7 4 3 2", {}),
    "1x1": Case("n 20 h v", "24 20 1 1", {}),
    "1x1 many rows": Case("n 20 h v", "72 20 1 1", {}, bias=True),
    "1x1 stride 2": Case("n 20 h v", "24 20 1 1", square(1, 0, 2)),
    "grouped": Case("n 12 h v", "20 3 3 3", square(3, 1, 1, 1, 4), bias=True),
    "grouped 1x1": Case("n 12 h v", "20 6 1 1", square(1, 0, 1, 1, 2)),
    "one channel": Case("n 1 h v", "9 1 3 3", square(3, 1)),
    "free channels": Case("n c h v", "9 c 3 3", square(3, 1), constant=False),
    "weights at run time": Case("n 5 h v", "19 5 3 3", square(3, 1), True, constant=False),
    "groups at run time": Case("n 12 h v", "20 3 3 3", square(3, 1, 1, 1, 4), constant=False),
    "long sums": Case("n 70 h v", "9 70 3 3", square(3, 1)),
    "large window": Case("n 2 h v", "9 2 13 13", square(13, 6)),
    "float64": Case("n 5 h v", "9 5 3 3", square(3, 1, 2), True, dtype=float64),
    "int32": Case("n 5 h v", "9 5 3 3", square(3, 1), dtype=int32),
    "line": Case("n 5 v", "9 5 3", {"pads": (1, 1)}),
    "line of single taps, zeros behind": Case("n 5 v", "9 5 1", {"pads": (0, 2)}),
    "line of single taps, zeros before": Case("n 5 v", "9 5 1", {"pads": (3, 0)}),
    "line, dilated": Case("n 5 v", "9 5 3", {"pads": (4, 4), "dilations": (4,)}),
    "dilated beyond the image": Case("n 4 h v", "8 4 3 3", square(3, 40, 1, 40)),
    "cube as large as its image": Case("n 3 d h v", "9 3 3 3 3", {"pads": (1,) * 6}),
    "cube": Case("n 3 d h v", "9 3 3 2 3", {"pads": (1, 0, 1, 1, 1, 1)}),
    "cube, strided": Case("n 3 d h v", "9 3 2 3 3", {"strides": (1, 2, 2), "pads": (1,) * 6}),
}  # fmt: skip


@pytest.mark.sampled(most=8)
@pytest.mark.parametrize("machine", [None, AVX2, SMALL], ids=["host", "avx2", "small"])
@pytest.mark.parametrize("name", CASES)
def test_every_window(name: str, machine: Machine | None) -> None:
    case = CASES[name]
    prepared = case.prepared(machine)
    for number, width in enumerate(WIDTHS):
        sizes = {"n": number % 3, "h": width if number % 2 else 6, "v": width, "d": 4, "c": number}
        check(case, prepared, sizes, parts=1 + number % 3)


# all that the others cover of the compiler
COVERING = (
    "1x1 stride 2", "3x3 bias", "5x5 stride 4", "cube", "dilated beyond the image", "float64",
    "grouped", "grouped 1x1", "groups at run time", "int32", "no padding", "wide patches, padded",
)  # fmt: skip


@pytest.mark.sampled(only=[f"llvm-{name}" for name in COVERING], most=6)
@pytest.mark.parametrize("name", CASES)
def test_nothing_outside_is_touched(name: str) -> None:
    case = CASES[name]
    prepared = case.prepared(SMALL)
    for height, width in ((3, 5), (1, 9), (4, 1)):
        sizes = {"n": 1, "h": height, "v": width, "d": 2, "c": 3}
        check(case, prepared, sizes, compiled=False)


@pytest.mark.parametrize("name", ["patches", "wide patches, padded"])
def test_nothing_outside_of_patches_is_touched(name: str) -> None:
    case = CASES[name]
    for machine in (None, SMALL):
        for height, width in ((5, 20), (2, 127), (1, 41)):
            sizes = {"n": 2, "h": height, "v": width}
            check(case, case.prepared(machine), sizes, compiled=False)


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "case",
    [
        Case("n 5 h v", "8 5 3 3", square(3, 1, 2)),
        Case("1 2 h v", "8 2 5 5", square(5, 2, 2)),
        Case("1 4 h v", "8 4 1 1", square(1, 0, 2)),
    ],
    ids=lambda case: case.w,
)
def test_rows_of_few_places_are_picked_out_of_vectors(case: Case, compiled: bool) -> None:
    """They are near each other or not, and near the ends of x or not."""
    prepared = case.prepared(None if compiled else PERMUTING)
    if prepared.machine.permutes:
        assert "permute" in print_kernel(prepared.launch.kernel)
    for height, width in ((1, 1), (9, 3), (40, 4), (23, 6), (17, 7), (24, 9), (30, 10), (66, 2)):
        check(case, prepared, {"n": 1, "h": height, "v": width}, 1, compiled)
    check(case, prepared, {"n": 3, "h": 20, "v": 3}, 2, compiled)


def test_sizes_in_any_order_on_one_kernel() -> None:
    case = CASES["3x3 stride 2"]
    prepared = case.prepared()
    random = numpy.random.default_rng(5)
    for _ in range(40):
        n, h, v = random.integers(0, (4, 40, 130))
        check(case, prepared, {"n": int(n), "h": int(h), "v": int(v)}, int(random.integers(1, 4)))


def test_many_rows_and_columns_are_cut_into_pieces() -> None:
    case = Case("n 6 h v", "300 6 3 3", square(3, 1))
    prepared = case.prepared()
    sizes = {"n": 2, "h": 19, "v": 23}
    assert prepared.launch.parallel.evaluate(sizes) > 12
    check(case, prepared, sizes, parts=5)
    check(case, prepared, {"n": 1, "h": 1, "v": 1})


@pytest.mark.parametrize(
    "case",
    [
        Case("n 8 h v", "8 1 3 3", square(3, 1, 1, 1, 8)),
        Case("n 8 h v", "1 8 3 3", square(3, 1)),
    ],
    ids=["depthwise", "one output channel"],
)
def test_left_to_other_templates(case: Case) -> None:
    with pytest.raises(AssertionError, match="no template"):
        case.prepared()
