"""The REST half of the open inference protocol v2, and its repository extension."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from anydim.base.errors import InputError, MemoryLimitError, UserError
from anydim.serving.requests import Request
from anydim.serving.server.answers import JSON, Answer, answer, json_answer
from anydim.serving.server.asgi import Gone, Receive, Scope, Send, watch_disconnect
from anydim.serving.server.heads import Heads
from anydim.serving.server.json_bodies import LONG, parsed_long, short_json
from anydim.serving.server.state import Made, State, error_text, status_of
from anydim.serving.server.tensors import InferRequest, answer_body, is_long, parse_request

JSON_FACTOR = 8  # bytes of memory that a byte of JSON takes while it is read
_MOST_DIGITS = 19
MOST_TEXT = 1 << 21  # bytes of a body of texts or tokens
LONG_TEXT = 1 << 12  # bytes of such a body that holds up the event loop
_LONG_HEAD = 1 << 12  # bytes of JSON; longer ones are not kept with the arrays behind them
HEAD = b"inference-header-content-length"  # the header with the length of the JSON


def error_answer(error: BaseException) -> Answer:
    """The answer for an error, as the protocol has it."""
    return json_answer({"error": error_text(error)}, status_of(error))


class Body:
    """The body of a request, whose bytes count against the limit as they arrive, until `free`.

    Bytes of JSON count `JSON_FACTOR` times; one that `may_have_tensors` behind its JSON says where
    they begin. `most` are the bytes of a body that is no list of tensors; None: what fits. Raises
    MemoryLimitError for one above the limit, BusyError if memory is short, Gone if the client left.
    `connections.py` closes connections whose bodies do not arrive.
    """

    def __init__(
        self, state: State, scope: Scope, may_have_tensors: bool = False, most: int | None = None
    ) -> None:
        self._state, self._held, self._most = state, 0, most
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        check_codings(scope["headers"])
        self._factor = 1 if may_have_tensors and HEAD in self.headers else JSON_FACTOR
        declared = self.headers.get(b"content-length", b"0")
        if not declared.isdigit() or len(declared) > _MOST_DIGITS:
            raise InputError(f"content-length is {declared[:40].decode('latin-1')!r}")
        self._declared = int(declared)
        self._check(self._declared)

    def _check(self, size: int) -> None:
        most = self._state.most_body // self._factor
        if self._most is not None:
            most = min(most, self._most)
        if size > most:
            raise MemoryLimitError(f"the body has {size} bytes, above the limit of {most} bytes",
                                   "send tensors as binary data, or split the request")  # fmt: skip

    def _take(self, size: int) -> None:
        more = size * self._factor - self._held
        if more > 0:
            self._state.batcher.engine.hold(more, "the body of the request")
            self._held += more

    def _try(self) -> None:
        """Raise BusyError for a declared length that does not fit now."""
        self._take(self._declared)
        self.free()

    async def read(self, receive: Receive) -> memoryview:
        """All bytes. A body in parts grows by an eighth of what it has."""
        whole, size = bytearray(), 0
        if self._declared:
            await self._state.make_room(self._try)
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Gone
            part, is_last = message.get("body", b""), not message.get("more_body")
            size += len(part)
            self._check(size)
            is_whole = is_last and size == len(part)
            taken = size if is_whole else size + size // 8
            await self._state.make_room(partial(self._take, taken))
            if is_whole:
                return memoryview(part)
            whole += part
            if is_last:
                return memoryview(whole)

    async def split(self, body: memoryview) -> tuple[memoryview, memoryview]:
        """The JSON of a body, which counts as such, and the bytes behind it."""
        head, rest = split(self.headers, body)
        if self._factor == 1:
            self._factor = JSON_FACTOR
            self._check(len(head))
            size = len(head) + len(rest) // JSON_FACTOR
            await self._state.make_room(partial(self._take, size))
        return head, rest

    def free(self) -> None:
        """Return its bytes to the memory limit."""
        if self._held:
            self._state.batcher.engine.unhold(self._held)
            self._held = 0


def check_codings(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise InputError for a body that is compressed, or in another form than chunks."""
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() != b"identity":
            raise InputError("compressed bodies are not read", "send it without compression")
        if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            raise InputError(f"transfer-encoding is {value[:40].decode('latin-1')!r}",
                             "send the body in chunks, or with its length")  # fmt: skip


def split(headers: dict[bytes, bytes], body: memoryview) -> tuple[memoryview, memoryview]:
    """The JSON of a body, and the bytes behind it."""
    length = headers.get(HEAD)
    if length is None:
        return body, body[:0]
    size = int(length) if length.isdigit() and len(length) <= _MOST_DIGITS else -1
    if not 0 <= size <= len(body):
        given = length[:40].decode("latin-1")
        raise InputError(
            f"inference-header-content-length is {given!r}, and the body has {len(body)} bytes"
        )
    return body[:size], body[size:]


def options_of(found: InferRequest) -> dict[str, Any]:
    """Priority and deadline: the parameters `priority`, and `timeout` in microseconds."""
    options: dict[str, Any] = {}
    priority, timeout = found.parameters.get("priority"), found.parameters.get("timeout")
    if priority is not None:
        if type(priority) is not int or abs(priority) >= 1 << 31:
            raise InputError(f"'priority' is {short_json(priority)}, expected an integer")
        options["priority"] = priority
    if timeout is not None:
        if type(timeout) is not int or not 0 < timeout < 1 << 53:
            raise InputError(f"'timeout' is {short_json(timeout)}, expected microseconds")
        options["deadline"] = timeout / 1e6
    return options


async def run_aside(is_long: bool, work: Callable[[], Made]) -> Made:
    """Return the result of some work, which runs in another thread if it is long."""
    return await asyncio.to_thread(work) if is_long else work()


async def wait_for_results(state: State, request: Request, scope: Scope, receive: Receive) -> Any:
    """Wait for the results of a request; cancel it if the client disconnects."""
    outcome: asyncio.Future[Any] = request.future
    if outcome.done():
        return await state.batcher.outcome(request)

    def gone() -> None:
        if not outcome.done():
            outcome.set_exception(Gone())

    forget = watch_disconnect(scope, receive, gone)
    try:
        return await state.batcher.outcome(request)
    except Gone:
        state.batcher.engine.cancel(request)
        raise
    finally:
        forget()


class Infer:
    """POST /v2/models/{name}[/versions/{version}]/infer"""

    def __init__(self, state: State) -> None:
        self._state, self._heads = state, Heads()
        self._reads = asyncio.Lock()  # one long JSON at a time

    async def _parse_request(self, head: memoryview, rest: memoryview) -> InferRequest:
        """A request of its JSON and of the bytes behind it. Raises InputError."""
        if len(head) <= LONG:
            return self._heads.parse_request(head, rest)
        async with self._reads:
            return await asyncio.to_thread(lambda: parse_request(parsed_long(head), rest))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        body = request = None
        state = self._state
        try:
            name, version = names_of(scope["path"]) or ("", "")
            loaded = state.repository.find(name, version)
            body = Body(state, scope, True)
            head, rest = await body.split(await body.read(receive))
            if len(head) > _LONG_HEAD:
                rest = memoryview(bytes(rest))
            found = await self._parse_request(head, rest)
            body.free()  # its arrays count as the request's
            request = await state.make_room(partial(
                state.batcher.submit, found.inputs, name, outputs=found.outputs, keep=1,
                within=state.seconds_on_the_loop(), **options_of(found),
            ))  # fmt: skip
            found.inputs.clear()
            del head, rest
            results = await wait_for_results(state, request, scope, receive)
            made = partial(answer_body, name, str(loaded.version), found, results)
            text, length = await run_aside(is_long(found, results), made)
            headers = [JSON]
            if length is not None:
                headers = [(b"content-type", b"application/octet-stream"),
                           (HEAD, b"%d" % length)]  # fmt: skip
            await answer(send, (200, text, headers), scope)
        except Gone:
            pass
        except Exception as error:
            if not isinstance(error, UserError):
                state.log.error("fault", exc_info=error, extra={"facts": {"path": scope["path"]}})
            await answer(send, error_answer(error), scope)
        finally:
            if body is not None:
                body.free()
            if request is not None:
                state.batcher.release(request)


def names_of(path: str) -> tuple[str, str] | None:
    """Model and version of a path to inference, which is decoded; None for other paths."""
    parts = path.split("/")
    if len(parts) not in (5, 7) or parts[1:3] != ["v2", "models"] or parts[-1] != "infer":
        return None
    if len(parts) == 7 and parts[4] != "versions":
        return None
    return parts[3], parts[5] if len(parts) == 7 else ""
