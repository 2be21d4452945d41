"""What the run of onnx.backend.test leaves out or looks at in another way, with the reason.

A pattern is a regular expression that fits the whole name of a test.
"""

from __future__ import annotations

EXCLUDED: dict[str, str] = {
    r"test_image_decoder_.*": "decoding of image files is no tensor computation",
}
"""Tests that are not run."""

RANDOM: dict[str, str] = {
    r"test_bernoulli.*": "numbers are random: only type and shape are compared",
    r"test_training_dropout(_default)?(_mask)?": "which elements are dropped is random",
}
"""Tests of which only the types and shapes of the results are compared."""

_HALF = (2.0**-9, 0.0, "two units of float16: steps in between are not rounded to float16 here")
TOLERANCES: dict[str, tuple[float, float, str]] = {
    r"test_dft_inverse.*": (0.0, 1e-6, "what is expected holds rounding errors where 0 is exact"),
    r"test_attention_4d.*_fp16.*": _HALF,
    r"test_causal_conv_with_state_silu_fp16.*": _HALF,
}
"""Tests that get (rtol, atol) of their own where those of onnx are smaller."""

KNOWN_AT_COMPILATION: dict[str, dict[int, str]] = {
    **{
        f"Reduce{kind}": {1: "the axes decide the rank of the result"}
        for kind in (
            "L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare",
        )
    },
    "Squeeze": {1: "the axes decide the rank of the result"},
    "Unsqueeze": {1: "the axes decide the rank of the result"},
    "CumSum": {1: "the number of an axis is an attribute since no size depends on it"},
    "CumProd": {1: "the number of an axis is an attribute since no size depends on it"},
    "DFT": {2: "the number of an axis is an attribute since no size depends on it"},
    "Pad": {3: "the numbers of axes are attributes"},
    "Slice": {3: "the numbers of axes are attributes"},
}  # fmt: skip
"""Operator -> inputs that stand for attributes: the test's contents are given as constants."""
