"""The decoders of a server: ONNX files with caches, and language models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from anydim.base.amounts import exact_bytes_text
from anydim.base.errors import InputError, MemoryLimitError, OptionError, UserError
from anydim.base.records import dataclass
from anydim.base.text import quote_list, suggestion
from anydim.serving.async_decoder import AsyncDecoder
from anydim.serving.decoding import CHUNK, POSITIONS
from anydim.serving.drafts import Drafts, ModelDrafts, PromptDrafts
from anydim.serving.language_models.paths import is_language_model
from anydim.sizes import LARGEST

if TYPE_CHECKING:
    from anydim.serving.language_models.opened import OpenedModel

DEFAULT_TOKENS = 16  # of an answer of a decoder whose context is not known


@dataclass(frozen=True)
class DraftModel:
    """A smaller language model that writes drafts: its compiled rows, and its parts."""

    rows: Any
    opened: OpenedModel

    def share(self, rows: Any, memory: int) -> int:
        """Bytes of the drafts' caches and steps within the memory of a model with these rows: both
        have room for the same tokens. Limits the caches to them; raises MemoryLimitError if no
        prompt fits."""
        own, context = self.rows, [self.opened.spec.context]
        each = own.cache_bytes(context)
        share = memory * each // (each + rows.cache_bytes(context))
        step = own.step_bytes([max(0, self.opened.spec.context - CHUNK)], [CHUNK])
        room = own.cache_room(share, step)
        if room < own.cache_bytes([1]):
            raise MemoryLimitError(
                f"caches may take {exact_bytes_text(memory)}: of these, the draft model would have "
                f"{exact_bytes_text(share)}, and its steps take {exact_bytes_text(step)}",
                "raise --memory, or leave --draft out",
            )
        own.limit_caches(room)
        return share


@dataclass(frozen=True)
class ServedDecoder:
    """A served decoder: its name, the path of its file, and what a language model has besides.

    A language model checks drafts of `speculate` tokens at most, of the `draft` model or, without
    one, of its prompt; 0: it has none.
    """

    name: str
    path: Path
    decoder: AsyncDecoder
    opened: OpenedModel | None = None
    speculate: int = 0
    draft: DraftModel | None = None

    def drafts(self) -> Drafts | None:
        """The drafts of a sequence."""
        if not self.speculate or self.opened is None:
            return None
        if self.draft is None:
            return PromptDrafts(self.speculate)
        return ModelDrafts(self.speculate, self.draft.rows, self.draft.opened.spec.context)

    def longest(self) -> int:
        """Most tokens of a sequence: those that the memory has room for, and the context."""
        most = self.decoder.longest()
        return most if self.opened is None else min(most, self.opened.spec.context)

    @property
    def vocabulary(self) -> int:
        """The number of tokens, as far as it is known."""
        return LARGEST if self.opened is None else self.opened.spec.vocabulary

    @property
    def stop(self) -> frozenset[int]:
        """Tokens that end each answer."""
        return frozenset() if self.opened is None else self.opened.stop

    def most_new(self, tokens: numpy.ndarray, most: int | None) -> int:
        """Most new tokens behind a prompt; None: what context and memory have room for.

        Raises InputError for unknown tokens, or more than the context has room for.
        """
        if self.opened is None:
            return most or DEFAULT_TOKENS
        spec = self.opened.spec
        wrong = tokens[(tokens < 0) | (tokens >= spec.vocabulary)]
        if wrong.size:
            raise InputError(f"the prompt has the token {wrong[0]}",
                             f"tokens of '{self.name}' are 0 to {spec.vocabulary - 1}")  # fmt: skip
        room = spec.context - len(tokens)
        if room < (most or 1):
            wanted = f" and 'max_tokens' {most}" if most else ""
            raise InputError(
                f"the prompt has {len(tokens)} tokens{wanted}, and sequences of '{self.name}' at "
                f"most {spec.context}", "shorten it, or give fewer",
            )  # fmt: skip
        return most or max(1, min(room, self.decoder.longest() - len(tokens)))


def divide(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The paths of language models among the models of a server, by name, and the other words."""
    found, others = dict[str, str](), list[str]()
    for word in words:
        name, equals, rest = word.partition("=")
        path = Path(rest if equals else word)
        if not is_language_model(path):
            others.append(word)
            continue
        if not equals:
            name = path.resolve().name if path.is_dir() else path.stem
        if name in found:
            raise OptionError(f"two models are called '{name}'", "name one: NAME=PATH")
        found[name] = str(path)
    return found, others


def warm_up(model: Any) -> None:
    """Run a step with a chunk of a prompt, so that its memory is there; `model` is what
    `ad.cached(..., ragged=)` returned."""
    row = model.join()
    try:
        for count in (CHUNK, 1):
            tokens = numpy.zeros(count, numpy.int64)
            given: Any = tokens
            if len(model.row_inputs) > 1:
                given = {name: numpy.arange(count) if name == POSITIONS else tokens
                         for name in model.row_inputs}  # fmt: skip
            model.forget(row)
            with suppress(UserError):  # it takes fewer tokens
                model.step({row: given})
    finally:
        model.leave(row)


def find(known: Mapping[str, ServedDecoder], name: Any) -> ServedDecoder:
    """Return the decoder with a name, or the only one for None; raises OptionError."""
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    if not isinstance(name, str):
        raise InputError(f"'model' is {name!r}, expected a name")
    if name not in known:
        hint = suggestion(name, known) or f"decoders: {quote_list(known) or 'none'}"
        raise OptionError(f"there is no decoder '{name}'", hint)
    return known[name]
