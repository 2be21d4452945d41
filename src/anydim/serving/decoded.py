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
_NUMBERS = itertools.count()


class Rows(prefixes.Rows, Protocol):
    """What a decoder needs of `ad.cached(..., ragged=)`."""

    @property
    def row_inputs(self) -> tuple[str, ...]:
        """The inputs of each row."""

    @property
    def optional_inputs(self) -> tuple[str, ...]:
        """The inputs of rows that have a usual value."""

    def length(self, row: int) -> int:
        """The cached elements of a row."""

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
        "choose", "deadline", "drafts", "floor", "given", "is_gone", "longest", "made", "number",
        "planned", "priority", "prompt", "row", "send", "sent", "start", "stop",
    )  # fmt: skip

    def __init__(
        self, prompt: numpy.ndarray, most: int, stop: frozenset[int], choose: Choose,
        send: Callable[[Any], None], deadline: float | None, priority: int, drafts: Drafts | None,
    ) -> None:  # fmt: skip
        self.drafts = drafts
        self.prompt, self.stop, self.choose = prompt, stop, choose
        self.send, self.deadline, self.priority = send, deadline, priority
        self.start, self.longest = len(prompt), len(prompt) + most
        self.planned = self.longest  # tokens that caches and steps have room for
        self.row = -1
        self.floor = 0  # tokens that its row has room for in any case
        self.given = 0  # tokens of the prompt that steps had
        self.made: list[int] = []  # tokens that were chosen
        self.sent = perf_counter()  # its last token; before it, when it came
        self.is_gone = False
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
        """Most tokens of a step, its prompt aside: the last one, and a draft."""
        return 1 if self.drafts is None else min(1 + self.drafts.most, self.planned)

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
        self.row, self.given, self.floor = -1, 0, 0
