"""Calls of functions in the answers of language models.

Models write calls as they were trained to; their chat templates tell how. Known are JSON between
`<tool_call>` and `</tool_call>` (Qwen, Hermes, SmolLM), and answers that are JSON alone, an object
or a list of them (Llama 3, Mistral):

    {"name": "weather", "arguments": {"city": "Paris"}}

Text that looks like a call and is none stays text. In streams, a call begins once its name is
known, and its arguments are passed on as they come.
"""

from __future__ import annotations

import json
import re
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
    """A call: the name of a function, and its arguments as JSON; or more arguments of the call
    before, without a name."""

    name: str
    arguments: str


_TAGGED, _WHOLE = ToolFormat("<tool_call>", "</tool_call>"), ToolFormat()
_SIGNS = (("<tool_call>", _TAGGED), ("[TOOL_CALLS]", _WHOLE), ("<|python_tag|>", _WHOLE),
          ('"parameters":', _WHOLE))  # fmt: skip
"""Texts in templates, and the formats of the models that have them."""


def tool_format(template: str) -> ToolFormat | None:
    """The format of calls of a model with this chat template; None if it is not known."""
    return next((form for sign, form in _SIGNS if sign in template), None)


_HEAD = re.compile(
    r'\s*\{\s*"name"\s*:\s*"([^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)
_BETWEEN = " \t\r\n{}[],;"  # what is between the arguments of a call and the next one


class ToolReader:
    """Divides an answer into text and calls, piece by piece. Without a format, all is text.

    With `in_pieces`, calls come before they are complete.
    """

    def __init__(self, form: ToolFormat | None, in_pieces: bool = False) -> None:
        self._form, self._in_pieces, self._held = form, in_pieces, ""
        self._arguments: _Object | None = None  # of the call that is open
        self._is_behind = False  # behind the arguments of a call

    def read(self, text: str, is_last: bool) -> tuple[str, list[ToolCall]]:
        """The text and calls that a piece completes; text that may be of a call is held back."""
        if self._form is None:
            return text, []
        self._held += text
        calls = self._open_call()
        if self._arguments is not None or self._is_behind:
            return "", calls
        if not self._form.begin:
            found, more = self._read_whole(is_last)
        else:
            found, more = self._read_tagged(self._form, is_last)
        calls += more
        return ("" if calls and found.isspace() else found), calls

    def _read_tagged(self, form: ToolFormat, is_last: bool) -> tuple[str, list[ToolCall]]:
        found, calls = "", list[ToolCall]()
        while True:
            before, begin, rest = self._held.partition(form.begin)
            if not begin:
                keep = 0 if is_last else length_of_overlap(self._held, form.begin)
                cut = len(self._held) - keep
                return found + self._held[:cut], calls + self._hold(self._held[cut:])
            if self._in_pieces and _HEAD.match(rest):
                self._held = rest
                calls += self._begin_call()
                if self._arguments is not None or self._is_behind:
                    return found + before, calls
                found += before
                continue
            inner, end, after = rest.partition(form.end)
            if not end and not is_last:
                return found + before, calls + self._hold(begin + rest)
            made = _calls(inner)
            found += before if made else before + begin + inner + end
            calls += made
            self._held = after

    def _hold(self, text: str) -> list[ToolCall]:
        self._held = text
        return []

    def _read_whole(self, is_last: bool) -> tuple[str, list[ToolCall]]:
        held = self._held.lstrip(" \t\r\n[")
        if self._in_pieces and _HEAD.match(held):
            self._held = held
            return "", self._begin_call()
        start = self._held.lstrip()[:1]
        if not is_last and start in ("", "{", "["):
            return "", []
        text, self._held = self._held, ""
        made = _calls(text) if is_last and start in ("{", "[") else []
        return ("", made) if made else (text, [])

    # ---- calls in pieces -------------------------------------------------------------------------

    def _begin_call(self) -> list[ToolCall]:
        """Begin the call whose head is held, with the arguments that are there."""
        head = _HEAD.match(self._held)
        assert head is not None
        self._held, self._arguments = self._held[head.end() :], _Object()
        return [ToolCall(head[1], ""), *self._open_call()]

    def _open_call(self) -> list[ToolCall]:
        """More arguments of the call that is open, and the next call of a list."""
        made = list[ToolCall]()
        if self._arguments is not None:
            count = self._arguments.count(self._held)
            made += [ToolCall("", self._held[:count])] if count else []
            self._held, self._is_behind = self._held[count:], self._arguments.is_whole
            if self._is_behind:
                self._arguments = None
        if self._is_behind and self._form is not None and self._form.begin:
            _, end, after = self._held.partition(self._form.end)
            if end:
                self._held, self._is_behind = after, False
        elif self._is_behind and _HEAD.match("{" + self._held.lstrip(_BETWEEN)):
            self._held, self._is_behind = "{" + self._held.lstrip(_BETWEEN), False
            made += self._begin_call()
        return made


class _Object:
    """Finds the end of an object of JSON that comes in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_text = self._is_escaped = self.is_whole = False

    def count(self, text: str) -> int:
        """The characters of a piece that belong to the object."""
        for number, char in enumerate(text):
            if self._is_escaped:
                self._is_escaped = False
            elif self._in_text:
                self._is_escaped, self._in_text = char == "\\", char != '"'
            elif char == '"':
                self._in_text = True
            elif char in "{}":
                self._depth += 1 if char == "{" else -1
                if self._depth == 0:
                    self.is_whole = True
                    return number + 1
        return len(text)


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
