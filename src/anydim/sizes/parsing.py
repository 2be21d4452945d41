"""Parser of size expressions: Python's operators and precedence; nothing is executed.

sum     := product (('+' | '-') product)*
product := unary (('*' | '//' | '%') unary)*
unary   := ('-' | '+') unary | power
power   := primary ['**' number]
primary := number | name | ('min' | 'max') '(' sum (',' sum)* ')' | '(' sum ')'
"""

from __future__ import annotations

import re
from dataclasses import field
from functools import cache
from typing import NoReturn

from anydim.base.errors import OptionError, UserError
from anydim.base.records import dataclass
from anydim.base.text import caret
from anydim.sizes.atoms import MAX_CHARACTERS
from anydim.sizes.expression import NAME, Size, as_constant, is_name
from anydim.sizes.extremes import maximum, minimum

_TOKEN = rf"\s*(?:(\d+)|({NAME})|(\*\*|//|[-+*%(),]))"
LONGEST_TEXT = MAX_CHARACTERS  # the limit of all sizes, so that saved programs can be read
_LONGEST_NUMBER = 60  # digits
_DEEPEST = 60
_HIGHEST_POWER = 16
_MAX_TERMS = 2_000


def as_size(value: int | str | Size) -> Size:
    """Convert an int or a text to a size; a size is returned as it is."""
    return parse(value) if isinstance(value, str) else as_constant(value)


def parse(text: str) -> Size:
    """Parse a size expression; raises OptionError that points at the error."""
    if len(text) > LONGEST_TEXT:
        raise OptionError(f"a size expression of {len(text)} characters is too long to read")
    if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER:
        return as_constant(int(text))
    if text.isascii() and text.isidentifier():  # the two most frequent cases
        return Size.symbol(text)
    reader = _Reader(text)
    size = reader.sum()
    if reader.token:
        reader.fail("an operator or the end")
    return size


@cache
def _token() -> re.Pattern[str]:
    return re.compile(_TOKEN)


@dataclass
class _Reader:
    text: str
    start: int = 0  # of the current token
    end: int = 0
    token: str = field(default="", init=False)
    depth: int = 0

    def __post_init__(self) -> None:
        self.advance()

    def advance(self) -> None:
        match = _token().match(self.text, self.end)
        if match is not None:
            self.start, self.end = match.start(match.lastindex or 0), match.end()
            self.token = match[match.lastindex or 0]
            return
        rest = self.text[self.end :]
        self.start = self.end + len(rest) - len(rest.lstrip())
        self.end = self.start
        self.token = ""
        if rest.strip():
            self.fail("a number, a name or an operator")

    def fail(self, expected: str) -> NoReturn:
        at_end = self.start >= len(self.text)
        found = "the end" if at_end else f"'{self.token or self.text[self.start]}'"
        hint = "\n  division is written //" if found == "'/'" else ""
        raise self.error(self.start, f"expected {expected}, found {found}", hint)

    def error(self, at: int, problem: str, hint: str = "") -> OptionError:
        shown = caret(self.text, at, margin="  ").removeprefix("  ")
        return OptionError(f"size expression, column {at + 1}: {problem}", shown + hint)

    def take(self, expected: str) -> None:
        if self.token != expected:
            self.fail(f"'{expected}'")
        self.advance()

    def sum(self) -> Size:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise OptionError("a size expression is nested too deeply to read")
        left = self.product()
        while self.token in ("+", "-"):
            operator = self.token
            self.advance()
            right = self.product()
            left = left + right if operator == "+" else left - right
        self.depth -= 1
        return left

    def product(self) -> Size:
        left = self.unary()
        while self.token in ("*", "//", "%"):
            operator, at = self.token, self.start
            self.advance()
            right = self.unary()
            left = self._combine(operator, left, right, at)
        return left

    def _combine(self, operator: str, left: Size, right: Size, at: int) -> Size:
        if operator == "*":
            self._check_growth(left, right)
            return left * right
        try:
            return left // right if operator == "//" else left % right
        except UserError as error:
            raise self.error(at, error.problem) from None

    def _check_growth(self, left: Size, right: Size) -> None:
        counts = [max(1, len(size.monomials)) for size in (left, right)]
        degree = sum(max((len(m) for m, _ in size.monomials), default=0) for size in (left, right))
        bits = sum(max((c.bit_length() for _, c in s.monomials), default=0) for s in (left, right))
        if counts[0] * counts[1] > _MAX_TERMS or degree > 64 or bits > 512:
            raise OptionError("a size expression is too large to multiply out")

    def unary(self) -> Size:
        sign = 1
        while self.token in ("-", "+"):
            sign = -sign if self.token == "-" else sign
            self.advance()
        size = self.power()
        return size if sign == 1 else -size

    def power(self) -> Size:
        base = self.primary()
        if self.token != "**":
            return base
        self.advance()
        if not self.token.isdecimal() or len(self.token) > 2 or int(self.token) > _HIGHEST_POWER:
            self.fail(f"an exponent from 0 to {_HIGHEST_POWER}")
        exponent = int(self.token)
        self.advance()
        result = as_constant(1)
        for _ in range(exponent):
            self._check_growth(result, base)
            result = result * base
        return result

    def primary(self) -> Size:
        token = self.token
        if token == "(":
            self.advance()
            size = self.sum()
            self.take(")")
            return size
        if token.isdecimal():
            if len(token) > _LONGEST_NUMBER:
                self.fail("a smaller number")
            self.advance()
            return as_constant(int(token))
        if not is_name(token):
            self.fail("a number, a name or '('")
        self.advance()
        if token in ("min", "max") and self.token == "(":
            return self._extreme(token)
        return Size.symbol(token)

    def _extreme(self, function: str) -> Size:
        self.advance()
        arguments = [self.sum()]
        while self.token == ",":
            self.advance()
            arguments.append(self.sum())
            if len(arguments) > _MAX_TERMS:
                self.fail(f"at most {_MAX_TERMS} arguments")
        self.take(")")
        return minimum(*arguments) if function == "min" else maximum(*arguments)
