"""Decoders for threads: tokens of sequences that share steps (`decoding.py`)."""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

from anydim.base.errors import ArgumentError
from anydim.base.keywords import public
from anydim.serving.decoding import END, Decoding
from anydim.serving.drafts import Drafts
from anydim.serving.sampling import Choose, largest


class _Tokens(Iterator[int]):
    """The tokens of a sequence, which ends when this is closed or no longer used."""

    def __init__(self, received: queue.SimpleQueue[Any], forget: Callable[[], None]) -> None:
        self._received, self._forget, self._is_open = received, forget, True

    def __next__(self) -> int:
        found = self._received.get() if self._is_open else END
        if found is END or isinstance(found, BaseException):
            self.close()
            raise StopIteration if found is END else found
        return int(found)

    def close(self) -> None:
        """End the sequence."""
        self._is_open = False
        self._forget()
        self._received.put(END)  # for other threads that wait

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not finalizing():  # the decoder's thread has ended, maybe with its lock
            self.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ArgumentError("a sequence that runs is neither copied nor pickled", "read its tokens")


@public
class Decoder(Decoding):
    """Generates sequences for any threads, all in the same steps.

        decoder = Decoder(ad.cached("decoder.onnx", ragged="auto"), memory="2 GiB")
        for token in decoder.generate(prompt, most=100, stop={2}):
            print(token)

    Args:
        model: What `ad.cached(..., ragged=)` returned. Only the decoder may use it.
        memory: Most bytes of caches and of a step, by formula. A sequence that does not fit alone
            at its full length is refused; it begins when it fits beside those that run, and those
            that began last pause when all no longer fit.
        rows: Most sequences of a step.
        chunk: Tokens of a prompt that one step has.
        queue: Most sequences that wait.
        result: The result with the logits. Empty: the first one.
    """

    def generate(
        self, tokens: Any, most: int, stop: Collection[int] = (), *, choose: Choose = largest,
        priority: int = 0, deadline: float | None = None, drafts: Drafts | None = None,
    ) -> Iterator[int]:  # fmt: skip
        """Yield tokens as they are chosen. Closing the iterator ends the sequence.

        Args:
            tokens: The prompt, integers [n].
            most: Most tokens to generate.
            stop: Tokens after which the sequence ends; the last one is yielded, too.
            choose: Chooses a token by logits [vocabulary]. Default: the largest.
            priority: Sequences of higher priority begin first.
            deadline: Seconds within which the sequence must begin.
            drafts: Drafts of its next tokens, for language models. The tokens are the same.

        Raises:
            InputError: The prompt is not a vector of integers, or a token is out of bounds.
            MemoryLimitError: Its caches can never fit.
            BusyError: Too many sequences wait.
            TimeLimitError: It did not begin in time.
        """
        received: queue.SimpleQueue[Any] = queue.SimpleQueue()
        made = self._begin(tokens, most, stop, choose, received.put, priority, deadline, drafts)
        return _Tokens(received, partial(self._forget, made))

    def close(self) -> None:
        """Refuse new sequences, and wait for the running ones."""
        self._close()

    def __enter__(self) -> Decoder:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
