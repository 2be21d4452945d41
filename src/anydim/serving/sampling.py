"""Functions that choose a token by logits, for `Decoder.generate`."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

import numpy

from anydim.base.errors import OptionError

Choose = Callable[[numpy.ndarray], int]


def largest(logits: numpy.ndarray) -> int:
    """The token with the largest logit: greedy decoding."""
    return int(logits.argmax())


def sampled(temperature: float, top_p: float = 1.0, seed: int | None = None) -> Choose:
    """A function that draws a token with the probabilities of its logits.

    Args:
        temperature: Divides logits. 0: the largest one is chosen.
        top_p: Draws from the fewest likeliest tokens whose probabilities sum to this.
        seed: Of the draws. None: a new one.

    Raises:
        OptionError: An argument is out of its range.
    """
    if not (isfinite(temperature) and temperature >= 0):
        raise OptionError(f"temperature is {temperature}", "give a number of at least 0")
    if not 0 < top_p <= 1:
        raise OptionError(f"top_p is {top_p}", "give a number above 0, at most 1")
    if temperature == 0:
        return largest
    chance = numpy.random.default_rng(seed)

    def choose(logits: numpy.ndarray) -> int:
        scaled = logits.astype(numpy.float64) / temperature
        shares = numpy.exp(scaled - scaled.max())
        shares /= shares.sum()
        if top_p < 1:
            order = numpy.argsort(-shares, kind="stable")
            kept = order[: int(numpy.searchsorted(numpy.cumsum(shares[order]), top_p)) + 1]
            return int(chance.choice(kept, p=shares[kept] / shares[kept].sum()))
        return int(chance.choice(len(shares), p=shares))

    return choose
