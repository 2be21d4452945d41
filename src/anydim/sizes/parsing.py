"""Parser of size expressions: Python's operators and precedence; nothing is executed.

choice  := any ['if' any 'else' choice]
any     := all ('or' all)*
all     := compared ('and' compared)*
compared := sum (('<=' | '<' | '>=' | '>' | '==' | '!=') sum)*
sum     := product (('+' | '-') product)*
product := unary (('*' | '//' | '%') unary)*
unary   := ('-' | '+') unary | power
power   := primary ['**' number]
primary := number | name | ('min' | 'max') '(' choice (',' choice)* ')' | '(' choice ')'

Conditions stand between 'if' and 'else' alone; arithmetic takes sizes.
"""

from __future__ import annotations

import re
from dataclasses import field
from functools import cache
from typing import NoReturn, TypeVar

from anydim.base.errors import OptionError, UserError
from anydim.base.records import dataclass
from anydim.base.text import caret
from anydim.sizes.conditions import ALWAYS, NEVER, Condition, condition
from anydim.sizes.expression import NAME, Size, as_constant, is_name
from anydim.sizes.extremes import maximum, minimum
from anydim.sizes.printing import LONGEST_TEXT

_TOKEN = rf"\s*(?:(\d+)|({NAME})|(\*\*|//|[<>=!]=|[-+*%(),<>]))"
_LONGEST_NUMBER = 60  # digits
_DEEPEST = 60
_HIGHEST_POWER = 16
_MAX_TERMS = 2_000
_RELATIONS = frozenset(("<=", "<", ">=", ">", "==", "!="))
Value = Size | Condition
Kind = TypeVar("Kind", Size, Condition)


def as_size(value: int | str | Size) -> Size:
    """Convert an int or a text to a size; a size is returned as it is."""
    if isinstance(value, Size):
        return value
    return parse(value) if isinstance(value, str) else as_constant(value)


def parse(text: str) -> Size:
    """Parse a size expression; raises OptionError that points at the error."""
    if len(text) > LONGEST_TEXT:
        raise OptionError(f"a size expression of {len(text)} characters is too long to read")
    if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER:
        return as_constant(int(text))
    if text.isascii() and text.isidentifier():  # the two most frequent cases
        return Size.symbol(text)
    return _whole(text, Size)


def parse_condition(text: str) -> Condition:
    """Parse a condition, such as "9 <= m <= 13"; raises OptionError that points at the error."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    return _whole(text, Condition)


_CONSTANTS = {str(each): each for each in (ALWAYS, NEVER)}


def _whole(text: str, kind: type[Kind]) -> Kind:
    reader = _Reader(text)
    value = reader.choice()
    if reader.token:
        reader.fail("an operator or the end")
    return reader.expect(value, kind, 0)


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

    def expect(self, value: Value, kind: type[Kind], at: int) -> Kind:
        if not isinstance(value, kind):
            names = ("a size", "a condition")
            wanted, found = names if kind is Size else names[::-1]
            raise self.error(at, f"expected {wanted}, found {found}")
        return value

    def choice(self) -> Value:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise OptionError("a size expression is nested too deeply to read")
        start = self.start
        then = self.any()
        if self.token == "if":
            value = self.expect(then, Size, start)
            self.advance()
            start = self.start
            given = self.expect(self.any(), Condition, start)
            self.take("else")
            start = self.start
            then = given.where(value, self.expect(self.choice(), Size, start))
        self.depth -= 1
        return then

    def any(self) -> Value:
        start, left = self.start, self.all()
        while self.token == "or":
            self.advance()
            at, right = self.start, self.all()
            left = self.expect(left, Condition, start) | self.expect(right, Condition, at)
        return left

    def all(self) -> Value:
        start, left = self.start, self.compared()
        while self.token == "and":
            self.advance()
            at, right = self.start, self.compared()
            left = self.expect(left, Condition, start) & self.expect(right, Condition, at)
        return left

    def compared(self) -> Value:
        at, left = self.start, self.sum()
        if self.token not in _RELATIONS:
            return left
        found = ALWAYS
        while self.token in _RELATIONS:
            relation = self.token
            low = self.expect(left, Size, at)
            self.advance()
            at, left = self.start, self.sum()
            found = found & condition(low, relation, self.expect(left, Size, at))
        return found

    def sum(self) -> Value:
        start, left = self.start, self.product()
        while self.token in ("+", "-"):
            operator, term = self.token, self.expect(left, Size, start)
            self.advance()
            at = self.start
            right = self.expect(self.product(), Size, at)
            left = term + right if operator == "+" else term - right
        return left

    def product(self) -> Value:
        start, left = self.start, self.unary()
        while self.token in ("*", "//", "%"):
            operator, at, factor = self.token, self.start, self.expect(left, Size, start)
            self.advance()
            start = self.start
            right = self.expect(self.unary(), Size, start)
            left = self._combine(operator, factor, right, at)
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

    def unary(self) -> Value:
        if self.token not in ("-", "+"):
            return self.power()
        sign = 1
        while self.token in ("-", "+"):
            sign = -sign if self.token == "-" else sign
            self.advance()
        at = self.start
        return self.expect(self.power(), Size, at) * sign

    def power(self) -> Value:
        at, found = self.start, self.primary()
        if self.token != "**":
            return found
        base = self.expect(found, Size, at)
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

    def primary(self) -> Value:
        token = self.token
        if token == "(":
            self.advance()
            value = self.choice()
            self.take(")")
            return value
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
        arguments = [self._argument()]
        while self.token == ",":
            self.advance()
            arguments.append(self._argument())
            if len(arguments) > _MAX_TERMS:
                self.fail(f"at most {_MAX_TERMS} arguments")
        self.take(")")
        return minimum(*arguments) if function == "min" else maximum(*arguments)

    def _argument(self) -> Size:
        at = self.start
        return self.expect(self.choice(), Size, at)
