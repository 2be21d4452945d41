"""Messages of a conversation, as chat templates take them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from anydim.base.errors import InputError
from anydim.base.user_values import short_repr

_HINT = "give a list of {'role': 'user', 'content': 'text'}"
_ROLES = {"developer": "system"}  # names of other servers


def template_messages(messages: Any) -> list[dict[str, Any]]:
    """Messages whose contents are texts, and whose arguments of calls are objects.

    Raises InputError unless messages are a list of mappings with a role and a content: a text, or
    parts that are texts.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise InputError(f"messages are {short_repr(messages)}", _HINT)
    if not messages:
        raise InputError("there are no messages", _HINT)
    return [_message(number, message) for number, message in enumerate(messages)]


def _message(number: int, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping) or not isinstance(given.get("role"), str):
        raise InputError(f"message {number} is {short_repr(given)}", _HINT)
    made, content, calls = dict(given), given.get("content"), given.get("tool_calls")
    made["role"] = _ROLES.get(made["role"], made["role"])
    if isinstance(content, list):
        made["content"] = "".join(_text_of_part(number, part) for part in content)
    elif not (isinstance(content, str) or (content is None and calls is not None)):
        raise InputError(f"message {number} has the content {short_repr(content)}", _HINT)
    if calls is None:
        made.pop("tool_calls", None)
        return made
    if not isinstance(calls, list):
        raise InputError(
            f"'tool_calls' of message {number} is {short_repr(calls)}, expected a list"
        )
    made["tool_calls"] = [_call(number, call) for call in calls]
    made.setdefault("content", None)
    return made


def _text_of_part(number: int, part: Any) -> str:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
    if not isinstance(text, str):
        kind = part.get("type") if isinstance(part, Mapping) else part
        raise InputError(f"message {number} has a part {short_repr(kind)}", "models take texts")
    return text


def _call(number: int, call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InputError(f"a tool call of message {number} has no function")
    arguments = function.get("arguments", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise InputError(f"arguments of '{function['name'][:40]}' in message {number} are no "
                             "JSON") from None  # fmt: skip
    return {**call, "function": {**function, "arguments": arguments}}
