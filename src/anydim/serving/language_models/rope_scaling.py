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
from collections.abc import Callable

import numpy

from anydim.base.errors import ModelError
from anydim.base.text import quote_list
from anydim.base.user_values import short_repr
from anydim.serving.language_models.config_fields import Config
from anydim.serving.language_models.decoder_spec import Rope

_WHOLE = "original_max_position_embeddings"
_DAMAGED = "the configuration is damaged"
Scaled = tuple[numpy.ndarray, float]


def rope_of(
    given: Config, theta: float, width: int, context: int, interleaved: bool = False
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
    kind = given.text("rope_type", "type", default="default")
    kind = {"su": "longrope"}.get(kind, kind)
    if kind not in _SCALINGS:
        hint = f"known are {quote_list(_SCALINGS)}"
        raise ModelError(f"rotary positions of type {short_repr(kind)} are not supported", hint)
    if width < 2 or width % 2:
        raise ModelError(f"rotary positions of {width} elements, expected pairs")
    if theta <= 1:
        raise ModelError(f"the base of rotary positions is {theta}", "expected a number above 1")
    plain = theta ** (-numpy.arange(0, width, 2, dtype=numpy.float64) / width)
    try:
        with numpy.errstate(all="ignore"):
            frequencies, magnitude = _SCALINGS[kind](given, plain, theta, context)
    except (ArithmeticError, ValueError) as error:  # logarithms and divisions
        raise ModelError(f"rotary positions of type '{kind}': {error}", _DAMAGED) from None
    return rope_from(frequencies, magnitude, plain.size, interleaved)


def rope_from(frequencies: numpy.ndarray, magnitude: float, pairs: int, interleaved: bool) -> Rope:
    """A rotation of pairs of elements. Raises ModelError for another number of frequencies, or
    for some that are not finite."""
    if frequencies.shape != (pairs,):
        raise ModelError(f"{frequencies.size} frequencies for {pairs} pairs of elements")
    if not (numpy.isfinite(frequencies).all() and math.isfinite(magnitude)):
        raise ModelError("frequencies of rotary positions are not finite", _DAMAGED)
    return Rope(tuple(map(float, frequencies)), float(magnitude), interleaved)


def _default(given: Config, plain: numpy.ndarray, theta: float, context: int) -> Scaled:
    return plain, 1.0


def _linear(given: Config, plain: numpy.ndarray, theta: float, context: int) -> Scaled:
    return plain / given.number("factor", above=0), 1.0


def _llama3(given: Config, plain: numpy.ndarray, theta: float, context: int) -> Scaled:
    factor, whole = given.number("factor", above=0), given.number(_WHOLE, above=0)
    low, high = given.number("low_freq_factor"), given.number("high_freq_factor")
    turns = whole * plain / (2 * math.pi)
    share = numpy.clip((turns - low) / (high - low), 0, 1)
    return (1 - share) * plain / factor + share * plain, 1.0


def _yarn(given: Config, plain: numpy.ndarray, theta: float, context: int) -> Scaled:
    whole = given.number(_WHOLE, above=0)
    factor = given.number("factor", default=0) or context / whole
    width = 2 * len(plain)

    def place(turns: float) -> float:
        """The pair whose wave makes this number of turns within the original context."""
        return width * math.log(whole / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = (
        place(given.number(name, default=0) or usual)
        for name, usual in (("beta_fast", 32), ("beta_slow", 1))
    )
    if given.flag("truncate", default=True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    high = high + 0.001 if low == high else high
    ramp = numpy.clip((numpy.arange(len(plain)) - low) / (high - low), 0, 1)
    magnitude = _magnitude(given)
    if magnitude is None:
        first, second = (given.number(name, default=0) for name in ("mscale", "mscale_all_dim"))
        magnitude = _mscale(factor, 1.0)
        if first and second:
            magnitude = _mscale(factor, first) / _mscale(factor, second)
    return ramp * plain / factor + (1 - ramp) * plain, magnitude


def _magnitude(given: Config) -> float | None:
    is_given = given.get("attention_factor") is not None
    return given.number("attention_factor") if is_given else None


def _mscale(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _longrope(given: Config, plain: numpy.ndarray, theta: float, context: int) -> Scaled:
    whole = given.number(_WHOLE, above=0)
    factors = given.numbers("long_factor" if context > whole else "short_factor")
    factor = given.number("factor", default=0) or given.number("max_position_embeddings") / whole
    magnitude = _magnitude(given)
    if magnitude is None:
        magnitude = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(whole))
    if len(factors) != len(plain):
        raise ModelError(f"{len(factors)} factors of {len(plain)} frequencies")
    return plain / numpy.array(factors), magnitude


_SCALINGS: dict[str, Callable[[Config, numpy.ndarray, float, int], Scaled]] = {
    "default": _default, "linear": _linear, "dynamic": _default, "llama3": _llama3, "yarn": _yarn,
    "longrope": _longrope,
}  # fmt: skip
