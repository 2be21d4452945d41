"""Frequencies of rotary positions, with the scalings of `config.json` (transformers' names).

default     theta ** (-2 i / width)
linear      divided by `factor` (kaiokendev 2023)
dynamic     as default within `max_position_embeddings`, the most tokens here (bloc97 2023)
llama3      divided by `factor` for long waves, interpolated for middle ones (Llama 3.1)
yarn        divided by `factor` but for short waves, with a ramp (Peng et al. 2023,
            arXiv:2309.00071)
longrope    divided by a list of factors (Ding et al. 2024, arXiv:2402.13753): the long ones
            where sequences may be longer than `original_max_position_embeddings`
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy

from anydim.base.errors import ModelError
from anydim.base.text import quote_list
from anydim.serving.language_models.decoder_spec import Rope

Scaled = tuple[numpy.ndarray, float]


def rope_of(
    given: Mapping[str, Any], theta: float, width: int, context: int, interleaved: bool = False
) -> Rope:
    """The rotation of heads whose first `width` elements are rotated.

    Args:
        given: Parameters of the scaling: `rope_type` (or `type`) and those of the type.
        theta: Base of the frequencies.
        width: Elements of a head that are rotated.
        context: Most tokens of a sequence.
        interleaved: Pairs are neighbours.

    Raises:
        ModelError: Unknown type, or a parameter is missing.
    """
    kind = str(given.get("rope_type", given.get("type", "default")))
    kind = {"su": "longrope"}.get(kind, kind)
    if kind not in _SCALINGS:
        hint = f"known are {quote_list(_SCALINGS)}"
        raise ModelError(f"rotary positions of type '{kind}' are not supported", hint)
    if width < 2 or width % 2:
        raise ModelError(f"rotary positions of {width} elements, expected pairs")
    plain = theta ** (-numpy.arange(0, width, 2, dtype=numpy.float64) / width)
    try:
        frequencies, magnitude = _SCALINGS[kind](given, plain, theta, context)
    except KeyError as missing:
        raise ModelError(f"rotary positions of type '{kind}' without {missing}") from None
    if frequencies.shape != plain.shape:
        raise ModelError(f"{frequencies.size} frequencies for {plain.size} pairs of elements")
    return Rope(tuple(map(float, frequencies)), float(magnitude), interleaved)


def _default(given: Mapping[str, Any], plain: numpy.ndarray, theta: float, context: int) -> Scaled:
    return plain, 1.0


def _linear(given: Mapping[str, Any], plain: numpy.ndarray, theta: float, context: int) -> Scaled:
    return plain / given["factor"], 1.0


def _llama3(given: Mapping[str, Any], plain: numpy.ndarray, theta: float, context: int) -> Scaled:
    factor, whole = given["factor"], given["original_max_position_embeddings"]
    low, high = given["low_freq_factor"], given["high_freq_factor"]
    turns = whole * plain / (2 * math.pi)
    share = numpy.clip((turns - low) / (high - low), 0, 1)
    return (1 - share) * plain / factor + share * plain, 1.0


def _yarn(given: Mapping[str, Any], plain: numpy.ndarray, theta: float, context: int) -> Scaled:
    whole = given["original_max_position_embeddings"]
    factor, width = given.get("factor") or context / whole, 2 * len(plain)

    def place(turns: float) -> float:
        """The pair whose wave makes this number of turns within the original context."""
        return width * math.log(whole / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = place(given.get("beta_fast") or 32), place(given.get("beta_slow") or 1)
    if given.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    high = high + 0.001 if low == high else high
    ramp = numpy.clip((numpy.arange(len(plain)) - low) / (high - low), 0, 1)
    magnitude = given.get("attention_factor")
    if magnitude is None:
        first, second = given.get("mscale"), given.get("mscale_all_dim")
        magnitude = _mscale(factor, 1.0)
        if first and second:
            magnitude = _mscale(factor, first) / _mscale(factor, second)
    return ramp * plain / factor + (1 - ramp) * plain, magnitude


def _mscale(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _longrope(given: Mapping[str, Any], plain: numpy.ndarray, theta: float, context: int) -> Scaled:
    whole = given["original_max_position_embeddings"]
    factors = given["long_factor" if context > whole else "short_factor"]
    factor = given.get("factor") or given["max_position_embeddings"] / whole
    magnitude = given.get("attention_factor")
    if magnitude is None:
        magnitude = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(whole))
    return plain / numpy.array(factors, numpy.float64), magnitude


_SCALINGS: dict[str, Callable[[Mapping[str, Any], numpy.ndarray, float, int], Scaled]] = {
    "default": _default, "linear": _linear, "dynamic": _default, "llama3": _llama3, "yarn": _yarn,
    "longrope": _longrope,
}  # fmt: skip
