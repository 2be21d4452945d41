"""Promise: packages that are written against onnxruntime run unchanged, with equal results."""

from __future__ import annotations

import importlib.util

import pytest

from bench.packages.__main__ import difference, ran

NEEDS = {
    "ocr": ("rapidocr_onnxruntime", "cv2"),
    "voice": ("silero_vad", "torch"),
    "file_types": ("magika",),
}
TOLERANCE = {
    "ocr": 1e-4,  # probabilities of float32 networks of some 60 layers
    "voice": 1e-4,
    "file_types": 1e-3,  # one file's variance is a difference of like numbers: onnxruntime and
    # anydim are 4e-4 and 5e-4 from float64 there
}


@pytest.mark.slow
@pytest.mark.parametrize("program", NEEDS)
def test_results_are_equal(program: str) -> None:
    for module in NEEDS[program]:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    theirs, ours = (ran(program, 1, on_anydim) for on_anydim in (False, True))
    assert (theirs["on"], ours["on"]) == ("onnxruntime", "anydim")
    assert difference(theirs["results"], ours["results"]) <= TOLERANCE[program]
