"""Cases whose reference is the evaluator that comes with the standard, one node at a time."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from anydim.base.dtypes import float32
from anydim.sizes import as_size
from tests.ops.case import Case

N, M = as_size("n"), as_size("m")


def standard(
    operator: str, *before: Any, after: tuple[Any, ...] = (), opset: int = 22, domain: str = "",
    results: int = 1, **attributes: Any,
):  # fmt: skip
    """What the standard says; `before` and `after` are inputs around those of the case, and may be
    functions of n and m."""

    @functools.lru_cache(maxsize=1)
    def evaluator(count: int):
        names = [f"x{number}" for number in range(count)]
        outputs = [f"y{number}" for number in range(results)]
        node = helper.make_node(operator, names, outputs, domain=domain, **attributes)
        graph = helper.make_graph(
            [node], "one", [onnx.ValueInfoProto(name=name) for name in names],
            [onnx.ValueInfoProto(name=name) for name in outputs],
        )  # fmt: skip
        versions = [helper.make_opsetid("", opset)]
        versions += [helper.make_opsetid(domain, 1)] if domain else []
        return ReferenceEvaluator(helper.make_model(graph, opset_imports=versions))

    def reference(*arrays: Any, n: int, m: int) -> Any:
        def value(given: Any) -> Any:
            return np.asarray(given(n, m) if callable(given) else given)

        whole = [*map(value, before), *arrays, *map(value, after)]
        if any(array.size == 0 for array in arrays):
            return 0.0 if results == 1 else (0.0,) * results
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            feeds = {f"x{number}": array for number, array in enumerate(whole)}
            made = tuple(evaluator(len(whole)).run(None, feeds))
        return made if results > 1 else made[0]

    return reference


def sampled(mode: str, padding: str, corners: bool) -> Case:
    to = standard("GridSample", mode=mode, padding_mode=padding, align_corners=int(corners))
    attributes = {"mode": mode, "padding": padding, "corners": corners}
    return Case(("float32[m, 2, n + 2, 5]", "float32[m, n, 3, 2]"), to, attributes)


def deformed(biased: bool, masked: bool) -> Case:
    inputs = ["float32[m, 4, 5, 6]", "float32[3, 2, 2, 2]", "float32[m, 16, 4, 5]"]
    to = standard("DeformConv", group=1, offset_group=2, kernel_shape=[2, 2])
    inputs[1] = "float32[3, 4, 2, 2]"
    inputs += ["float32[3]"] if biased else []
    inputs += ["float32[m, 8, 4, 5]"] if masked else []
    attributes = {"offset_groups": 2, "biased": biased, "masked": masked}
    return Case(tuple(inputs), to, attributes)


def transformed(inverse: bool, onesided: bool, parts: int, length: Any = None) -> Case:
    """Along axis 1 of [m, n, parts]."""
    size = N if length is None else length
    if inverse and onesided and length is None:
        size = 2 * (N - 1)

    def after(n: int, m: int) -> Any:
        return np.int64(as_size(size).evaluate({"n": n, "m": m}))

    to = standard("DFT", after=(after, np.int64(1)), inverse=int(inverse), onesided=int(onesided))

    def reference(x: Any, n: int, m: int) -> Any:
        return to(x, n=n, m=m) if after(n, m) > 0 else 0.0

    attributes = {"length": size, "axis": 1, "inverse": inverse, "onesided": onesided}
    return Case((f"float32[m, n, {parts}]",), reference, attributes)


CASES: dict[str, list[Case]] = {
    "grid_sample": [
        sampled("linear", "zeros", False), sampled("linear", "border", True),
        sampled("nearest", "reflection", False), sampled("cubic", "reflection", True),
        sampled("cubic", "zeros", False), sampled("nearest", "zeros", True),
    ],
    "affine_grid": [
        Case(("float32[n, 2, 3]",), standard("AffineGrid", after=(
            lambda n, m: np.int64([n, 1, m + 1, 4]),), align_corners=int(corners)),
            {"sizes": (M + 1, 4), "corners": corners})
        for corners in (False, True)
    ],
    "roi_align": [
        Case(("float32[3, 2, 6, 7]", "float32[n, 4]", "int64[n]"), standard(
            "RoiAlign", output_height=2, output_width=3, sampling_ratio=2, spatial_scale=0.5,
            coordinate_transformation_mode=half, mode=mode),
            {"sizes": (2, 3), "samples": 2, "scale": 0.5, "half_pixel": half == "half_pixel",
             "largest": mode == "max"}, high=3)
        for half, mode in (("half_pixel", "avg"), ("output_half_pixel", "avg"))
    ],
    "deform_conv": [deformed(False, False), deformed(True, True)],
    "dft": [
        transformed(False, False, 2), transformed(False, True, 1), transformed(True, False, 2),
        transformed(True, True, 2), transformed(False, False, 1, 2 * N + 3),
        transformed(False, False, 2, N // 2 + 1), transformed(True, True, 2, 2 * N + 1),
    ],
    "stft": [
        Case(("float32[m, 3*n + 4, 1]", "float32[n + 1]"), lambda x, w, n, m: standard(
            "STFT", onesided=1)(x, np.int64(2), w, np.int64(n + 1), n=n, m=m),
            {"step": 2, "length": N + 1, "onesided": True}),
        Case(("float32[m, n + 4, 2]",), lambda x, n, m: standard("STFT", onesided=0)(
            x, np.int64(1), np.ones(3), np.int64(3), n=n, m=m),
            {"step": 1, "length": 3, "onesided": False}),
    ],
    "mel_weights": [
        Case(("int64[]", "float32[]", "float32[]"), standard(
            "MelWeightMatrix", lambda n, m: np.int64(m + 3), lambda n, m: np.int64(2 * n + 8)),
            {"bins": M + 3, "length": 2 * N + 8}, low=10, high=20),
    ],
    "cosine_window": [
        Case((), standard(name, lambda n, m: np.int64(n + 2), periodic=int(periodic)),
             {"size": N + 2, "weights": weights, "periodic": periodic, "dtype": float32})
        for name, weights in (
            ("HannWindow", (0.5, 0.5, 0.0)), ("BlackmanWindow", (0.42, 0.5, 0.08)))
        for periodic in (True, False)
    ],
}  # fmt: skip
