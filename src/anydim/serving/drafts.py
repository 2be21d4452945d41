"""Drafts of next tokens, which a step checks together: speculative decoding.

A step that has the last token and a draft gives the logits behind each of them. The sequence
chooses by these one after another, as it does without drafts, and goes on while its choice is the
draft's next token: it has the same tokens, by the same logits, in fewer steps (Leviathan et al.
2023, arXiv:2211.17192, with choices compared instead of probabilities).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any, Protocol

import numpy

from anydim.base.errors import OptionError, UserError

NGRAM = 3  # tokens that occurred before, whose continuation is a draft
MOST_DRAFT = 64  # tokens
USUAL_DRAFT = 4  # tokens, where a draft model is given alone
_MOST_REST = 32  # steps without a draft, after drafts that failed
_CHUNK = 128  # tokens of a prompt that a step of a draft model has


def draft_length(speculate: int | None, has_model: bool) -> int:
    """Tokens of a draft of the command line: none by default without a draft model. Raises
    OptionError for a draft model without drafts."""
    if has_model and speculate == 0:
        raise OptionError("--draft has no effect with --speculate 0", "give --speculate 4")
    return (USUAL_DRAFT if has_model else 0) if speculate is None else speculate


def check_draft(vocabulary: int, own: int) -> None:
    """Raise OptionError for a draft model whose vocabulary is not `own`, that of the model."""
    if vocabulary != own:
        raise OptionError(f"the draft model has {vocabulary} tokens, and the model {own}",
                          "both need the same tokenizer")  # fmt: skip


class Drafts:
    """Drafts for one sequence: longer after those that were right, rarer after wrong ones.

    Args:
        most: Most tokens of a draft.
    """

    def __init__(self, most: int) -> None:
        self.most, self._length = most, min(2, most)
        self._misses = self._rest = 0

    def read(self, tokens: Sequence[int]) -> None:
        """Take the next tokens of the sequence: the prompt first."""
        raise NotImplementedError

    def offer(self, room: int) -> list[int]:
        """A draft of what follows, at most `room` tokens; may be empty."""
        if self._rest or room < 1:
            self._rest -= self._rest > 0
            return []
        return self._find(min(self._length, room))

    def judge(self, offered: int, right: int) -> None:
        """Learn how many of the tokens offered last were right."""
        if right == 0:
            self._misses += 1
            self._rest = min(1 << self._misses, _MOST_REST)
            self._length = 1
        else:
            self._misses = 0
            self._length = min(self.most, 2 * offered if right == offered else right + 1)

    def _find(self, count: int) -> list[int]:
        raise NotImplementedError

    def close(self) -> None:
        """Hold no memory until the next draft."""


class PromptDrafts(Drafts):
    """The continuation of the last tokens where they occurred before (prompt lookup decoding,
    Saxena 2023)."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}  # where an n-gram ended last

    def read(self, tokens: Sequence[int]) -> None:
        """Take the next tokens of the sequence."""
        known = self._tokens
        for token in tokens:
            if len(known) >= NGRAM:
                self._after[tuple(known[-NGRAM:])] = len(known)
            known.append(token)

    def _find(self, count: int) -> list[int]:
        known = self._tokens
        at = self._after.get(tuple(known[-NGRAM:]))
        if at is None:
            return []
        period = len(known) - at  # a draft beyond the end repeats itself
        return [known[at + number % period] for number in range(count)]


class DraftRows(Protocol):
    """What drafts need of the compiled decoder of a smaller model."""

    def join(self) -> int:
        """A new row."""

    def leave(self, row: int) -> None:
        """End a row."""

    def length(self, row: int) -> int:
        """The cached elements of a row."""

    def forget(self, row: int, length: int = 0, spare: int = 0) -> None:
        """Truncate the cache of a row."""

    def step(self, rows: Mapping[int, Any]) -> dict[str, Any]:
        """Run a step; logits come first."""


class ModelDrafts(Drafts):
    """The likeliest tokens of a smaller model, in a row of its own.

    An error of the model, as of its memory, ends the drafts and not the sequence.

    Args:
        most: Most tokens of a draft.
        model: The smaller model's decoder.
        context: Most tokens of its sequences.
    """

    def __init__(self, most: int, model: DraftRows, context: int) -> None:
        super().__init__(most)
        self._model, self._context = model, context
        self._tokens: list[int] = []
        self._row: int | None = None
        self._read = 0  # tokens of the sequence that the row has read; then come those it drafted
        self._drafted: list[int] = []
        self._is_over = False

    def read(self, tokens: Sequence[int]) -> None:
        """Take the next tokens of the sequence."""
        self._tokens += tokens

    def _find(self, count: int) -> list[int]:
        count = min(count, self._context - len(self._tokens))
        if self._is_over or count < 1:
            return []
        try:
            return self._draft(count)
        except UserError:
            self.close()
            self._is_over = True
            return []

    def _draft(self, count: int) -> list[int]:
        model, tokens = self._model, self._tokens
        if self._row is None:
            self._row = model.join()
        later = zip(self._drafted, tokens[self._read :])
        right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], later))
        kept = min(self._read + right, len(tokens) - 1)
        model.forget(self._row, kept, spare=len(tokens) - kept + count)
        rest = tokens[model.length(self._row) :]
        for begin in range(0, len(rest), _CHUNK):
            made = [self._likeliest(rest[begin : begin + _CHUNK])]
        while len(made) < count:
            made.append(self._likeliest(made[-1:]))
        self._read, self._drafted = len(tokens), made[:-1]
        return made

    def _likeliest(self, tokens: list[int]) -> int:
        assert self._row is not None
        logits = next(iter(self._model.step({self._row: numpy.array(tokens)}).values()))[0]
        return int(logits[-1].argmax())

    def close(self) -> None:
        """Let the row leave; the next draft reads all tokens again."""
        if self._row is not None:
            with suppress(UserError):  # it has left
                self._model.leave(self._row)
        self._row, self._read, self._drafted = None, 0, []
