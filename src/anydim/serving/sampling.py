"""Functions that choose a token by logits, for `Decoder.generate`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from sys import float_info
from typing import Any

import numpy

from anydim.base.errors import OptionError
from anydim.base.user_values import ABOVE_ZERO, number_within, short_repr, whole_within
from anydim.serving.constraints import AnswerForm
from anydim.sizes import LARGEST

Choose = Callable[[numpy.ndarray], int]
_HIGHEST_BIAS = 1e6
_WORD = (1 << 64) - 1


def largest(logits: numpy.ndarray) -> int:
    """The token with the largest logit: greedy decoding."""
    return int(logits.argmax())


def sampled(
    temperature: float, top_p: float = 1.0, seed: int | None = None, *, top_k: int = 0,
    min_p: float = 0.0, repetition_penalty: float = 1.0,
    logit_bias: Mapping[int, float] | None = None, prompt: Iterable[int] = (),
    presence_penalty: float = 0.0, frequency_penalty: float = 0.0,
    form: AnswerForm | None = None, vocabulary: int = LARGEST,
) -> Choose:  # fmt: skip
    """A function that draws a token with the probabilities of its logits, for one sequence.

    Bias and penalty change logits first; then come temperature, top_k, min_p and top_p. The token
    is the first, in their order, where the sum of kept shares exceeds the next of
    `uniform_numbers` times their total; exported programs draw the same ones.

    Args:
        temperature: Divides logits. 0: the largest one is chosen.
        top_p: Draws from the fewest likeliest tokens whose probabilities sum to this.
        seed: Of the draws. None: a new one.
        top_k: Draws from this number of likeliest tokens. 0: from all.
        min_p: Draws from tokens of at least this share of the likeliest one's probability
            (Nguyen et al. 2024, arXiv:2407.01082).
        repetition_penalty: Divides positive logits of tokens that were there before, and multiplies
            negative ones (Keskar et al. 2019, arXiv:1909.05858).
        logit_bias: Addends of logits by token.
        prompt: Tokens that were there before, for `repetition_penalty`.
        presence_penalty: Subtrahend of logits of tokens that were chosen before.
        frequency_penalty: The same, for each time.
        form: The form of the answer: other tokens have no probability.
        vocabulary: Tokens of the model; others have no bias.

    Raises:
        OptionError: An argument is out of its range.
    """
    most, penalty = float_info.max, _HIGHEST_BIAS
    hint = "give a number of at least 0"
    temperature = number_within("temperature", temperature, 0, most, hint)
    top_p = number_within("top_p", top_p, ABOVE_ZERO, 1, "give a number above 0, at most 1")
    min_p = number_within("min_p", min_p, 0, 1, "give a number of 0 to 1")
    hint = "give a number above 0"
    repeated = number_within("repetition_penalty", repetition_penalty, ABOVE_ZERO, most, hint)
    hint = "give a number, such as 0.5"
    present = number_within("presence_penalty", presence_penalty, -penalty, penalty, hint)
    frequent = number_within("frequency_penalty", frequency_penalty, -penalty, penalty, hint)
    whole_within("top_k", top_k, 0, LARGEST, "give a number of tokens; 0: all")
    if seed is not None:
        seed = whole_within("seed", seed, 0, _WORD, "give an integer of at least 0")
    change = _LogitChange(repeated, _biases(logit_bias, vocabulary), present, frequent, prompt)
    draw = largest if temperature == 0 else _drawing(temperature, top_p, top_k, min_p, seed)
    constraint = None if form is None else form.begin()
    if not change.is_any and constraint is None:
        return draw

    def choose(logits: numpy.ndarray) -> int:
        changed = change(logits)
        token = draw(changed if constraint is None else constraint.allow(changed))
        change.note(token)
        if constraint is not None:
            constraint.note(token)
        return token

    return choose


class _LogitChange:
    """Adds biases, and applies penalties of tokens that were there before."""

    def __init__(
        self, repetition: float, biases: Mapping[int, float], presence: float, frequency: float,
        prompt: Iterable[int],
    ) -> None:  # fmt: skip
        self._repetition, self._presence, self._frequency = repetition, presence, frequency
        self._seen = set(map(int, prompt)) if repetition != 1 else set()
        self._counts: dict[int, int] = {}  # of chosen tokens
        self._tokens = numpy.array(list(biases), numpy.int64)
        self._addends = numpy.array(list(biases.values()), numpy.float64)
        self.is_any = bool(biases) or repetition != 1 or presence != 0 or frequency != 0

    def note(self, token: int) -> None:
        """Count a chosen token."""
        self._counts[token] = self._counts.get(token, 0) + 1
        self._seen.add(token)

    def __call__(self, logits: numpy.ndarray) -> numpy.ndarray:
        made = logits.astype(numpy.float64)
        count = made.shape[-1]
        known = self._tokens < count
        made[self._tokens[known]] += self._addends[known]
        if self._counts and (self._presence or self._frequency):
            tokens = numpy.fromiter(self._counts, numpy.int64)
            times = numpy.fromiter(self._counts.values(), numpy.float64)
            made[tokens] -= self._presence + self._frequency * times
        if self._repetition != 1 and self._seen:
            before = numpy.fromiter((t for t in self._seen if t < count), numpy.int64)
            own = made[before]
            penalty = self._repetition
            made[before] = numpy.where(own > 0, own / penalty, own * penalty)
        return made


def _biases(given: Any, vocabulary: int) -> dict[int, float]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise OptionError(f"logit_bias is {short_repr(given)}",
                          "give a mapping from tokens to numbers")  # fmt: skip
    made, last = {}, vocabulary - 1
    for token, value in given.items():
        number = whole_within("a token of logit_bias", token, 0, last, f"tokens are 0 to {last}")
        most, name = _HIGHEST_BIAS, f"token {number} of logit_bias"
        made[number] = number_within(name, value, -most, most, f"give -{most:g} to {most:g}")
    return made


def _drawing(
    temperature: float, top_p: float, top_k: int, min_p: float, seed: int | None
) -> Choose:
    uniform = uniform_numbers(int.from_bytes(os.urandom(8), "little") if seed is None else seed)

    def choose(logits: numpy.ndarray) -> int:
        given = logits.astype(numpy.float64)
        shares = numpy.exp((given - given.max()) / temperature)
        if 0 < top_k < len(shares):
            shares[shares < numpy.partition(shares, -top_k)[-top_k]] = 0
        if min_p > 0:
            shares[shares < min_p] = 0  # the likeliest one's is 1
        if top_p < 1:
            order = numpy.argsort(-shares, kind="stable")
            sums = numpy.cumsum(shares[order])
            shares[order[int(numpy.searchsorted(sums, top_p * sums[-1])) + 1 :]] = 0
        ends = numpy.cumsum(shares)
        token = int(numpy.searchsorted(ends, next(uniform) * ends[-1], side="right"))
        return token if token < len(shares) else largest(logits)  # logits that are no numbers

    return choose


def uniform_numbers(seed: int) -> Iterator[float]:
    """Numbers of [0, 1): SplitMix64 (Steele et al. 2014), its upper 53 bits.

    Exported programs draw with the same numbers: `deploy/export/templates/language/sequence.c.in`,
    `deploy/web/templates/language/model.js.in`.
    """
    state = seed
    while True:
        state = state + 0x9E3779B97F4A7C15 & _WORD
        word = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _WORD
        word = (word ^ word >> 27) * 0x94D049BB133111EB & _WORD
        yield ((word ^ word >> 31) >> 11) / 2**53
