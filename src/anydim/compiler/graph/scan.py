"""Scanner of one line of the graph text: consumes tokens and reports unexpected ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import NoReturn

from anydim.base.errors import GraphError, OptionError
from anydim.base.text import caret
from anydim.sizes import Size, parse

_NUMBER = re.compile(
    r"(?P<word>true|false|nan|-?inf)\b|(?P<float>-?\d+(?:\.\d*(?:e[-+]?\d+)?|e[-+]?\d+))"
    r"|(?P<int>-?\d+)"
)
_WORDS = {
    "true": True, "false": False, "nan": float("nan"), "inf": float("inf"), "-inf": -float("inf")
}  # fmt: skip


class Scanner:
    """Tokens of one line, consumed one after another."""

    def __init__(self, text: str, line: int) -> None:
        self.text = text
        self.line = line
        self.at = 0
        self._skip()

    def fail(self, expected: str) -> NoReturn:
        """Raise a GraphError that states what was expected here."""
        pointer = caret(self.text, self.at)
        raise GraphError(f"graph text, line {self.line}: expected {expected}\n{pointer}")

    def match(self, pattern: str, expected: str) -> str:
        """Consume the match of a pattern here."""
        found = re.compile(pattern).match(self.text, self.at)
        if found is None:
            self.fail(expected)
        self._move(found.end())
        return found.group()

    def accept(self, token: str) -> bool:
        """Consume a token if it is next."""
        if not self.peek(token):
            return False
        self._move(self.at + len(token))
        return True

    def peek(self, token: str) -> bool:
        return self.text.startswith(token, self.at)

    def take(self, token: str) -> None:
        if not self.accept(token):
            self.fail(f"'{token}'")

    def one_of(self, tokens: Iterable[str]) -> str:
        """Consume the longest of these tokens that is next."""
        found = [token for token in sorted(tokens, key=len) if self.peek(token)]
        if not found:
            self.fail(" or ".join(tokens))
        self.take(found[-1])
        return found[-1]

    def accept_of(self, words: Iterable[str]) -> str:
        """Consume the next word if it is one of `words`; else return ''."""
        found = re.compile(r"[\w./$#@]+").match(self.text, self.at)
        if found is None or found.group() not in words:
            return ""
        self._move(found.end())
        return found.group()

    def word(self) -> str:
        return self.match(r"[\w.$#@]+", "a word")

    def name(self) -> str:
        """Consume a name, bare or in quotes."""
        if self.peek('"'):
            return self.string()
        return self.match(r"[A-Za-z_/][\w./$#@]*", "a name")

    def string(self) -> str:
        text = self.match(r'"(?:[^"\\]|\\.)*"', "a string in quotes")
        try:
            return str(json.loads(text))
        except ValueError:
            self.fail("a string as in JSON")

    def integer(self) -> int:
        return int(self.match(r"\d+", "an integer"))

    def number(self) -> int | float | bool | None:
        """Consume a number or truth value if it is next."""
        found = _NUMBER.match(self.text, self.at)
        if found is None:
            return None
        self._move(found.end())
        if found["word"]:
            return _WORDS[found["word"]]
        return float(found["float"]) if found["float"] else int(found["int"])

    def size(self) -> Size:
        """Consume a size expression in braces."""
        return self._size(self.match(r"\{[^{}]*\}", "a size in braces")[1:-1])

    def shape(self) -> tuple[Size, ...]:
        """Consume sizes in brackets, separated by commas."""
        inner = self.match(r"\[[^\[\]]*\]", "a shape in brackets")[1:-1]
        parts, depth, start = [], 0, 0
        for position, character in enumerate(inner):
            depth += {"(": 1, ")": -1}.get(character, 0)
            if character == "," and depth == 0:
                parts.append(inner[start:position])
                start = position + 1
        if inner.strip():
            parts.append(inner[start:])
        return tuple(self._size(part) for part in parts)

    def at_end(self) -> bool:
        return self.at >= len(self.text)

    def end(self) -> None:
        if not self.at_end():
            self.fail("the end of the line")

    def _size(self, text: str) -> Size:
        try:
            return parse(text)
        except OptionError as error:
            self.fail(f"a size: {error.problem}")

    def _move(self, at: int) -> None:
        self.at = at
        self._skip()

    def _skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
