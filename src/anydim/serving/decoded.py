"""A sequence that is decoded, and what decoding needs of a compiled model."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol

import numpy

from anydim.serving import prefixes
from anydim.serving.drafts import Drafts
from anydim.serving.sampling import Choose

HEADROOM = 128  # tokens that a sequence has room for, beyond those that it has
PICKS = "picks"  # the optional input that says whose logits a step computes
STATES = "states"  # the optional input that says whose hidden states a step has
HIDDEN = "hidden"  # their result
POOLINGS = ("last", "mean")
_NUMBERS = itertools.count()


class Pool:
    """The hidden states of a prompt as one vector: that of the last token, or their mean."""

    def __init__(self, kind: str) -> None:
        self.is_mean = kind == "mean"
        self.clear()

    def clear(self) -> None:
        """Forget what was added."""
        self._sum: numpy.ndarray | float = 0.0
        self._count = 0

    def places(self, count: int) -> numpy.ndarray:
        """The tokens of a chunk whose hidden states are needed, as `states` takes them."""
        return numpy.arange(count) if self.is_mean else numpy.array([-1])

    def add(self, hidden: numpy.ndarray) -> None:
        """Take the hidden states of a chunk [n, width]."""
        if not self.is_mean:
            self.clear()
        self._sum = self._sum + hidden.sum(axis=0, dtype=numpy.float64)
        self._count += len(hidden)

    def vector(self) -> numpy.ndarray:
        """The vector, float32 [width]."""
        return numpy.asarray(self._sum / max(self._count, 1), numpy.float32)


def unit(vector: numpy.ndarray, dimensions: int | None = None) -> numpy.ndarray:
    """The first elements of a vector, scaled to length 1; a vector of zeros stays one."""
    part = vector[:dimensions].astype(numpy.float64)
    length = float(numpy.sqrt((part * part).sum()))
    made: numpy.ndarray = (part / length if length else part).astype(numpy.float32)
    return made


class Rows(prefixes.Rows, Protocol):
    """What a decoder needs of `ad.cached(..., ragged=)`."""

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows that have joined and not left."""

    @property
    def row_inputs(self) -> tuple[str, ...]:
        """The inputs of each row."""

    @property
    def optional_inputs(self) -> tuple[str, ...]:
        """The inputs of rows that have a usual value."""

    def length(self, row: int) -> int:
        """The cached elements of a row."""

    def cache_bytes(self, lengths: Sequence[int]) -> int:
        """Bytes of the caches of rows of these lengths."""

    def step_bytes(
        self, lengths: Sequence[int], new: Sequence[int],
        optional: Mapping[str, Sequence[int]] | None = None,
    ) -> int:  # fmt: skip
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
        "choose", "deadline", "drafts", "given", "has_begun", "is_gone", "longest", "made",
        "number", "planned", "pool", "priority", "prompt", "row", "send", "sent", "start", "stop",
    )  # fmt: skip

    def __init__(
        self, prompt: numpy.ndarray, most: int, stop: frozenset[int], choose: Choose,
        send: Callable[[Any], None], deadline: float | None, priority: int, drafts: Drafts | None,
    ) -> None:  # fmt: skip
        self.drafts = drafts
        self.pool: Pool | None = None  # its hidden states are wanted, and no token
        self.prompt, self.stop, self.choose = prompt, stop, choose
        self.send, self.deadline, self.priority = send, deadline, priority
        self.start, self.longest = len(prompt), len(prompt) + most
        self.planned = self.longest  # tokens that caches and steps have room for
        self.row = -1
        self.given = 0  # tokens of the prompt that steps had
        self.made: list[int] = []  # tokens that were chosen
        self.sent = perf_counter()  # its last token; before it, when it came
        self.has_begun = self.is_gone = False
        self.number = next(_NUMBERS)

    @property
    def order(self) -> tuple[int, int]:
        """The least one begins first, and gives up its row last."""
        return -self.priority, self.number

    @property
    def length(self) -> int:
        """Its tokens so far."""
        return self.start + len(self.made)

    @property
    def width(self) -> int:
        """Most tokens of a step behind its prompt: the last one, and a draft."""
        return 1 if self.drafts is None else min(1 + self.drafts.most, self.planned)

    @property
    def reads_all(self) -> bool:
        """Whether each of its tokens needs a step, as for the mean of all."""
        return self.pool is not None and self.pool.is_mean

    def draft(self) -> list[int]:
        """A draft of its next tokens that caches and steps have room for."""
        if self.drafts is None:
            return []
        return self.drafts.offer(min(self.planned - self.length, self.longest - self.length - 1))

    def close_drafts(self) -> None:
        """Its row is given up: drafts hold no memory."""
        if self.drafts is not None:
            self.drafts.close()

    def plan(self) -> None:
        """Plan room for its next tokens."""
        self.planned = min(self.longest, self.length + HEADROOM)

    def tokens(self) -> numpy.ndarray:
        """All tokens so far."""
        more = numpy.array(self.made[len(self.prompt) - self.start :], self.prompt.dtype)
        return numpy.concatenate([self.prompt, more])

    def pause(self) -> None:
        """Read all tokens again, in the row that it has next."""
        self.prompt = self.tokens()
        self.row, self.given = -1, 0
        if self.pool is not None:
            self.pool.clear()
