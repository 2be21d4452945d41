"""The form of answers that a request wants: JSON by a schema, a regular expression, a grammar, or a
call of a function."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anydim.base.errors import InputError
from anydim.serving.constraints import ANY_OBJECT, AnswerForm
from anydim.serving.server.json_bodies import short_json
from anydim.serving.tool_calls import ToolFormat

if TYPE_CHECKING:
    from anydim.serving.language_models.opening import OpenedModel

FIELDS = ("response_format", "structured_outputs", "tool_choice")  # of requests; slow to read
_KINDS = ("json", "regex", "grammar")


def form_of_answers(opened: OpenedModel | None, head: Mapping[str, Any]) -> AnswerForm | None:
    """The form by `response_format`, or by `structured_outputs`, as clients of vLLM write it.

    Raises InputError for malformed ones, MissingError without the package.
    """
    found = [each for each in (_by_response_format(head.get("response_format")),
                               _by_kind(head.get("structured_outputs"))) if each]  # fmt: skip
    if len(found) > 1:
        raise InputError("'response_format' and 'structured_outputs' are given", "give one of them")
    if not found:
        return None
    if opened is None:
        raise InputError("answers of ONNX files have no form", "serve a language model")
    kind, value = found[0]
    made: AnswerForm = getattr(opened.forms, kind)(value)
    return made


def form_of_calls(
    opened: OpenedModel, tools: Sequence[Any], form: ToolFormat | None, other: AnswerForm | None
) -> AnswerForm:
    """The form of a call of one of some functions. Raises InputError for a model that writes calls
    in a way that is not known, or parameters that are no schema."""
    if form is None:
        raise InputError("'tool_choice' cannot be ensured: the chat template does not tell how "
                         "the model writes calls", "give auto or none")  # fmt: skip
    if other is not None:
        raise InputError("an answer is a call or has a 'response_format'", "leave one of them out")
    functions = [tool["function"] for tool in tools]
    for function in functions:
        if not isinstance(function.get("parameters", {}), dict):
            raise InputError(f"parameters of '{function['name'][:40]}' are no schema")
    return opened.forms.calls(functions, form.begin, form.end)


def _by_response_format(given: Any) -> tuple[str, Any] | None:
    kind = given.get("type") if isinstance(given, dict) else given
    if given is None or kind == "text":
        return None
    if not isinstance(given, dict) or kind not in ("json_object", "json_schema"):
        raise InputError(f"'response_format' is {short_json(kind)}",
                         'give {"type": "text"}, json_object or json_schema')  # fmt: skip
    if kind == "json_object":
        return "json", ANY_OBJECT
    inner = given.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, dict) else None
    if not isinstance(schema, dict):
        raise InputError(f"the 'schema' of 'response_format' is {short_json(schema)}",
                         'give "json_schema": {"name": ..., "schema": {...}}')  # fmt: skip
    return "json", schema


def _by_kind(given: Any) -> tuple[str, Any] | None:
    if given is None:
        return None
    wants = [kind for kind in _KINDS if isinstance(given, dict) and given.get(kind) is not None]
    if len(wants) != 1 or len(given) != 1:
        raise InputError(f"'structured_outputs' is {short_json(given)}",
                         "give an object with one of json, regex and grammar")  # fmt: skip
    value = given[wants[0]]
    if wants[0] == "json" and isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise InputError("'json' of 'structured_outputs' is no JSON") from None
    return wants[0], value
