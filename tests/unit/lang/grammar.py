"""Random texts of the grammar in docs/language.md."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "language.md"
DEEPEST = 14  # rules within each other, from which on the shortest alternative is taken
TOKENS = {
    "NAME": ("x", "y", "i", "j", "t", "N", "M", "float", "T", "f", "g", "min", "exp"),
    "NUMBER": ("0", "1", "2", "3", "0.5", "1e3", "1e400", "9" * 39, "9" * 45),
    "ELLIPSIS": ("...s", "...p"),
    "DIMENSION": ("x.0", "y.1", "i.99"),
    "ASSIGN": ("=", "+=", "+=!", "max=!", "min=", "*=!"),
    "OPERATOR": ("+", "-", "*", "/", "//", "%", "<", "==", "&&", "|", ">>"),
    "PREFIX": ("-", "!", "~"),
}
Choice = list[list[tuple[str, str]]]  # alternatives of symbols, each with `?`, `*`, `+` or nothing
_SYMBOL = re.compile(r'"[^"]+"|\w+|[][()|*+]')


class Grammar:
    """The rules of the page; parentheses and brackets become rules of their own."""

    def __init__(self) -> None:
        self.rules: dict[str, Choice] = {}
        self._numbers = count()
        block = re.search(r"```grammar\n(.*?)```", PAGE.read_text("utf-8"), re.S)
        assert block is not None
        for line in filter(None, block[1].splitlines()):
            name, _, right = line.partition(": ")
            self.rules[name] = self._choice(iter(_SYMBOL.findall(right)), "")
        self._least = dict.fromkeys(self.rules, DEEPEST)
        for _ in self.rules:
            self._least = {name: self._depth(name) for name in self.rules}

    def _choice(self, symbols: Iterator[str], end: str) -> Choice:
        choice: Choice = [[]]
        for symbol in symbols:
            if symbol == end:
                break
            if symbol == "|":
                choice.append([])
            elif symbol in "*+":
                choice[-1][-1] = (choice[-1][-1][0], symbol)
            elif symbol in "([":
                name = f"part {next(self._numbers)}"
                self.rules[name] = self._choice(symbols, ")" if symbol == "(" else "]")
                choice[-1].append((name, "" if symbol == "(" else "?"))
            else:
                choice[-1].append((symbol, ""))
        return choice

    def _depth(self, name: str) -> int:
        return 1 + min(map(self._longest, self.rules[name]))

    def _longest(self, alternative: list[tuple[str, str]]) -> int:
        needed = (symbol for symbol, times in alternative if times in ("", "+"))
        return max((self._least.get(symbol, 0) for symbol in needed), default=0)

    def text(self, name: str, rng: random.Random, depth: int = 0) -> str:
        """A random text of a rule, its tokens between spaces."""
        if name.startswith('"'):
            return name[1:-1]
        if name in TOKENS:
            return rng.choice(TOKENS[name])
        choice = self.rules[name]
        deep = depth > DEEPEST
        alternative = min(choice, key=self._longest) if deep else rng.choice(choice)
        words = []
        for symbol, times in alternative:
            low = times in ("", "+")
            high = low if deep or not times else 1 if times == "?" else 2
            for _ in range(rng.randint(low, high)):
                words.append(self.text(symbol, rng, depth + 1))
        return " ".join(words)
