"""Parameters of generation in requests, checked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

import numpy

from anydim.base.errors import InputError, OptionError
from anydim.base.records import dataclass
from anydim.serving.constraints import AnswerForm
from anydim.serving.log_shares import LogShare, log_share
from anydim.serving.sampling import Choose, sampled
from anydim.serving.server.decoders import ServedDecoder
from anydim.serving.server.json_bodies import short_json
from anydim.sizes import LARGEST

MOST_TOKENS = 1 << 20  # of a sequence
MOST_TOP = 20  # likeliest tokens with their log-probabilities
MOST_CHOICES = 16  # answers to a prompt
_STOPS = 16
_SEEDS = 1 << 63
_MOST_BIASES = 1024
_NUMBERS = (
    ("temperature", 0.0), ("top_p", 1.0), ("min_p", 0.0), ("repetition_penalty", 1.0),
    ("presence_penalty", 0.0), ("frequency_penalty", 0.0),
)  # fmt: skip


@dataclass(frozen=True)
class Generation:
    """Parameters of generation.

    Attributes:
        most: Most tokens of an answer; None: what fits.
        stop: Tokens that end a sequence, which are its last one.
        top: Log-probabilities of this number of likeliest tokens, and of the chosen one; None: of
            none.
        count: Answers to each prompt.
        sampler: Makes the function that chooses tokens, of a seed, a prompt and a form.
        form: The form of answers.
    """

    most: int | None
    stop: frozenset[int]
    priority: int
    deadline: float | None
    top: int | None
    count: int
    seed: int | None
    sampler: Callable[[int | None, Sequence[int], AnswerForm | None], Choose]
    form: AnswerForm | None = None

    def run(
        self, served: ServedDecoder, prompt: numpy.ndarray, number: int = 0,
        shares: list[LogShare] | None = None,
    ) -> AsyncGenerator[int, None]:  # fmt: skip
        """The tokens of answer `number` to a prompt, as they are chosen; the log-probabilities of
        each are in `shares` before it."""
        seed = None if self.seed is None else (self.seed + number) % _SEEDS
        choose = self.sampler(seed, prompt.tolist(), self.form)
        return served.decoder.generate(
            prompt, served.most_new(prompt, self.most), self.stop | served.stop,
            choose=choose if shares is None else _recording(choose, shares, self.top or 0),
            priority=self.priority, deadline=self.deadline, drafts=served.drafts(),
        )  # fmt: skip


def prompt_of(tokens: Sequence[int]) -> numpy.ndarray:
    """The tokens of a prompt as an array; raises InputError for numbers of no token."""
    try:
        return numpy.array(tokens, numpy.int64)
    except (OverflowError, ValueError):
        raise InputError("a token of the prompt is no number of a token") from None


def _recording(choose: Choose, shares: list[LogShare], top: int) -> Choose:
    def choose_and_record(logits: numpy.ndarray) -> int:
        token = choose(logits)
        shares.append(log_share(logits, token, top))
        return token

    return choose_and_record


def generation_of(
    given: Mapping[str, Any], most: int | None = None, vocabulary: int = LARGEST
) -> Generation:
    """The parameters of a request: max_tokens, temperature, top_p, top_k, min_p, penalties,
    logit_bias, seed, n, stop_token_ids, priority, and timeout in microseconds. `most` stands for
    max_tokens where there are none, `vocabulary` bounds tokens. Raises InputError."""
    many = whole(given, "max_tokens", 1, MOST_TOKENS, most)
    seed = whole(given, "seed", 0, _SEEDS - 1, None)
    stop = given.get("stop_token_ids")
    stop = [] if stop is None else [stop] if type(stop) is int else stop
    if not isinstance(stop, list) or len(stop) > _STOPS or any(type(e) is not int for e in stop):
        raise InputError(f"'stop_token_ids' is {str(stop)[:40]}", f"give at most {_STOPS} tokens")
    timeout = whole(given, "timeout", 1, 1 << 53, None)
    priority = whole(given, "priority", -(1 << 31), (1 << 31) - 1, 0)
    options: dict[str, Any] = {name: _number(given, name, usual) for name, usual in _NUMBERS}
    options["top_k"] = whole(given, "top_k", 0, MOST_TOKENS, 0)
    options["logit_bias"] = _biases(given.get("logit_bias"))
    temperature, top_p = options.pop("temperature"), options.pop("top_p")

    def sampler(seed: int | None, prompt: Sequence[int], form: AnswerForm | None) -> Choose:
        return sampled(temperature, top_p, seed, prompt=prompt, form=form, vocabulary=vocabulary,
                       **options)  # fmt: skip

    try:
        sampler(seed, (), None)
    except OptionError as error:
        raise InputError(error.problem, error.hint) from None
    return Generation(
        many, frozenset(stop), int(priority or 0), None if timeout is None else timeout / 1e6,
        None, whole(given, "n", 1, MOST_CHOICES, 1) or 1, seed, sampler,
    )  # fmt: skip


def _biases(given: Any) -> dict[int, float] | None:
    """Addends of logits by token, whose keys JSON writes as strings."""
    if given is None:
        return None
    if not isinstance(given, dict) or len(given) > _MOST_BIASES:
        raise InputError(f"'logit_bias' is {short_json(given)}",
                         f"give an object, at most {_MOST_BIASES} tokens and numbers")  # fmt: skip
    made = {}
    for token in given:
        if not (token.isdecimal() and token.isascii() and len(token) < 10):
            raise InputError(f"'logit_bias' has the token {token[:40]!r}", "give its number")
        made[int(token)] = _number(given, token, 0.0, "logit_bias")
    return made


def whole(
    given: Mapping[str, Any], name: str, low: int, high: int, default: int | None
) -> int | None:
    """An integer of a request; raises InputError for another value."""
    found = given.get(name)
    if found is None:
        return default
    if type(found) is not int or not low <= found <= high:
        raise InputError(f"'{name}' is {str(found)[:40]}", f"give an integer, {low} to {high}")
    return found


def flag(given: Mapping[str, Any], name: str) -> bool:
    """A parameter that is true or false, false without one; raises InputError for another value."""
    found = given.get(name)
    if found is not None and type(found) is not bool:
        raise InputError(f"'{name}' is {short_json(found)}, expected true or false")
    return found is True


def _number(given: Mapping[str, Any], name: str, default: float, shown: str = "") -> float:
    found = given.get(name)
    if found is None:
        return default
    if type(found) not in (int, float):
        raise InputError(f"'{shown or name}' is {str(found)[:40]}, expected a number")
    try:
        return float(found)
    except OverflowError:
        raise InputError(f"'{shown or name}' is too large") from None
