"""The sequences of a request to a decoder: prompts, tokens as they are chosen, and their texts."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar

from anydim.base.errors import InputError
from anydim.base.records import dataclass
from anydim.serving.log_shares import LogShare
from anydim.serving.pieces import Pieces
from anydim.serving.server.asgi import Gone, Receive, Scope, watch_disconnect
from anydim.serving.server.decoders import ServedDecoder
from anydim.serving.server.generation import Generation, prompt_of
from anydim.serving.server.json_bodies import short_json

MOST_SEQUENCES = 64  # of a request
_MOST_STOPS, _MOST_STOP = 4, 256  # texts, characters


@dataclass(frozen=True)
class Event:
    """What a token adds to a sequence: text, tokens with their log-probabilities, and why the
    sequence ended, if it did."""

    number: int
    text: str = ""
    tokens: tuple[int, ...] = ()
    shares: tuple[LogShare, ...] = ()
    reason: str | None = None

    def __add__(self, other: Event) -> Event:
        return Event(self.number, self.text + other.text, self.tokens + other.tokens,
                     self.shares + other.shares, other.reason)  # fmt: skip


class Sequences:
    """The sequences of a request, `generation.count` of each prompt; subclasses write them.

    Raises InputError for prompts that are too long, or have unknown tokens.
    """

    prefix: ClassVar[str]  # of the identifier of an answer
    kind: ClassVar[str]
    chunk_kind: ClassVar[str]

    def __init__(
        self, served: ServedDecoder, generation: Generation, tokenizer: Any,
        prompts: Sequence[Sequence[int]], head: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self._served, self._generation, self._tokenizer = served, generation, tokenizer
        self._prompts = [prompt_of(prompt) for prompt in prompts]
        self._most = [served.most_new(prompt, generation.most) for prompt in self._prompts]
        count = len(prompts) * generation.count
        if not 0 < count <= MOST_SEQUENCES:
            raise InputError(f"the request has {count} answers, expected 1 to {MOST_SEQUENCES}")
        stop = _stops(head.get("stop"))
        self._pieces = [
            None if tokenizer is None else Pieces(tokenizer, stop) for _ in range(count)
        ]
        self._shares: list[list[LogShare]] = [[] for _ in range(count)]
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._forget: Callable[[], object] = lambda: None  # ends the wait for the client to go
        self._made = 0  # tokens
        self._id, self._created = f"{self.prefix}-{uuid.uuid4().hex}", int(time.time())
        self.wants_usage = _wants_usage(head.get("stream_options"))

    # ---- tokens ----------------------------------------------------------------------------------

    async def events(self, scope: Scope, receive: Receive) -> AsyncIterator[Event]:
        """Yield tokens and ends of sequences as they occur. Raises errors of sequences, or Gone."""
        loop, left_over = asyncio.get_running_loop(), len(self._pieces)
        self._forget = watch_disconnect(scope, receive, lambda: self._queue.put_nowait(Gone()))
        self._tasks = [loop.create_task(self._generate(number)) for number in range(left_over)]
        while left_over:
            found = await self._queue.get()
            if isinstance(found, BaseException):
                raise found
            left_over -= found.reason is not None
            yield found

    async def _generate(self, number: int) -> None:
        prompt, choice = divmod(number, self._generation.count)
        shares = None if self._generation.top is None else self._shares[number]
        count = 0
        try:
            run = self._generation.run(self._served, self._prompts[prompt], choice, shares)
            async with aclosing(run) as made:
                async for token in made:
                    count += 1
                    if self._take(number, token, count >= self._most[prompt]):
                        return
        except Exception as error:
            self._queue.put_nowait(error)

    def _take(self, number: int, token: int, is_last: bool) -> bool:
        """Record a token; return whether it is the last one of its sequence."""
        self._made += 1
        is_stop = token in self._generation.stop or token in self._served.stop
        reason = "stop" if is_stop else "length" if is_last else None
        pieces, text = self._pieces[number], ""
        if pieces is not None:
            text = "" if is_stop else pieces.add(token)
            if reason is not None:
                text += pieces.end()
            if pieces.is_stopped:
                reason = "stop"
        share = self._shares[number].pop(0) if self._shares[number] else None
        shares = () if share is None or is_stop else (share,)
        self._queue.put_nowait(Event(number, text, (token,), shares, reason))
        return reason is not None

    async def close(self) -> None:
        """Cancel the sequences that still run."""
        self._forget()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ---- documents -------------------------------------------------------------------------------

    async def whole(self, events: AsyncIterator[Event]) -> dict[str, Any]:
        """Return the whole response, for requests without streaming."""
        found = [Event(number) for number in range(len(self._pieces))]
        async for event in events:
            found[event.number] += event
        return {**self._document(self.kind, list(map(self.choice, found))), **self._usage()}

    def choice(self, event: Event) -> dict[str, Any]:
        """A whole answer."""
        raise NotImplementedError

    def first(self) -> list[dict[str, Any]]:
        """Chunks before the first token."""
        return []

    def chunks(self, event: Event) -> list[dict[str, Any]]:
        """What a token adds, as chunks of a stream."""
        raise NotImplementedError

    def last(self) -> list[dict[str, Any]]:
        """Chunks behind the last token: the usage, if the request wants it."""
        if not self.wants_usage:
            return []
        return [{**self._document(self.chunk_kind, []), **self._usage()}]

    def _chunk(self, choice: Mapping[str, Any]) -> dict[str, Any]:
        made = self._document(self.chunk_kind, [choice])
        return {**made, "usage": None} if self.wants_usage else made

    def _document(self, kind: str, choices: Sequence[Any]) -> dict[str, Any]:
        return {
            "id": self._id, "object": kind, "created": self._created, "model": self._served.name,
            "choices": choices,
        }  # fmt: skip

    def _usage(self) -> dict[str, Any]:
        prompt = sum(map(len, self._prompts))
        return {"usage": {"prompt_tokens": prompt, "completion_tokens": self._made,
                          "total_tokens": prompt + self._made}}  # fmt: skip

    def _text_of(self, token: int) -> str:
        """The text of a token, special ones too; its number without a tokenizer."""
        if self._tokenizer is None:
            return f"token_id:{token}"
        return str(self._tokenizer.decode([token], skip_special_tokens=False))


def _wants_usage(options: Any) -> bool:
    wants = options.get("include_usage", False) if isinstance(options, dict) else options
    if wants is not None and type(wants) is not bool:
        raise InputError(f"'stream_options' is {short_json(options)}",
                         'give {"include_usage": true}')  # fmt: skip
    return wants is True


def _stops(given: Any) -> list[str]:
    found = [] if given is None else [given] if isinstance(given, str) else given
    is_right = isinstance(found, list) and len(found) <= _MOST_STOPS
    if not is_right or any(not isinstance(e, str) or not 0 < len(e) <= _MOST_STOP for e in found):
        raise InputError(f"'stop' is {str(given)[:40]}",
                         f"give at most {_MOST_STOPS} texts")  # fmt: skip
    return list(found)


_FORM = "give 'response_format', or 'structured_outputs' with json, regex or grammar"
_FORMS = ("guided_json", "guided_regex", "guided_grammar", "guided_choice", "json_schema", "regex",
          "grammar", "ebnf")  # fmt: skip
_HINTS = dict.fromkeys(_FORMS, _FORM)
_OTHERS: Mapping[str, Any] = {
    **dict.fromkeys(_FORMS), "min_tokens": 0, "ignore_eos": False, "use_beam_search": False,
    "bad_words": [], "allowed_token_ids": None, "prompt_logprobs": None,
    "truncate_prompt_tokens": None, "include_stop_str_in_output": False, "logits_processors": None,
    "skip_special_tokens": True, "n_predict": None, "mirostat": 0, "typical_p": 1.0,
}  # fmt: skip
"""Parameters of other servers that would change answers, with the values that are taken."""


def refuse_others(head: Mapping[str, Any], fixed: Mapping[str, Any]) -> None:
    """Raise InputError for parameters that have another value than the one that is implemented."""
    for name, value in {**_OTHERS, **fixed}.items():
        found = head.get(name)
        if found is not None and (type(found) is not type(value) or found != value):
            raise InputError(f"'{name}' is {short_json(found)}, and only {json.dumps(value)} "
                             "is taken", _HINTS.get(name, "leave it out"))  # fmt: skip
