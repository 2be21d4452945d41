"""POST /v1/completions and /v1/chat/completions: prompts or messages in, answers out, whole or
streamed, as clients of language models have them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from anydim.base.errors import InputError, UserError
from anydim.serving.log_shares import LogShare
from anydim.serving.server.answer_forms import FIELDS, form_of_answers
from anydim.serving.server.answers import answer, json_answer
from anydim.serving.server.asgi import Gone, Receive, Scope, Send
from anydim.serving.server.decoders import DEFAULT_TOKENS, find
from anydim.serving.server.embeddings import Tokenizers, answer_of_error, failure, is_tokens
from anydim.serving.server.generation import MOST_TOP, flag, generation_of, whole
from anydim.serving.server.json_bodies import parse_object
from anydim.serving.server.rest import LONG_TEXT, MOST_TEXT, Body, run_aside
from anydim.serving.server.sequences import Event, Sequences, refuse_others
from anydim.serving.server.state import State

MOST_PROMPTS = 64  # of a request
_DONE = b"data: [DONE]\n\n"
_STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
_FIXED = {"best_of": 1, "echo": False, "suffix": None}
"""Parameters of other servers, with the values that are taken."""

Make = Callable[[State, Tokenizers, Mapping[str, Any]], Sequences]


class Completions:
    """An endpoint that generates. Sequences of all clients share decoding steps.

    `make` reads a request; raises UserError kinds for a wrong one.
    """

    def __init__(self, state: State, tokenizers: Tokenizers, make: Make) -> None:
        self._state, self._tokenizers, self._make = state, tokenizers, make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        body = made = None
        try:
            body = Body(self._state, scope, most=MOST_TEXT)
            text = await body.read(receive)
            head = parse_object(text)
            is_stream = flag(head, "stream")
            begin = partial(self._make, self._state, self._tokenizers, head)
            is_slow = len(text) > LONG_TEXT or any(head.get(name) for name in FIELDS)
            made = await run_aside(is_slow, begin)
            events = made.events(scope, receive)
            if is_stream:
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

    async def _stream(self, send: Send, made: Sequences, events: AsyncIterator[Event]) -> None:
        """Server-sent events. Errors before the first one have a status; later ones are events."""
        first = await anext(events, None)
        await send({"type": "http.response.start", "status": 200, "headers": _STREAM})
        try:
            await _parts(send, made.first())
            if first is not None:
                await _parts(send, made.chunks(first))
            async for event in events:
                await _parts(send, made.chunks(event))
        except UserError as error:
            await _parts(send, [failure(error)])
        else:
            await _parts(send, made.last())
        await send({"type": "http.response.body", "body": _DONE, "more_body": False})


async def _parts(send: Send, documents: list[dict[str, Any]]) -> None:
    for document in documents:
        text = json.dumps(document, separators=(",", ":"))
        body = f"data: {text}\n\n".encode()
        await send({"type": "http.response.body", "body": body, "more_body": True})


class TextCompletion(Sequences):
    """A request to continue texts."""

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def __init__(self, state: State, tokenizers: Tokenizers, head: Mapping[str, Any]) -> None:
        served = find(state.decoders, head.get("model"))
        refuse_others(head, _FIXED)
        generation = generation_of(head, DEFAULT_TOKENS, served.vocabulary)
        generation = replace(generation, top=whole(head, "logprobs", 0, MOST_TOP, None))
        prompts, is_text = _prompts(head.get("prompt"))
        needs = is_text or head.get("stop") or tokenizers.has(served)
        tokenizer = tokenizers.of(served) if needs else None
        if is_text:
            prompts = tokenizers.encode(served, prompts)
        generation = replace(generation, form=form_of_answers(served.opened, head))
        super().__init__(served, generation, tokenizer, prompts, head)
        self._lengths = [0] * len(self._pieces)  # characters of texts so far

    def choice(self, event: Event) -> dict[str, Any]:
        """A whole answer."""
        shares = self._log_shares(event.shares, event.number)
        return {"index": event.number, "text": event.text, "token_ids": event.tokens,
                "logprobs": shares, "finish_reason": event.reason}  # fmt: skip

    def chunks(self, event: Event) -> list[dict[str, Any]]:
        """What a token adds."""
        return [self._chunk(self.choice(event))]

    def _log_shares(self, shares: tuple[LogShare, ...], number: int) -> dict[str, Any] | None:
        if self._generation.top is None:
            return None
        texts = [self._text_of(share.token) for share in shares]
        offsets = []
        for text in texts:
            offsets.append(self._lengths[number])
            self._lengths[number] += len(text)
        return {
            "tokens": texts, "token_logprobs": [share.value for share in shares],
            "top_logprobs": [
                {self._text_of(token): value for token, value in reversed(share.top)}
                for share in shares
            ],
            "text_offset": offsets,
        }  # fmt: skip


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
