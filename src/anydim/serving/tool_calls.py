"""Calls of functions in the answers of language models.

Models write calls as they were trained to; their chat templates tell how. Known are JSON between
`<tool_call>` and `</tool_call>` (Qwen, Hermes, SmolLM), and answers that are JSON alone, an object
or a list of them (Llama 3, Mistral):

    {"name": "weather", "arguments": {"city": "Paris"}}

Text that looks like a call and is none stays text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from anydim.base.records import dataclass
from anydim.serving.pieces import length_of_overlap


@dataclass(frozen=True)
class ToolFormat:
    """How a model writes calls: between two texts, or as the whole answer."""

    begin: str = ""
    end: str = ""


@dataclass(frozen=True)
class ToolCall:
    """A call: the name of a function, and its arguments as JSON."""

    name: str
    arguments: str


_TAGGED, _WHOLE = ToolFormat("<tool_call>", "</tool_call>"), ToolFormat()
_SIGNS = (("<tool_call>", _TAGGED), ("[TOOL_CALLS]", _WHOLE), ("<|python_tag|>", _WHOLE),
          ('"parameters":', _WHOLE))  # fmt: skip
"""Texts in templates, and the formats of the models that have them."""


def tool_format(template: str) -> ToolFormat | None:
    """The format of calls of a model with this chat template; None if it is not known."""
    return next((form for sign, form in _SIGNS if sign in template), None)


class ToolReader:
    """Divides an answer into text and calls, piece by piece. Without a format, all is text."""

    def __init__(self, form: ToolFormat | None) -> None:
        self._form, self._held = form, ""

    def read(self, text: str, is_last: bool) -> tuple[str, list[ToolCall]]:
        """The text and calls that a piece completes; text that may be of a call is held back."""
        if self._form is None:
            return text, []
        self._held += text
        if not self._form.begin:
            return self._read_whole(is_last)
        found, calls = "", list[ToolCall]()
        while True:
            before, begin, rest = self._held.partition(self._form.begin)
            if not begin:
                keep = 0 if is_last else length_of_overlap(self._held, self._form.begin)
                cut = len(self._held) - keep
                found, self._held = found + self._held[:cut], self._held[cut:]
                break
            inner, end, after = rest.partition(self._form.end)
            if not end and not is_last:
                found, self._held = found + before, begin + rest
                break
            made = _calls(inner)
            found += before if made else before + begin + inner + end
            calls += made
            self._held = after
        return ("" if calls and found.isspace() else found), calls

    def _read_whole(self, is_last: bool) -> tuple[str, list[ToolCall]]:
        start = self._held.lstrip()[:1]
        if not is_last and start in ("", "{", "["):
            return "", []
        text, self._held = self._held, ""
        made = _calls(text) if is_last and start in ("{", "[") else []
        return ("", made) if made else (text, [])


def _calls(text: str) -> list[ToolCall]:
    """The calls of JSON; none if it is something else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    many: Sequence[Any] = found if isinstance(found, list) else [found]
    made = [_call(each) for each in many]
    return [call for call in made if call is not None] if None not in made else []


def _call(found: Any) -> ToolCall | None:
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return None
    arguments = found.get("arguments", found.get("parameters", {}))
    if isinstance(arguments, str):
        return ToolCall(found["name"], arguments)
    return ToolCall(found["name"], json.dumps(arguments, ensure_ascii=False))
