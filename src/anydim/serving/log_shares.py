"""Log-probabilities of tokens, by their logits."""

from __future__ import annotations

import numpy

from anydim.base.records import dataclass


@dataclass(frozen=True)
class LogShare:
    """The log-probability of a chosen token, and those of the likeliest ones, likeliest first."""

    token: int
    value: float
    top: tuple[tuple[int, float], ...]


def log_share(logits: numpy.ndarray, token: int, top: int) -> LogShare:
    """The log-probability of a token among all, before bias, penalties and temperature."""
    values = logits.astype(numpy.float64)
    values -= values.max()
    values -= numpy.log(numpy.exp(values).sum())
    top = min(top, len(values))
    likeliest = numpy.argpartition(-values, top - 1)[:top] if top else numpy.empty(0, numpy.int64)
    order = sorted(map(int, likeliest), key=lambda each: (-values[each], each))
    return LogShare(token, float(values[token]), tuple((e, float(values[e])) for e in order))
