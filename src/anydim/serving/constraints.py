"""Answers of a form: JSON by a schema, a regular expression, or a grammar.

llguidance (the extra `guide`) tells which tokens may come next; the others have no probability. A
form is of one sequence: its tokens do not depend on company.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

import numpy

from anydim.base.errors import InputError, MissingError, ModelError
from anydim.base.missing_package import install
from anydim.base.records import dataclass
from anydim.base.user_values import short_repr

MOST_TEXT = 1 << 16  # characters of a schema or grammar
_SPACE = (
    r"\x20|\x0A{1,2}[\x20\x09]{0,20}"  # between parts of JSON; unbounded, some models never end
)
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
_LIMITS = {
    "initial_lexer_fuel": 1_000_000, "max_grammar_size": 100_000, "max_lexer_states": 20_000,
    "verbose_errors": False,
}  # fmt: skip


@dataclass(frozen=True)
class AnswerForm:
    """The form of answers to a request: a matcher of the library, at the begin of an answer."""

    matcher: Any

    def begin(self) -> Constraint:
        """The form for one sequence, from its first token."""
        return Constraint(self)


class Constraint:
    """The tokens that may come next in one sequence."""

    def __init__(self, form: AnswerForm) -> None:
        self._matcher = form.matcher.deep_copy()

    def allow(self, logits: numpy.ndarray) -> numpy.ndarray:
        """Logits without the tokens that may not come next. Raises InputError if none may."""
        bits = numpy.frombuffer(self._matcher.compute_bitmask(), numpy.uint8)
        allowed = numpy.unpackbits(bits, count=len(logits), bitorder="little").view(bool)
        if self._matcher.is_error() or not allowed.any():
            reason = self._matcher.get_error().partition("\n")[0] or "no token may come next"
            raise InputError(f"the form of the answer cannot be kept: {reason}", "simplify it")
        return numpy.where(allowed, logits, -numpy.inf)

    def note(self, token: int) -> None:
        """Take the token that was chosen."""
        self._matcher.consume_token(token)


class FormReader:
    """Makes forms for the tokens of a model; the library reads its tokenizer once.

    Args:
        tokenizer: A `tokenizers.Tokenizer`.
        vocabulary: Tokens of the model, at least those of the tokenizer.
        stop: Tokens that end an answer.
    """

    def __init__(self, tokenizer: Any, vocabulary: int, stop: Collection[int]) -> None:
        self._tokenizer, self._vocabulary, self._stop = tokenizer, vocabulary, sorted(stop)
        self._tokens: Any = None

    def json(self, schema: Any) -> AnswerForm:
        """JSON by a schema, a mapping or a boolean. Raises InputError for one that is none, or
        that is not supported."""
        text = _schema_text(schema)
        return self._form(lambda matcher: matcher.grammar_from_json_schema(
            text, overrides={"whitespace_pattern": _SPACE}), "JSON schema")  # fmt: skip

    def regex(self, pattern: Any) -> AnswerForm:
        """Texts that a regular expression matches as a whole, without look-around."""
        _check_text(pattern, "a regular expression")
        return self._form(lambda matcher: matcher.grammar_from_regex(pattern), "regular expression")

    def grammar(self, text: Any) -> AnswerForm:
        """Texts of a grammar in Lark's notation, whose first rule is `start`."""
        _check_text(text, "a grammar")
        return self._form(lambda matcher: matcher.grammar_from_lark(text), "grammar")

    def calls(self, tools: Collection[Mapping[str, Any]], begin: str, end: str) -> AnswerForm:
        """A call of one of some functions (`tool_calls.py`), between two texts."""
        parts = [
            {"type": "object", "additionalProperties": False, "required": ["name", "arguments"],
             "properties": {"name": {"const": tool["name"]},
                            "arguments": tool.get("parameters") or ANY_OBJECT}}
            for tool in tools
        ]  # fmt: skip
        schema = _schema_text({"anyOf": parts, "x-guidance": {"whitespace_pattern": _SPACE}})
        call = f'{json.dumps(begin)} "\\n"? call "\\n"? {json.dumps(end)}' if begin else "call"
        text = f"start: {call}\ncall: %json {schema}\n"
        return self._form(lambda matcher: matcher.grammar_from_lark(text), "schema of a function")

    def _form(self, make: Callable[[Any], str], what: str) -> AnswerForm:
        library, tokens = _library(), self._own_tokens()
        limits = library.LLParserLimits(**_LIMITS)
        try:
            made = library.LLMatcher(tokens, make(library.LLMatcher), log_level=0, limits=limits)
            reason = made.get_error()
        except (ValueError, RecursionError) as error:
            reason = str(error)
        if reason:
            raise InputError(f"the {what} is not supported: {' '.join(reason.split())[:200]}",
                             "see the documentation of llguidance")  # fmt: skip
        return AnswerForm(made)

    def _own_tokens(self) -> Any:
        if not self._stop:
            raise ModelError("the model has no token that ends answers",
                             "its answers have no form")  # fmt: skip
        if self._tokens is None:
            text, count = self._tokenizer.to_str(), self._vocabulary
            try:
                made = _library().LLTokenizer(text, n_vocab=count, eos_token=self._stop)
            except ValueError as error:
                raise ModelError(
                    f"the tokens of the model do not give forms of answers: {error}",
                    "its tokenizer.json needs a decoder of bytes: ByteLevel or ByteFallback",
                ) from None
            self._tokens = made
        return self._tokens


def _library() -> Any:
    try:
        return import_module("llguidance")
    except ModuleNotFoundError as error:
        raise MissingError("answers of a form need the package llguidance",
                           install("guide")) from error  # fmt: skip


def _schema_text(schema: Any) -> str:
    schema = {} if schema is True else schema
    if not isinstance(schema, Mapping):
        raise InputError(f"a JSON schema is {short_repr(schema)}", "give an object, or True")
    try:
        text = json.dumps(dict(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"a JSON schema is no JSON: {error}") from None
    _check_text(text, "a JSON schema")
    return text


def _check_text(text: Any, what: str) -> None:
    if not isinstance(text, str):
        raise InputError(f"{what} is {short_repr(text)}", "give a text")
    if len(text) > MOST_TEXT:
        raise InputError(f"{what} has {len(text)} characters", f"at most {MOST_TEXT}")
