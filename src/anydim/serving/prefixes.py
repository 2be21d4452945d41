"""Caches of sequences that ended, for prompts that begin as these did.

A row has the same bits however its tokens are divided into steps, so a sequence that begins with a
copy of another one's cache has the tokens that it has without.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy

LEAST = 32  # tokens that are worth a copy


class Rows(Protocol):
    """What keeping caches needs of `ad.cached(..., ragged=)`."""

    def join(self) -> int:
        """A new row."""

    def copy(self, row: int, length: int) -> int:
        """A new row with the first elements of another one."""

    def forget(self, row: int, length: int = 0, spare: int = 0) -> None:
        """Truncate the cache of a row."""

    def leave(self, row: int) -> None:
        """End a row."""

    def held_bytes(self, rows: Iterable[int]) -> int:
        """Bytes that caches of rows take now."""


class Prefix:
    """A row whose cache has `tokens`."""

    def __init__(self, row: int, tokens: numpy.ndarray) -> None:
        self.row, self.tokens = row, tokens

    def common(self, prompt: numpy.ndarray) -> int:
        """First tokens that a prompt has as well, without its last one, whose logits are needed."""
        count = min(len(self.tokens), len(prompt) - 1)
        differs = self.tokens[:count] != prompt[:count]
        return int(differs.argmax()) if differs.any() else count


class Prefixes:
    """Rows that no sequence uses, at most `most` of them; the one used last stays longest."""

    def __init__(self, model: Rows, most: int) -> None:
        self._model, self._most = model, most
        self._kept: list[Prefix] = []

    def bytes(self) -> int:
        """Bytes of their caches."""
        return self._model.held_bytes([each.row for each in self._kept])

    def keep(self, prefix: Prefix) -> None:
        """Keep a row, or let it leave if it is short."""
        if len(prefix.tokens) < LEAST:
            self._model.leave(prefix.row)
            return
        self._kept.append(prefix)
        if len(self._kept) > self._most:
            self.drop()

    def drop(self) -> bool:
        """Let the row leave that was not used for longest; return whether there was one."""
        if not self._kept:
            return False
        self._model.leave(self._kept.pop(0).row)
        return True

    def take(self, prompt: numpy.ndarray) -> Prefix | None:
        """Take the row that a prompt continues, truncated; None if none has half of its tokens in
        common with it."""
        best = self._best(prompt, self._kept)
        if best is None or 2 * best.common(prompt) < len(best.tokens):
            return None
        self._kept.remove(best)
        count = best.common(prompt)
        self._model.forget(best.row, count)
        best.tokens = best.tokens[:count]
        return best

    def row_for(self, prompt: numpy.ndarray, running: Iterable[Prefix]) -> tuple[int, int]:
        """A new row for a prompt, and how many of its first tokens the cache has: a copy of those
        of a row that is kept or `running`."""
        best = self._best(prompt, (*self._kept, *running))
        if best is None:
            return self._model.join(), 0
        count = best.common(prompt)
        return self._model.copy(best.row, count), count

    def _best(self, prompt: numpy.ndarray, known: Iterable[Prefix]) -> Prefix | None:
        """The row that has most in common with a prompt; None for fewer than `LEAST` tokens."""
        best = max(known, key=lambda each: each.common(prompt), default=None)
        if best is None or best.common(prompt) < LEAST:
            return None
        if best in self._kept:  # used last
            self._kept.remove(best)
            self._kept.append(best)
        return best
