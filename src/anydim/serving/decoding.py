"""Continuous batching of decoders: sequences join and leave between steps, tokens stream.

A step has one chunk of a prompt beside the next tokens of other sequences, so that a long prompt
does not hold them up. Prompts are cut into chunks of one size, whatever else runs, and rows of a
step have their own bits: a sequence has the tokens that it has alone.

A sequence begins when its caches fit with its next `HEADROOM` tokens. When the caches of all that
run no longer fit, the one that began last gives up its row, and reads its tokens again later: a row
has the same bits however its tokens are divided into steps. Rows of sequences that ended stay while
there is room (`prefixes.py`). A step may check drafts of next tokens (`drafts.py`).
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from time import perf_counter
from typing import Any

import numpy

from anydim.base.amounts import bytes_of, exact_bytes_text
from anydim.base.errors import (
    ArgumentError,
    BusyError,
    InputError,
    MemoryLimitError,
    OptionError,
    TimeLimitError,
    UserError,
)
from anydim.base.fork_locks import fork_lock
from anydim.base.text import count_of, quote_list
from anydim.base.user_values import (
    function_of,
    items_of,
    seconds_of,
    short_repr,
    whole_within,
)
from anydim.runtime.arrays import as_array
from anydim.serving.decoded import HIDDEN, PICKS, POOLINGS, STATES, Decoded, Pool, Rows
from anydim.serving.drafts import Drafts
from anydim.serving.measures import BOUNDS, Histogram
from anydim.serving.prefixes import Prefix, Prefixes
from anydim.serving.sampling import Choose, largest
from anydim.sizes import LARGEST

POSITIONS = "position_ids"
CHUNK = 128  # tokens of a prompt that one step has
END = None  # behind the last token
_COUNTS = (
    "steps", "tokens", "prompt_tokens", "reused_tokens", "drafted_tokens", "accepted_tokens",
    "sequences", "paused",
)  # fmt: skip


class Decoding:
    """Runs steps in a thread; both kinds of decoders stand on it (`decoder.py`)."""

    def __init__(
        self, model: Rows, *, memory: int | str = "1 GiB", rows: int = 32, chunk: int = CHUNK,
        queue: int = 1024, result: str = "",
    ) -> None:  # fmt: skip
        self._model, self._memory = model, bytes_of(memory)
        self.most_rows = whole_within("rows", rows, 1, LARGEST, "give rows of a step")
        self._chunk = whole_within("chunk", chunk, 1, LARGEST, "give tokens of a step")
        self._queue = whole_within("queue", queue, 1, LARGEST, "give how many sequences may wait")
        self._result, self._tokens = result, _token_input(model.row_inputs)
        self._lock = fork_lock(self, "_lock", threading.Condition)
        self._prefixes = Prefixes(model, self.most_rows)
        self._waiting: list[tuple[tuple[int, int], Decoded]] = []
        self._active: list[Decoded] = []
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._seconds = 0.0
        self._longest: dict[int, int] = {}  # by the number of rows
        self._first, self._between = Histogram(BOUNDS), Histogram(BOUNDS)  # seconds to tokens

    def _begin(
        self, tokens: Any, most: int, stop: Collection[int], choose: Choose,
        send: Callable[[Any], None], priority: int, deadline: float | None,
        drafts: Drafts | None = None,
    ) -> Decoded:  # fmt: skip
        """Let a sequence wait for a row."""
        whole_within("most", most, 1, LARGEST, "give how many tokens to generate at most")
        if drafts is not None:
            if PICKS not in self._model.optional_inputs:
                raise OptionError("the decoder gives the logits of no draft", "leave drafts out")
        made = self._sequence_of(tokens, most, stop, choose, send, priority, deadline, drafts)
        if drafts is not None:
            drafts.read(made.prompt.tolist())
        return self._queue_up(made)

    def embed(
        self, tokens: Any, pooling: str = "last", *, priority: int = 0,
        deadline: float | None = None,
    ) -> Future[numpy.ndarray]:  # fmt: skip
        """The last hidden states of a language model as one vector, float32 [width].

        Args:
            tokens: The tokens of a text, integers [n].
            pooling: 'last': of the last token; 'mean': of all.
            priority: Sequences of higher priority begin first.
            deadline: Seconds within which it must begin.

        Returns:
            A future; cancelling it ends the sequence.

        Raises:
            OptionError: An unknown pooling, or the decoder has no hidden states.
            UserError: As in `generate`.
        """
        if not isinstance(pooling, str) or pooling not in POOLINGS:
            raise OptionError(f"pooling is {short_repr(pooling)}", quote_list(POOLINGS))
        if STATES not in self._model.optional_inputs:
            raise OptionError("the decoder gives no hidden states", "open it as a language model")
        found: Future[numpy.ndarray] = Future()

        def send(result: Any) -> None:
            with suppress(InvalidStateError):  # it is cancelled
                if isinstance(result, BaseException):
                    found.set_exception(result)
                else:
                    found.set_result(result)

        made = self._sequence_of(tokens, 0, (), largest, send, priority, deadline, None)
        made.pool = Pool(pooling)
        self._queue_up(made)
        found.add_done_callback(lambda _: self._forget(made) if found.cancelled() else None)
        return found

    def _sequence_of(
        self, tokens: Any, most: int, stop: Collection[int], choose: Choose,
        send: Callable[[Any], None], priority: int, deadline: float | None, drafts: Drafts | None,
    ) -> Decoded:  # fmt: skip
        prompt = as_array(tokens, "a prompt")
        if prompt.ndim != 1 or not prompt.size or prompt.dtype.kind not in "iu":
            raise InputError(f"a prompt is {prompt.dtype}{list(prompt.shape)}",
                             "give tokens: integers [n], at least one")  # fmt: skip
        whole_within("priority", priority, -LARGEST, LARGEST, "give an integer")
        function_of("choose", choose)
        seconds = seconds_of("deadline", deadline)
        end = None if seconds is None else perf_counter() + seconds
        given = items_of("stop tokens", stop, "give integers")
        ends = frozenset(whole_within("a stop token", t, 0, LARGEST, "integers") for t in given)
        return Decoded(prompt, most, ends, choose, send, end, priority, drafts)

    def _queue_up(self, made: Decoded) -> Decoded:
        """Let a sequence wait, unless it can never fit."""
        needed, room = self._cache_bytes([made]), self._room([made])
        if needed > room:
            step = exact_bytes_text(self._step_bytes([made]))
            raise MemoryLimitError(
                f"{count_of(made.start, 'token')} and {made.longest - made.start} more take "
                f"{exact_bytes_text(needed)} of caches and {step} of a step, above the "
                f"limit: within {exact_bytes_text(self._memory)}, caches may take "
                f"{exact_bytes_text(room)}",
                "raise the limit of memory or of caches, shorten the prompt, or generate less",
            )
        with self._lock:
            if self._is_closed or len(self._waiting) >= self._queue:
                waiting = count_of(len(self._waiting), "sequence")
                raise BusyError("the decoder is closed" if self._is_closed
                                else f"{waiting} wait, the most there may be")  # fmt: skip
            heapq.heappush(self._waiting, (made.order, made))
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
            if sequence.row < 0:
                self._waiting = [each for each in self._waiting if each[1] is not sequence]
                heapq.heapify(self._waiting)
            self._lock.notify()

    def after_fork(self) -> None:
        """Restart in a forked child: the thread and its sequences stayed in the parent."""
        left = [*self._active, *(each for _, each in self._waiting)]
        self._waiting, self._active, self._thread = [], [], None
        for row in self._model.rows:
            self._model.leave(row)
        self._prefixes = Prefixes(self._model, self.most_rows)
        for sequence in left:
            sequence.close_drafts()
            sequence.send(BusyError("the process forked, and the sequence runs in the parent",
                                    "generate again"))  # fmt: skip

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ArgumentError("a decoder runs in a thread, and is neither copied nor pickled",
                            "make another one of its model")  # fmt: skip

    def longest(self, rows: int = 1) -> int:
        """Most tokens of each of `rows` sequences of equal length that fit into the memory.

        0 if that number never runs together. Raises OptionError for no number of sequences.
        """
        whole_within("rows", rows, 1, LARGEST, "give how many sequences")
        if rows > self.most_rows:
            return 0
        if rows not in self._longest:
            self._longest[rows] = self._search_longest(rows)
        return self._longest[rows]

    def _search_longest(self, rows: int) -> int:
        low, high = 0, 1
        while high < LARGEST and self._fits(high, rows):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(middle, rows) else (low, middle)
        return low

    def _fits(self, length: int, rows: int) -> bool:
        step = self._model.step_bytes(
            [length - 1] * rows, [min(self._chunk, length)] + [1] * (rows - 1)
        )
        caches = self._model.cache_bytes([length] * rows)
        return caches <= self._model.cache_room(self._memory, step)

    def metrics(self) -> dict[str, Any]:
        """Steps, tokens and sequences since the start; rows, waiting sequences and bytes; seconds
        to the first token and between tokens, as histograms."""
        with self._lock:
            return {
                **self._counts, "seconds": self._seconds, "rows": len(self._active),
                "waiting": len(self._waiting),
                "first_token": self._first.document(), "between_tokens": self._between.document(),
                "bytes": {
                    "caches": self._model.held_bytes([each.row for each in self._active]),
                    "kept": self._prefixes.bytes(), "limit": self._memory,
                    "step": self._step_bytes(self._active) if self._active else 0,
                },
            }  # fmt: skip

    def _close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._lock.notify()
        if self._thread is not None:
            self._thread.join()
        while self._prefixes.drop():
            pass

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
                self._make_room()
            self._step()

    def _admit(self) -> None:
        """Drop sequences whose callers left; give rows to those that wait, while caches fit."""
        for each in [each for each in self._active if each.is_gone]:
            self._end(each)
        while self._waiting and len(self._active) < self.most_rows:
            first = heapq.heappop(self._waiting)[1]
            if first.deadline is not None and first.deadline <= perf_counter():
                first.send(TimeLimitError("the deadline was over before the sequence began",
                                          "send fewer sequences, or give more time"))  # fmt: skip
            else:
                first.plan()
                kept = None if first.pool is not None else self._prefixes.take(first.prompt)
                if not self._fit([*self._active, first]):
                    if kept is not None:
                        self._prefixes.keep(kept)
                    heapq.heappush(self._waiting, (first.order, first))
                    return
                self._join(first, kept)

    def _join(self, sequence: Decoded, kept: Prefix | None) -> None:
        """Let a sequence run, in the row that was kept for it, if any. An error, as of rows that
        others made, ends the sequence."""
        try:
            self._model.limit_caches(self._room([*self._active, sequence]))
        except Exception as error:
            sequence.send(error)
            if kept is not None:
                self._model.leave(kept.row)
            return
        if kept is not None:
            sequence.row, sequence.given = kept.row, len(kept.tokens)
            self._counts["reused_tokens"] += sequence.given
        self._active.append(sequence)
        self._counts["sequences"] += not sequence.has_begun
        sequence.has_begun = True
        sequence.deadline = None

    def _begin_row(self, sequence: Decoded) -> bool:
        """Give a sequence a row before its prompt is read: what running and kept rows have of it by
        now is copied. An error ends the sequence; returns whether it runs."""
        running = [self._prefix(each) for each in self._active if each.row >= 0]
        try:
            if sequence.reads_all:
                sequence.row = self._model.join()
            else:
                sequence.row, sequence.given = self._prefixes.row_for(sequence.prompt, running)
        except Exception as error:
            sequence.send(error)
            self._leave(sequence)
            return False
        self._counts["reused_tokens"] += sequence.given
        return True

    def _prefix(self, sequence: Decoded) -> Prefix:
        """What the row of a sequence has."""
        length = self._model.length(sequence.row)
        return Prefix(sequence.row, sequence.tokens()[:length])

    def _fit(self, sequences: Sequence[Decoded]) -> bool:
        """Whether the caches of sequences fit; caches that are kept make room for them."""
        room, own = self._room(sequences), self._cache_bytes(sequences)
        while own + self._prefixes.bytes() > room:
            if not self._prefixes.drop():
                return False
        return True

    def _make_room(self) -> None:
        """Plan room for the next tokens; sequences that began last pause until the others fit."""
        grown = [each for each in self._active if each.length > each.planned]
        for each in grown:
            each.plan()
        while grown and not self._fit(self._active) and len(self._active) > 1:
            last = max(self._active, key=lambda each: each.order)
            self._leave(last)
            last.pause()
            heapq.heappush(self._waiting, (last.order, last))
            self._counts["paused"] += 1
        if grown:
            with suppress(MemoryLimitError):  # of rows that others made: the step says so
                self._model.limit_caches(self._room(self._active))

    def _cache_bytes(self, sequences: Sequence[Decoded]) -> int:
        return self._model.cache_bytes([each.planned for each in sequences])

    def _step_bytes(self, sequences: Sequence[Decoded]) -> int:
        """Most bytes of a step of sequences: all are at their planned ends, one has a chunk."""
        longest = sorted(sequences, key=lambda each: each.planned, reverse=True)
        new = [each.width for each in longest]
        picks = list(new)
        new[0] = max(new[0], min(self._chunk, longest[0].planned))
        states = [0] * len(new)
        if any(each.pool is not None for each in longest):
            states[0] = new[0]
        given = {PICKS: picks, STATES: states} if max(*picks, *states) > 1 else None
        return self._model.step_bytes([each.planned - 1 for each in longest], new, given)

    def _room(self, sequences: Sequence[Decoded]) -> int:
        """Most bytes of caches beside the steps of sequences."""
        return self._model.cache_room(self._memory, self._step_bytes(sequences))

    def _end(self, sequence: Decoded) -> None:
        """Keep the row of a sequence that ended, for prompts that begin as it did."""
        try:
            kept = self._prefix(sequence)
        except InputError:  # the row has left
            self._leave(sequence)
            return
        self._active.remove(sequence)
        sequence.close_drafts()
        self._prefixes.keep(kept)

    def _leave(self, sequence: Decoded) -> None:
        self._active.remove(sequence)
        sequence.close_drafts()
        with suppress(InputError):
            self._model.leave(sequence.row)

    def _step(self) -> None:
        """One step: a chunk of the first prompt that is not read, and a token of other rows."""
        parts, drafts = self._parts()
        if not parts:
            return
        start = perf_counter()
        found = self._logits(parts, drafts)
        self._seconds += perf_counter() - start
        self._counts["steps"] += 1
        for each, logits in found.items():
            if each.given < len(each.prompt):
                each.given += len(parts[each])
                self._counts["prompt_tokens"] += len(parts[each])
                if each.pool is not None:
                    self._pool(each, logits)
                    continue
                if each.given < len(each.prompt):
                    continue
            draft = drafts.get(each, [])
            self._send_tokens(
                each, logits[-1 - len(draft) :] if logits.ndim > 1 else [logits], draft
            )

    def _parts(self) -> tuple[dict[Decoded, numpy.ndarray], dict[Decoded, list[int]]]:
        """The new tokens of a step, and the drafts among them. Prompts beside the first one are
        read if they fit into the chunk, or one token of them is left, as where prompts are shared.
        """
        parts: dict[Decoded, numpy.ndarray] = {}
        drafts: dict[Decoded, list[int]] = {}
        room = self._chunk  # for prompts
        for each in list(self._active):
            if each.given < len(each.prompt):
                count = min(len(each.prompt) - each.given, self._chunk)
                if count > room < self._chunk or (each.row < 0 and not self._begin_row(each)):
                    continue
                parts[each] = each.prompt[each.given : each.given + self._chunk]
                room -= len(parts[each]) if len(parts[each]) > 1 else 0
            else:
                drafts[each] = each.draft()
                parts[each] = numpy.array([each.made[-1], *drafts[each]], each.prompt.dtype)
        return parts, drafts

    def _pool(self, sequence: Decoded, hidden: numpy.ndarray) -> None:
        """Take the hidden states of a chunk; the last one ends the sequence."""
        assert sequence.pool is not None
        sequence.pool.add(hidden)
        if sequence.given >= len(sequence.prompt):
            sequence.send(sequence.pool.vector())
            with self._lock:
                self._leave(sequence)

    def _logits(
        self, parts: Mapping[Decoded, numpy.ndarray], drafts: Mapping[Decoded, Sequence[int]]
    ) -> dict[Decoded, numpy.ndarray]:
        """The logits of new tokens. After an error, which leaves caches as they were, each
        sequence has a step of its own, and those that fail again end."""
        try:
            return self._call_model(parts, drafts)
        except Exception as error:
            if len(parts) == 1 or not isinstance(error, UserError):
                for each in parts:
                    each.send(error)
                    self._leave(each)
                return {}
        found: dict[Decoded, numpy.ndarray] = {}
        for each, part in parts.items():
            found.update(self._logits({each: part}, drafts))
        return found

    def _call_model(
        self, parts: Mapping[Decoded, numpy.ndarray], drafts: Mapping[Decoded, Sequence[int]]
    ) -> dict[Decoded, numpy.ndarray]:
        results = self._model.step({
            each.row: self._inputs(each, part, len(drafts.get(each, ())))
            for each, part in parts.items()
        })  # fmt: skip
        logits = results[self._result] if self._result else next(iter(results.values()))
        hidden = results.get(HIDDEN, logits)
        return {each: (logits if each.pool is None else hidden)[n] for n, each in enumerate(parts)}

    def _inputs(self, sequence: Decoded, part: numpy.ndarray, drafted: int) -> Any:
        if sequence.pool is not None:
            return {self._tokens: part, PICKS: [], STATES: sequence.pool.places(len(part))}
        if drafted:
            return {self._tokens: part, PICKS: numpy.arange(-1 - drafted, 0)}
        if len(self._model.row_inputs) == 1:
            return part
        first = self._model.length(sequence.row)
        positions = numpy.arange(first, first + len(part), dtype=part.dtype)
        return {self._tokens: part, POSITIONS: positions}

    def _send_tokens(self, sequence: Decoded, logits: Any, draft: Sequence[int]) -> None:
        """Send the next tokens of a sequence: one, and more while a draft has what is chosen. End
        it where it ends."""
        chosen, fault = self._choose(sequence, logits, draft)
        if draft:
            assert sequence.drafts is not None
            right = max(len(chosen) - 1, 0)
            sequence.drafts.judge(len(draft), right)
            length = self._model.length(sequence.row)
            wrong = len(draft) - right
            self._model.forget(sequence.row, length - wrong, spare=wrong)
            self._counts["drafted_tokens"] += len(draft)
            self._counts["accepted_tokens"] += right
        if sequence.drafts is not None:
            sequence.drafts.read(chosen)
        for token in chosen:
            now = perf_counter()
            (self._between if sequence.made else self._first).add(now - sequence.sent)
            sequence.sent = now
            sequence.made.append(token)
            self._counts["tokens"] += 1
            sequence.send(token)
        if fault is not None:
            self._leave(sequence)
            sequence.send(fault)
        elif sequence.length >= sequence.longest or chosen[-1] in sequence.stop:
            with self._lock:
                self._end(sequence)
            sequence.send(END)

    def _choose(
        self, sequence: Decoded, logits: Any, draft: Sequence[int]
    ) -> tuple[list[int], Exception | None]:
        """The tokens chosen by logits, up to the first one that a draft does not have; and the
        error of the caller's function."""
        chosen: list[int] = []
        for row, drafted in zip(logits, (*draft, None)):
            try:
                chosen.append(int(sequence.choose(row)))
            except Exception as error:
                return chosen, error
            if chosen[-1] != drafted or chosen[-1] in sequence.stop:
                break
        return chosen, None


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
