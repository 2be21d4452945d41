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


def optimiser(name: str, rows: int, results: int, renamed: dict[str, str], **given: Any) -> Case:
    """The step with a rate, a count and `rows` tensors."""
    domain = "ai.onnx.preview.training"
    theirs = {renamed[key]: value for key, value in given.items() if key in renamed}
    if "nesterov" in given or name == "Momentum":
        theirs["mode"] = "nesterov" if given.get("nesterov") else "standard"
    to = standard(name, opset=22, domain=domain, results=results, **theirs)
    inputs = ("float32[]", "int64[]", *["float32[n, 3]"] * rows)
    return Case(inputs, to, given, high=3)


STEPS = {"epsilon": "epsilon", "norm": "norm_coefficient", "alpha": "alpha", "beta": "beta",
         "decay": "decay_factor", "shrink": "norm_coefficient_post"}  # fmt: skip


def philox(count: int, seed: int) -> Any:
    """The two words of each element, by Python's integers."""
    words = []
    for number in range(count):
        a, b, key = number & 0xFFFFFFFF, number >> 32, seed
        for _ in range(10):
            product = a * 0xD256D193
            a, b = (product >> 32) ^ b ^ key, product & 0xFFFFFFFF
            key = (key + 0x9E3779B9) & 0xFFFFFFFF
        words.append((a, b))
    return np.array(words, np.float64).reshape(count, 2)


def uniform(low: float, high: float, seed: int) -> Any:
    def reference(n: int, m: int) -> Any:
        bits = np.floor(philox(n * 3, seed)[:, 0] / 256) / 2**24
        return (low + bits * (high - low)).reshape(n, 3)

    return reference


def normal(mean: float, scale: float, seed: int) -> Any:
    def reference(n: int, m: int) -> Any:
        a, b = philox(n * m, seed).T
        made = np.sqrt(-2 * np.log((a + 1) / 2**32)) * np.cos(2 * np.pi * b / 2**32)
        return (mean + scale * made).reshape(n, m)

    return reference


def resized(mode: str, sizes: Any, inputs: tuple[str, ...] = (), **given: Any) -> Case:
    """x[3, n + 1, 6] with its last axes at other sizes."""
    modes = {"crop": "tf_crop_and_resize"}
    theirs = {"mode": mode, "antialias": int(given.get("antialias", False))}
    coordinates = given.get("coordinates", "half_pixel")
    theirs["coordinate_transformation_mode"] = modes.get(coordinates, coordinates)

    def reference(x: Any, *rest: Any, n: int, m: int) -> Any:
        shape = [3, *(as_size(size).evaluate({"n": n, "m": m}) for size in sizes)]
        part = rest[-1] if coordinates == "crop" else np.zeros(0, np.float32)
        if 0 in shape:
            return 0.0
        return to_sized(x, part, shape)

    def to_sized(x: Any, part: Any, shape: list[int]) -> Any:
        node = helper.make_node("Resize", ["x", "p", "", "s"], ["y"], **theirs)
        graph = helper.make_graph(
            [node], "one", [onnx.ValueInfoProto(name=name) for name in "xps"],
            [onnx.ValueInfoProto(name="y")],
        )  # fmt: skip
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
        return ReferenceEvaluator(proto).run(None, {"x": x, "p": part, "s": np.int64(shape)})[0]

    attributes = {"sizes": (3, *sizes), "mode": mode, **given}
    return Case(("float32[3, n + 1, 6]", *inputs), reference, attributes)


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
        Case((), standard(name, lambda n, m: np.int64(n), periodic=int(periodic)),
             {"size": N, "weights": weights, "periodic": periodic, "dtype": float32})
        for name, weights in (
            ("HannWindow", (0.5, 0.5, 0.0)), ("BlackmanWindow", (0.42, 0.5, 0.08)))
        for periodic in (True, False)
    ],
    "adagrad": [optimiser("Adagrad", 3, 2, STEPS, decay=0.1, epsilon=1e-3, norm=0.01)],
    "adam": [optimiser("Adam", 4, 3, STEPS, alpha=0.8, beta=0.9, epsilon=1e-3, norm=0.01,
                       shrink=0.02)],
    "momentum": [
        optimiser("Momentum", 3, 2, STEPS, alpha=0.9, beta=0.5, norm=0.01, nesterov=nesterov)
        for nesterov in (False, True)
    ],
    "random_uniform": [
        Case((), uniform(-1.0, 3.0, 7), {"shape": (N, 3), "low": -1.0, "high": 3.0, "seed": 7}),
    ],
    "random_normal": [
        Case((), normal(1.0, 2.0, 9), {"shape": (N, M), "mean": 1.0, "scale": 2.0, "seed": 9}),
    ],
    "reverse_sequence": [
        Case(("float32[9, n, 2]", "int64[n]"), standard("ReverseSequence"), high=10),
        Case(("float32[n, 9]", "int64[n]"), standard("ReverseSequence", time_axis=1, batch_axis=0),
             {"time": 1, "batch": 0}, high=10),
    ],
    "rotary_embedding": [
        Case(("float32[n, 2, m, 6]", "float32[n, m, 3]", "float32[n, m, 3]"),
             standard("RotaryEmbedding", opset=23, interleaved=int(interleaved)),
             {"interleaved": interleaved})
        for interleaved in (False, True)
    ] + [
        Case(("float32[n, 2, m, 7]", "float32[n, m, 2]", "float32[n, m, 2]"), standard(
            "RotaryEmbedding", opset=23, rotary_embedding_dim=4, interleaved=int(interleaved)),
            {"width": 4, "interleaved": interleaved})
        for interleaved in (False, True)
    ] + [
        Case(("float32[n, 2, m, 2, 3]", "float32[n, m, 3]", "float32[n, m, 3]"),
             lambda x, cos, sin, n, m: np.stack([
                 cos[:, None] * x[:, :, :, 0] - sin[:, None] * x[:, :, :, 1],
                 sin[:, None] * x[:, :, :, 0] + cos[:, None] * x[:, :, :, 1]], 3)),
    ],
    "fold": [
        Case(("float32[n, m, 2, 3, 4, 5]",), lambda x, n, m: standard("Col2Im", strides=[1, 2])(
            x.reshape(n, m * 6, 20), np.int64([5, 11]), np.int64([2, 3]), n=n, m=m),
            {"sizes": (5, 11), "strides": (1, 2)}),
    ],
}  # fmt: skip

MORE: dict[str, list[Case]] = {
    "max_pool": [
        Case(
            ("float32[2, n + 1, m + 5, 6]",),
            standard(
                "MaxPool",
                results=2,
                kernel_shape=[3, 2],
                strides=[2, 1],
                pads=[1, 0, 0, 1],
                storage_order=int(columns),
            ),
            {
                "kernel": (3, 2),
                "strides": (2, 1),
                "pads": (1, 0, 0, 1),
                "indices": True,
                "columns_first": columns,
            },
        )
        for columns in (False, True)
    ],
    "resize": [
        resized("linear", (N // 2 + 1, 4), antialias=True),
        resized("cubic", (N + 3, 2), antialias=True),
        resized("linear", (5, 3), ("float32[6]",), coordinates="crop", outside=0.0),
    ],
}
"""Further cases of operators that have some elsewhere."""
