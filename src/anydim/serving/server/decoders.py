"""The decoders of a server: sequences of requests, checked and begun."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy

from anydim.base.errors import InputError, OptionError, UserError
from anydim.base.records import dataclass
from anydim.base.text import quote_list, suggestion
from anydim.serving.decoding import CHUNK, POSITIONS, AsyncDecoder
from anydim.serving.sampling import Choose, sampled

MOST_TOKENS = 1 << 20  # of a sequence
DEFAULT_TOKENS = 16
_STOPS = 16


@dataclass(frozen=True)
class ServedDecoder:
    """A served decoder: its name, and the path of its file."""

    name: str
    path: Path
    decoder: AsyncDecoder


@dataclass(frozen=True)
class Generation:
    """Parameters of generation; a sequence ends after a token in `stop`."""

    most: int
    choose: Choose
    stop: frozenset[int]
    priority: int
    deadline: float | None

    def run(self, decoder: AsyncDecoder, tokens: Sequence[int]) -> AsyncGenerator[int, None]:
        """The tokens of a prompt's sequence, as they are chosen."""
        try:
            prompt = numpy.array(tokens, numpy.int64)
        except (OverflowError, ValueError):
            raise InputError("a token of the prompt is no number of a token") from None
        return decoder.generate(
            prompt, self.most, self.stop, choose=self.choose, priority=self.priority,
            deadline=self.deadline,
        )  # fmt: skip


def warm_up(model: Any) -> None:
    """Run a step with a chunk of a prompt, so that its memory is there; `model` is what
    `ad.cached(..., ragged=)` returned."""
    row = model.join()
    try:
        for count in (CHUNK, 1):
            tokens = numpy.zeros(count, numpy.int64)
            given: Any = tokens
            if len(model.row_inputs) > 1:
                given = {name: numpy.arange(count) if name == POSITIONS else tokens
                         for name in model.row_inputs}  # fmt: skip
            model.forget(row)
            with suppress(UserError):  # it takes fewer tokens
                model.step({row: given})
    finally:
        model.leave(row)


def generation_of(given: Mapping[str, Any]) -> Generation:
    """The parameters of a request: max_tokens, temperature, top_p, seed, stop_token_ids, priority,
    and timeout in microseconds. Raises InputError for wrong ones."""
    most = _whole(given, "max_tokens", 1, MOST_TOKENS, DEFAULT_TOKENS)
    seed = _whole(given, "seed", 0, (1 << 63) - 1, None)
    temperature, top_p = _number(given, "temperature", 0.0), _number(given, "top_p", 1.0)
    stop = given.get("stop_token_ids")
    stop = [] if stop is None else [stop] if type(stop) is int else stop
    if not isinstance(stop, list) or len(stop) > _STOPS or any(type(e) is not int for e in stop):
        raise InputError(f"'stop_token_ids' is {str(stop)[:40]}", f"give at most {_STOPS} tokens")
    timeout = _whole(given, "timeout", 1, 1 << 53, None)
    priority = _whole(given, "priority", -(1 << 31), (1 << 31) - 1, 0)
    try:
        choose = sampled(temperature, top_p, seed)
    except OptionError as error:
        raise InputError(error.problem, error.hint) from None
    return Generation(
        int(most or DEFAULT_TOKENS), choose, frozenset(stop), int(priority or 0),
        None if timeout is None else timeout / 1e6,
    )  # fmt: skip


def find(known: Mapping[str, ServedDecoder], name: Any) -> ServedDecoder:
    """Return the decoder with a name, or the only one for None; raises OptionError."""
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    if not isinstance(name, str):
        raise InputError(f"'model' is {name!r}, expected a name")
    if name not in known:
        hint = suggestion(name, known) or f"decoders: {quote_list(known) or 'none'}"
        raise OptionError(f"there is no decoder '{name}'", hint)
    return known[name]


def _whole(
    given: Mapping[str, Any], name: str, low: int, high: int, default: int | None
) -> int | None:
    found = given.get(name)
    if found is None:
        return default
    if type(found) is not int or not low <= found <= high:
        raise InputError(f"'{name}' is {str(found)[:40]}", f"give an integer, {low} to {high}")
    return found


def _number(given: Mapping[str, Any], name: str, default: float) -> float:
    found = given.get(name)
    if found is None:
        return default
    if type(found) not in (int, float):
        raise InputError(f"'{name}' is {str(found)[:40]}, expected a number")
    try:
        return float(found)
    except OverflowError:
        raise InputError(f"'{name}' is too large") from None
