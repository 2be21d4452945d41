"""A language model's parts, wherever they were read: decoder, tokenizer, chat template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy

from anydim.base.errors import InputError, ModelError
from anydim.base.records import dataclass
from anydim.base.user_values import check_text, short_repr
from anydim.serving.constraints import FormReader
from anydim.serving.decoded import POOLINGS
from anydim.serving.language_models.chat_template import ChatTemplate
from anydim.serving.language_models.decoder_spec import DecoderSpec
from anydim.serving.language_models.tokenizer_files import encode_text

if TYPE_CHECKING:  # a saved model has no such weights
    from anydim.serving.language_models.weight_files import DecoderWeights

LAST, MEAN = POOLINGS


@dataclass(frozen=True)
class OpenedModel:
    """A language model's parts.

    Attributes:
        name: Name of the file or folder.
        spec: The decoder.
        weights: Its weights, read on demand; None for a saved model.
        tokenizer: A `tokenizers.Tokenizer`, or None.
        template: The chat template, or None.
        stop: Tokens that end an answer.
        begin: Tokens that begin each text.
        end: Tokens behind each text whose embedding is wanted.
        pooling: How hidden states become an embedding: 'last' or 'mean'.
        reopen: Opens its files with their weights; None for a saved model.
    """

    name: str
    spec: DecoderSpec
    weights: DecoderWeights | None
    tokenizer: Any
    template: ChatTemplate | None
    stop: frozenset[int]
    begin: tuple[int, ...]
    end: tuple[int, ...] = ()
    pooling: str = LAST
    reopen: Callable[[], OpenedModel] | None = None

    def with_weights(self) -> OpenedModel:
        """The model of its files; itself if it has weights, or was saved."""
        return self if self.weights is not None or self.reopen is None else self.reopen()

    def require_tokenizer(self) -> Any:
        """The tokenizer. Raises ModelError without one."""
        if self.tokenizer is None:
            raise ModelError(f"{self.name} has no tokenizer.json",
                             "give tokenizer=, or prompts of tokens")  # fmt: skip
        return self.tokenizer

    @cached_property
    def forms(self) -> FormReader:
        """Forms of answers in the tokens of the model. Raises ModelError without a tokenizer."""
        return FormReader(self.require_tokenizer(), self.spec.vocabulary, self.stop)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, behind those that begin texts. Raises InputError for no text."""
        ids = self._ids(text, special=True)
        begin = list(self.begin)
        return ids if ids[: len(begin)] == begin else begin + ids

    def text_tokens(self, given: Any) -> numpy.ndarray:
        """The tokens of a text or a list of tokens whose embedding is wanted.

        Raises InputError for something else, unknown tokens, or more than the context.
        """
        if isinstance(given, str):
            given = self.encode(given)
            given += [token for token in self.end if given[-1:] != [token]]
        tokens = token_array(given, self.spec.vocabulary)
        if len(tokens) > self.spec.context:
            raise InputError(f"the text has {len(tokens)} tokens, and sequences at most "
                             f"{self.spec.context}", "shorten it")  # fmt: skip
        return tokens

    def chat_tokens(self, messages: Any, tools: Sequence[Any] | None = None) -> list[int]:
        """The tokens of messages in the chat template, up to where the answer begins.

        Raises:
            InputError: Malformed messages, or the template refuses them, or takes no tools.
            ModelError: The model has no chat template.
        """
        if self.template is None:
            raise ModelError(f"{self.name} has no chat template", "use generate, with a prompt")
        if tools and not self.template.takes_tools:
            raise InputError(f"the chat template of {self.name} takes no tools",
                             "leave them out, or describe them in a message")  # fmt: skip
        return self._ids(self.template.render(messages, tools), special=False)

    def _ids(self, text: Any, special: bool) -> list[int]:
        check_text(text)
        return encode_text(self.require_tokenizer(), text, special)


def token_array(given: Any, vocabulary: int, what: str = "a prompt is") -> numpy.ndarray:
    """Tokens as an array, int64 [n]; raises InputError for something else."""
    try:
        tokens = numpy.asarray(given)
    except Exception:  # an arbitrary object may raise anything
        tokens = numpy.array(None)
    if tokens.ndim != 1 or not tokens.size or tokens.dtype.kind not in "iu":
        raise InputError(f"{what} {short_repr(given)}",
                         "give a text or a list of tokens, at least one")  # fmt: skip
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= vocabulary:
        raise InputError(f"there is no token {low if low < 0 else high}",
                         f"tokens are 0 to {vocabulary - 1}")  # fmt: skip
    return tokens.astype(numpy.int64)
