"""POST /v1/completions: prompts in, generated tokens out, whole or streamed, as clients of language
models have them."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from anydim.base.errors import InputError, UserError
from anydim.serving.server.answers import answer, json_answer
from anydim.serving.server.asgi import Gone, Receive, Scope, Send, watch_disconnect
from anydim.serving.server.decoders import Generation, find, generation_of
from anydim.serving.server.embeddings import Tokenizers, answer_of_error, failure, is_tokens
from anydim.serving.server.json_bodies import parse_object
from anydim.serving.server.pieces import Pieces
from anydim.serving.server.rest import LONG_TEXT, MOST_TEXT, Body, run_aside
from anydim.serving.server.state import State

MOST_PROMPTS = 64  # of a request
_MOST_STOPS, _MOST_STOP = 4, 256  # texts, characters
_DONE = b"data: [DONE]\n\n"
_STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
_FIXED = {"n": 1, "best_of": 1, "echo": False, "suffix": None, "logprobs": None,
          "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": None}  # fmt: skip
"""Parameters of other servers, with the values that are taken."""

Event = tuple[int, str, list[int], str | None]
"""Number of the prompt, text, tokens, and why the sequence ended, if it did."""


class Completions:
    """The completions endpoint. Sequences of all clients share decoding steps."""

    def __init__(self, state: State, tokenizers: Tokenizers) -> None:
        self._state, self._tokenizers = state, tokenizers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        body = made = None
        try:
            body = Body(self._state, scope, most=MOST_TEXT)
            text = await body.read(receive)
            head = parse_object(text)
            begin = partial(_Sequences, self._state, self._tokenizers, head)
            made = await run_aside(len(text) > LONG_TEXT, begin)
            events = made.events(scope, receive)
            if head.get("stream") is True:
                await self._stream(send, made, events)
            else:
                await answer(send, json_answer(await made.whole(events)), scope)
        except Gone:
            pass
        except Exception as error:
            self._log(error, scope)
            await answer(send, answer_of_error(error), scope)
        finally:
            if body is not None:
                body.free()
            if made is not None:
                await made.close()

    def _log(self, error: BaseException, scope: Scope) -> None:
        if not isinstance(error, UserError):
            self._state.log.error("fault", exc_info=error, extra={"facts": {"path": scope["path"]}})

    async def _stream(self, send: Send, made: _Sequences, events: AsyncIterator[Event]) -> None:
        """Server-sent events. Errors before the first one have a status; later ones are events."""
        first = await anext(events, None)
        await send({"type": "http.response.start", "status": 200, "headers": _STREAM})
        try:
            if first is not None:
                await _part(send, made.chunk(first))
            async for event in events:
                await _part(send, made.chunk(event))
        except UserError as error:
            await _part(send, failure(error))
        else:
            if made.wants_usage:
                await _part(send, made.document([], with_usage=True))
        await send({"type": "http.response.body", "body": _DONE, "more_body": False})


class _Sequences:
    """The sequences of a request."""

    def __init__(self, state: State, tokenizers: Tokenizers, head: Mapping[str, Any]) -> None:
        self._served = served = find(state.decoders, head.get("model"))
        _check(head)
        self._generation = generation_of(head)
        stop = _stops(head.get("stop"))
        prompts, is_text = _prompts(head.get("prompt"))
        needs = is_text or stop or tokenizers.has(served)
        self._tokenizer = tokenizers.of(served) if needs else None
        if is_text and self._tokenizer is not None:
            self._prompts = [each.ids for each in self._tokenizer.encode_batch(prompts)]
        else:
            self._prompts = prompts
        self._pieces = [
            None if self._tokenizer is None else Pieces(self._tokenizer, stop) for _ in prompts
        ]
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._forget: Callable[[], object] = lambda: None  # ends the wait for the client to go
        self._count, self._created = 0, int(time.time())
        self._id = f"cmpl-{uuid.uuid4().hex}"
        options = head.get("stream_options")
        self.wants_usage = isinstance(options, dict) and options.get("include_usage") is True

    async def events(self, scope: Scope, receive: Receive) -> AsyncIterator[Event]:
        """Yield tokens and ends of sequences as they occur. Raises errors of sequences, or Gone."""
        loop, left_over = asyncio.get_running_loop(), len(self._prompts)
        self._forget = watch_disconnect(scope, receive, lambda: self._queue.put_nowait(Gone()))
        self._tasks = [
            loop.create_task(self._generate(number)) for number in range(len(self._prompts))
        ]
        while left_over:
            found = await self._queue.get()
            if isinstance(found, BaseException):
                raise found
            left_over -= found[3] is not None
            yield found

    async def _generate(self, number: int) -> None:
        served, generation = self._served, self._generation
        count = 0
        try:
            async with aclosing(generation.run(served.decoder, self._prompts[number])) as made:
                async for token in made:
                    count += 1
                    if self._take(number, token, count, generation):
                        return
        except Exception as error:
            self._queue.put_nowait(error)

    def _take(self, number: int, token: int, count: int, generation: Generation) -> bool:
        """Record a token; return whether it is the last one of its sequence."""
        self._count += 1
        reason = None
        if token in generation.stop:
            reason = "stop"
        elif count >= generation.most:
            reason = "length"
        pieces, text = self._pieces[number], ""
        if pieces is not None:
            text = "" if token in generation.stop else pieces.add(token)
            if pieces.is_stopped:
                reason = "stop"
            elif reason is not None:
                text += pieces.end()
        self._queue.put_nowait((number, text, [token], reason))
        return reason is not None

    async def close(self) -> None:
        """Cancel the sequences that still run."""
        self._forget()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def whole(self, events: AsyncIterator[Event]) -> dict[str, Any]:
        """Return the whole response, for requests without streaming."""
        found: list[Event] = [(number, "", [], None) for number in range(len(self._prompts))]
        async for number, text, tokens, reason in events:
            _, before, known, _ = found[number]
            found[number] = (number, before + text, known + tokens, reason)
        return self.document(found, with_usage=True)

    def chunk(self, event: Event) -> dict[str, Any]:
        """Encode a server-sent event."""
        return self.document([event], with_usage=False)

    def document(self, events: Sequence[Event], with_usage: bool) -> dict[str, Any]:
        """Choices of events, and how many tokens there were."""
        choices = [
            {"index": number, "text": text, "token_ids": tokens, "logprobs": None,
             "finish_reason": reason}
            for number, text, tokens, reason in events
        ]  # fmt: skip
        made: dict[str, Any] = {
            "id": self._id, "object": "text_completion", "created": self._created,
            "model": self._served.name, "choices": choices,
        }  # fmt: skip
        if with_usage:
            prompt = sum(map(len, self._prompts))
            made["usage"] = {"prompt_tokens": prompt, "completion_tokens": self._count,
                             "total_tokens": prompt + self._count}  # fmt: skip
        return made


async def _part(send: Send, document: Mapping[str, Any]) -> None:
    text = json.dumps(document, separators=(",", ":"))
    body = f"data: {text}\n\n".encode()
    await send({"type": "http.response.body", "body": body, "more_body": True})


def _check(head: Mapping[str, Any]) -> None:
    """Raise InputError for parameters that the server does not implement."""
    for name, value in _FIXED.items():
        if head.get(name, value) not in (value, None):
            raise InputError(f"'{name}' is {str(head[name])[:40]}, and only {value} is taken")


def _stops(given: Any) -> list[str]:
    found = [] if given is None else [given] if isinstance(given, str) else given
    is_right = isinstance(found, list) and len(found) <= _MOST_STOPS
    if not is_right or any(not isinstance(e, str) or not 0 < len(e) <= _MOST_STOP for e in found):
        raise InputError(f"'stop' is {str(given)[:40]}",
                         f"give at most {_MOST_STOPS} texts")  # fmt: skip
    return list(found)


def _prompts(given: Any) -> tuple[list[Any], bool]:
    """Prompts, and whether they are texts, not tokens."""
    many = given if isinstance(given, list) and not is_tokens(given) else [given]
    if not 0 < len(many) <= MOST_PROMPTS:
        raise InputError(f"'prompt' has {len(many)} prompts, expected 1 to {MOST_PROMPTS}")
    if all(isinstance(each, str) for each in many):
        return many, True
    if all(is_tokens(each) for each in many):
        return many, False
    raise InputError("'prompt' is no text, list of texts, list of tokens, or list of these")
