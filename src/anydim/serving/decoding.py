"""Continuous batching of decoders: sequences join and leave between steps, tokens stream.

A step has one chunk of a prompt beside the next tokens of other sequences, so that a long prompt
does not hold them up. Prompts are cut into chunks of one size, whatever else runs, and rows of a
step have their own bits: a sequence has the tokens that it has alone.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any, Protocol

import numpy

from anydim.base.amounts import bytes_of, exact_bytes_text
from anydim.base.errors import (
    BusyError,
    InputError,
    MemoryLimitError,
    OptionError,
    TimeLimitError,
    UserError,
)
from anydim.base.keywords import public
from anydim.base.text import count_of, quote_list
from anydim.base.user_values import whole_within
from anydim.runtime.arrays import as_array
from anydim.serving.sampling import Choose, largest
from anydim.sizes import LARGEST

POSITIONS = "position_ids"
CHUNK = 128  # tokens of a prompt that one step has
_END = None


class Rows(Protocol):
    """What a decoder needs of `ad.cached(..., ragged=)`."""

    @property
    def row_inputs(self) -> tuple[str, ...]:
        """The inputs of each row."""

    def join(self) -> int:
        """A new row."""

    def leave(self, row: int) -> None:
        """End a row."""

    def length(self, row: int) -> int:
        """The cached elements of a row."""

    def cache_bytes(self, lengths: Sequence[int]) -> int:
        """Bytes of the caches of rows."""

    def step_bytes(self, lengths: Sequence[int], new: Sequence[int]) -> int:
        """Bytes of a step beside the caches."""

    def cache_room(self, memory: int, step: int) -> int:
        """Most bytes of caches within `memory` beside steps."""

    def limit_caches(self, most: int) -> None:
        """Set the most bytes of caches."""

    def step(self, rows: Mapping[int, Any]) -> dict[str, Any]:
        """Run a step."""


class Decoded:
    """A sequence that is decoded: its prompt, its row, and where its tokens go."""

    __slots__ = (
        "bytes", "choose", "deadline", "given", "is_gone", "left", "longest", "number", "prompt",
        "row", "send", "stop", "token",
    )  # fmt: skip

    def __init__(
        self, prompt: numpy.ndarray, left: int, stop: frozenset[int], choose: Choose,
        send: Callable[[Any], None], deadline: float | None, bytes: int,
    ) -> None:  # fmt: skip
        self.prompt, self.left, self.stop, self.choose = prompt, left, stop, choose
        self.send, self.deadline, self.bytes = send, deadline, bytes
        self.longest = len(prompt) + left
        self.row = -1
        self.given = 0  # tokens of the prompt that steps had
        self.token = -1  # the last one that was chosen
        self.is_gone = False
        self.number = next(_NUMBERS)


_NUMBERS = itertools.count()


class _Decoding:
    """Runs steps in a thread; both decoders stand on it."""

    def __init__(
        self, model: Rows, *, memory: int | str = "1 GiB", rows: int = 32, chunk: int = CHUNK,
        queue: int = 1024, result: str = "",
    ) -> None:  # fmt: skip
        self._model, self._memory = model, bytes_of(memory)
        self._most_rows = whole_within("rows", rows, 1, LARGEST, "give rows of a step")
        self._chunk = whole_within("chunk", chunk, 1, LARGEST, "give tokens of a step")
        self._queue = whole_within("queue", queue, 1, LARGEST, "give how many sequences may wait")
        self._result, self._tokens = result, _token_input(model.row_inputs)
        self._lock = threading.Condition()
        self._waiting: list[tuple[int, int, Decoded]] = []
        self._active: list[Decoded] = []
        self._held = 0  # bytes of caches of active sequences when they end
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._counts = {"steps": 0, "tokens": 0, "prompt_tokens": 0, "sequences": 0}
        self._seconds = 0.0

    def _begin(
        self, tokens: Any, most: int, stop: Collection[int], choose: Choose,
        send: Callable[[Any], None], priority: int, deadline: float | None,
    ) -> Decoded:  # fmt: skip
        """Let a sequence wait for a row."""
        prompt = as_array(tokens, "a prompt")
        if prompt.ndim != 1 or not prompt.size or prompt.dtype.kind not in "iu":
            raise InputError(f"a prompt is {prompt.dtype}{list(prompt.shape)}",
                             "give tokens: integers [n], at least one")  # fmt: skip
        whole_within("most", most, 1, LARGEST, "give how many tokens to generate at most")
        needed = self._model.cache_bytes([len(prompt) + most])
        end = None if deadline is None else perf_counter() + deadline
        made = Decoded(prompt, most, frozenset(stop), choose, send, end, needed)
        room = self._room([made])
        if needed > room:
            raise MemoryLimitError(
                f"{count_of(len(prompt), 'token')} and {most} more take {exact_bytes_text(needed)} "
                f"of caches and {exact_bytes_text(self._step_bytes([made]))} of a step, above the "
                f"limit: within {exact_bytes_text(self._memory)}, caches may take "
                f"{exact_bytes_text(room)}",
                "raise the limit of memory or of caches, shorten the prompt, or generate less",
            )
        with self._lock:
            if self._is_closed or len(self._waiting) >= self._queue:
                waiting = count_of(len(self._waiting), "sequence")
                raise BusyError("the decoder is closed" if self._is_closed
                                else f"{waiting} wait, the most there may be")  # fmt: skip
            heapq.heappush(self._waiting, (-priority, made.number, made))
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._work, name="anydim-decoder", daemon=True
                )
                self._thread.start()
            self._lock.notify()
        return made

    def _forget(self, sequence: Decoded) -> None:
        """The caller went away: its row is free after the step that runs."""
        with self._lock:
            sequence.is_gone = True
            self._lock.notify()

    def metrics(self) -> dict[str, Any]:
        """Steps, tokens and sequences since the start; rows, waiting sequences and bytes."""
        with self._lock:
            return {
                **self._counts, "seconds": self._seconds, "rows": len(self._active),
                "waiting": len(self._waiting),
                "bytes": {
                    "caches": self._held, "limit": self._memory,
                    "step": self._step_bytes(self._active) if self._active else 0,
                },
            }  # fmt: skip

    def _close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._lock.notify()
        if self._thread is not None:
            self._thread.join()

    # ---- steps -----------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._lock:
                self._admit()
                while not self._active:
                    if self._is_closed and not self._waiting:
                        return
                    self._lock.wait()
                    self._admit()
            self._step()

    def _admit(self) -> None:
        """Drop sequences whose callers left; give rows to those that wait, while caches fit."""
        for each in [each for each in self._active if each.is_gone]:
            self._leave(each)
        now = perf_counter()
        while self._waiting:
            first = self._waiting[0][2]
            if not first.is_gone and first.deadline is not None and first.deadline <= now:
                first.send(TimeLimitError("the deadline was over before the sequence began",
                                          "send fewer sequences, or give more time"))  # fmt: skip
                first.is_gone = True
            if not first.is_gone:
                room = self._room([*self._active, first])
                if len(self._active) >= self._most_rows or self._held + first.bytes > room:
                    return
                self._join(first, room)
            heapq.heappop(self._waiting)

    def _join(self, sequence: Decoded, room: int) -> None:
        """Give a sequence a row. An error, as of rows that others made, ends the sequence."""
        try:
            self._model.limit_caches(room)
            sequence.row = self._model.join()
        except Exception as error:
            sequence.send(error)
            return
        self._held += sequence.bytes
        self._active.append(sequence)
        self._counts["sequences"] += 1

    def _step_bytes(self, sequences: Sequence[Decoded]) -> int:
        """Most bytes of a step of sequences: all are at their ends, and one has a chunk."""
        chunk = min(self._chunk, max(len(each.prompt) for each in sequences))
        longest = sorted((each.longest for each in sequences), reverse=True)
        new = [chunk] + [1] * (len(longest) - 1)
        return self._model.step_bytes([count - 1 for count in longest], new)

    def _room(self, sequences: Sequence[Decoded]) -> int:
        """Most bytes of caches beside the steps of sequences."""
        return self._model.cache_room(self._memory, self._step_bytes(sequences))

    def _leave(self, sequence: Decoded) -> None:
        self._active.remove(sequence)
        self._held -= sequence.bytes
        with suppress(InputError):
            self._model.leave(sequence.row)

    def _step(self) -> None:
        """One step: a chunk of the first prompt that is not read, and a token of other rows."""
        parts: dict[Decoded, numpy.ndarray] = {}
        has_prompt = False
        for each in self._active:
            if each.given < len(each.prompt):
                if not has_prompt:
                    parts[each] = each.prompt[each.given : each.given + self._chunk]
                    has_prompt = True
            else:
                parts[each] = numpy.array([each.token], each.prompt.dtype)
        start = perf_counter()
        found = self._logits(parts)
        self._seconds += perf_counter() - start
        self._counts["steps"] += 1
        for each, logits in found.items():
            if each.given < len(each.prompt):
                each.given += len(parts[each])
                self._counts["prompt_tokens"] += len(parts[each])
                if each.given < len(each.prompt):
                    continue
            self._send_token(each, logits[-1] if logits.ndim > 1 else logits)

    def _logits(self, parts: Mapping[Decoded, numpy.ndarray]) -> dict[Decoded, numpy.ndarray]:
        """The logits of new tokens. After an error, which leaves caches as they were, each
        sequence has a step of its own, and those that fail again end."""
        try:
            return self._call_model(parts)
        except Exception as error:
            if len(parts) == 1 or not isinstance(error, UserError):
                for each in parts:
                    each.send(error)
                    self._leave(each)
                return {}
        found: dict[Decoded, numpy.ndarray] = {}
        for each, part in parts.items():
            found.update(self._logits({each: part}))
        return found

    def _call_model(self, parts: Mapping[Decoded, numpy.ndarray]) -> dict[Decoded, numpy.ndarray]:
        results = self._model.step({s.row: self._inputs(s, part) for s, part in parts.items()})
        logits = results[self._result] if self._result else next(iter(results.values()))
        return dict(zip(parts, logits))

    def _inputs(self, sequence: Decoded, part: numpy.ndarray) -> Any:
        if len(self._model.row_inputs) == 1:
            return part
        first = self._model.length(sequence.row)
        positions = numpy.arange(first, first + len(part), dtype=part.dtype)
        return {self._tokens: part, POSITIONS: positions}

    def _send_token(self, sequence: Decoded, logits: numpy.ndarray) -> None:
        """Send the next token of a sequence, and end it where it ends."""
        try:
            sequence.token = int(sequence.choose(logits))
        except Exception as error:  # of the caller's function
            sequence.send(error)
            self._leave(sequence)
            return
        sequence.left -= 1
        self._counts["tokens"] += 1
        sequence.send(sequence.token)
        if not sequence.left or sequence.token in sequence.stop:
            sequence.send(_END)
            self._leave(sequence)


def _token_input(names: Sequence[str]) -> str:
    """The input that has the tokens; raises OptionError for other inputs than positions."""
    others = [name for name in names if name != POSITIONS]
    if len(others) != 1:
        raise OptionError(
            f"rows have the inputs {quote_list(names)}, and a decoder gives tokens and positions "
            "alone",
            "compute the others in the model",
        )
    return others[0]


@public
class Decoder(_Decoding):
    """Generates sequences for any threads, all in the same steps.

        decoder = Decoder(ad.cached("decoder.onnx", ragged="auto"), memory="2 GiB")
        for token in decoder.generate(prompt, most=100, stop={2}):
            print(token)

    Args:
        model: What `ad.cached(..., ragged=)` returned. Only the decoder may use it.
        memory: Most bytes of caches and of a step, by formula: a sequence begins when its caches
            at its full length fit beside the largest step of all sequences that run.
        rows: Most sequences of a step.
        chunk: Tokens of a prompt that one step has.
        queue: Most sequences that wait.
        result: The result with the logits. Empty: the first one.
    """

    def generate(
        self, tokens: Any, most: int, stop: Collection[int] = (), *, choose: Choose = largest,
        priority: int = 0, deadline: float | None = None,
    ) -> Iterator[int]:  # fmt: skip
        """Yield tokens as they are chosen. Closing the iterator ends the sequence.

        Args:
            tokens: The prompt, integers [n].
            most: Most tokens to generate.
            stop: Tokens after which the sequence ends; the last one is yielded, too.
            choose: Chooses a token by logits [vocabulary]. Default: the largest.
            priority: Sequences of higher priority begin first.
            deadline: Seconds within which the sequence must begin.

        Raises:
            InputError: The prompt is not a vector of integers, or a token is out of bounds.
            MemoryLimitError: Its caches can never fit.
            BusyError: Too many sequences wait.
            TimeLimitError: It did not begin in time.
        """
        received: queue.SimpleQueue[Any] = queue.SimpleQueue()
        made = self._begin(tokens, most, stop, choose, received.put, priority, deadline)
        return self._iterate_tokens(made, received)

    def _iterate_tokens(self, made: Decoded, received: queue.SimpleQueue[Any]) -> Iterator[int]:
        try:
            while (found := received.get()) is not _END:
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            self._forget(made)

    def close(self) -> None:
        """Refuse new sequences, and wait for the running ones."""
        self._close()

    def __enter__(self) -> Decoder:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


@public
class AsyncDecoder(_Decoding):
    """A `Decoder` for asyncio: `async for token in decoder.generate(prompt, most=100)`.

    Its arguments are those of `Decoder`.
    """

    async def generate(
        self, tokens: Any, most: int, stop: Collection[int] = (), *, choose: Choose = largest,
        priority: int = 0, deadline: float | None = None,
    ) -> AsyncGenerator[int, None]:  # fmt: skip
        """Yield tokens as they are chosen, with the arguments and errors of `Decoder.generate`."""
        loop, received = asyncio.get_running_loop(), asyncio.Queue[Any]()

        def send(found: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed: no caller waits
                loop.call_soon_threadsafe(received.put_nowait, found)

        made = self._begin(tokens, most, stop, choose, send, priority, deadline)
        try:
            while (found := await received.get()) is not _END:
                if isinstance(found, BaseException):
                    raise found
                yield found
        finally:
            self._forget(made)

    async def close(self) -> None:
        """As `Decoder.close`, without blocking the loop."""
        await asyncio.to_thread(self._close)

    async def __aenter__(self) -> AsyncDecoder:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()
