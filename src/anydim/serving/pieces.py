"""Incremental detokenization: the text of a sequence, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_OPEN = "\ufffd"  # what a tokenizer writes for the first bytes of a character


class Pieces:
    """Decodes the tokens of a sequence incrementally, up to a stop text.

    Text that may be part of an incomplete character or of a stop text is held back.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = ()) -> None:
        self._tokenizer, self._stop = tokenizer, stop
        self._ids: list[int] = []
        self._begin = self._read = 0  # of the tokens whose text is compared, and that have text
        self._held = ""
        self.is_stopped = False

    def add(self, token: int) -> str:
        """Add a token; return the text that is final now."""
        self._ids.append(token)
        before = self._tokenizer.decode(self._ids[self._begin : self._read])
        whole = self._tokenizer.decode(self._ids[self._begin :])
        if whole.endswith(_OPEN) or len(whole) <= len(before):
            return ""
        self._begin, self._read = self._read, len(self._ids)
        self._held += whole[len(before) :]
        return self._certain()

    def _certain(self) -> str:
        places = [(self._held.find(text), len(text)) for text in self._stop]
        ends = [(place + length, place) for place, length in places if place >= 0]
        if ends:  # the first to be complete, however tokens divide the text
            self.is_stopped = True
            found, self._held = self._held[: min(ends)[1]], ""
            return found
        keep = max((length_of_overlap(self._held, text) for text in self._stop), default=0)
        cut = len(self._held) - keep
        found, self._held = self._held[:cut], self._held[cut:]
        return found

    def end(self) -> str:
        """Return the text held back, after the last token, up to a stop text."""
        if self.is_stopped:
            return ""
        before = self._tokenizer.decode(self._ids[self._begin : self._read])
        whole = self._tokenizer.decode(self._ids[self._begin :])
        self._held += whole[len(before) :]
        found = self._certain()
        rest, self._held = self._held, ""
        return found + rest


def length_of_overlap(text: str, stop: str) -> int:
    """Return the length of the longest suffix of `text` that is a prefix of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if stop.startswith(text[-n:])), 0)
