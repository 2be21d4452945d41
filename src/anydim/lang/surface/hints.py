"""Hints for texts that follow the syntax of other languages.

The parser knows where a text is wrong and what it expected there; `mistake` looks at the text on
both sides of that position. A row of `MISTAKES` is one habit from another language.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from anydim.base.records import dataclass
from anydim.lang.surface.syntax import ATTRIBUTE_KINDS, TYPE_NAMES

_LOOK_BACK = 500  # characters before the position that a row may match, comments removed
_COMMENTS = re.compile(r"#[^\n]*")
_TYPE = rf"(?:{'|'.join(sorted(TYPE_NAMES, key=len, reverse=True))})"
_HEAD = r"\bdef\s+\w+\s*\([^{}]*"
_COMMENT = "comments start with '#'; '//' is floor division"
_LOOP = "write a loop as: for t in 0:N { ... }"
_SLICE = "there are no slices: give each dimension an index, as in x(i,j)"
_CHOICE = "a choice in an expression is: condition ? a : b"
_LOGIC = "in conditions write '&&', '||' and '!'"
BEYOND = "the largest is 2^64 - 1; a float holds more: 1e20"
_MATCH = r"\bmatch\s+\w[^\0]*"
_TYPE_HEAD = r"\btype\s+\w+"
_CONSTRUCTORS = _TYPE_HEAD + r"\s*(?:<[^{}]*>\s*)?\{[^{}]*"
_MATCHED = "a match is: match t { leaf(x) { ... } node(left, right) { ... } }"
_STRUCTURE = "a structure type is: type Tree { leaf(float(D) x); node(Tree left, Tree right) }"
POSITIONS = (
    "positions are k = arg_max(x; axis = 0) and arg_min, which keep the axis (size 1): read k(0)"
)
_UNDECLARED = "nothing is declared: write y(i) = ..., sizes and type follow"


@dataclass(frozen=True)
class Mistake:
    """A habit: the text before the position, the text at it, and the advice.

    `expects` is a token that would be valid there, as errors show it; empty for any.
    """

    before: str
    at: str
    advice: str
    expects: str = ""

    def matches(self, before: str, rest: str, expected: Collection[str]) -> bool:
        """Whether the two parts of a text match this mistake."""
        if self.expects and self.expects not in expected:
            return False
        here = re.match(self.at, rest) is not None
        return here and re.search(rf"(?:{self.before})\Z", before) is not None


MISTAKES: tuple[Mistake, ...] = (
    Mistake("", r"//|/\*", _COMMENT),
    Mistake(r"/", r"\*", _COMMENT),
    Mistake("", r"-=", "there is no '-=': write += -(...)"),
    Mistake("", r"/=", "there is no '/=': write *= 1 / (...)"),
    Mistake("", r":=", "write '='"),
    Mistake("", r"arg_?(?:max|min)\s*=",
            POSITIONS, "an assignment"),
    Mistake(r"\w\([^(){}]*\w\s*", r"=[^=]", "attributes follow a semicolon: softmax(x; axis = 0)",
            ")"),
    Mistake(r"\w\([^(){}]*;\s*", r"[-\d.]", "an attribute has a name: softmax(x; axis = 0)",
            "a name"),
    Mistake("", r"[×·]", "write '*'"),
    Mistake("", r"÷", "write '/'"),
    Mistake("", r"[−–]", "write '-'"),
    Mistake("", r"≤|≥|≠", "write '<=', '>=' or '!='"),
    Mistake("", r"[^\x00-\x7f]", "names are made of letters a-z, A-Z, digits and '_'"),
    Mistake("", r"[\"'`]", "there are no texts in the language"),
    Mistake(r"\*", r"\*", "a power is pow(x, 2)"),
    Mistake("", r"@", "a matrix product is a sum: C(m,n) +=! A(m,k) * B(k,n)"),
    # structures
    Mistake("", r"(?:struct|data|datatype|enum|class|union|record|interface)\b", _STRUCTURE,
            "type"),
    Mistake(_TYPE_HEAD + r"\s*", r"=", _STRUCTURE),
    Mistake(_TYPE_HEAD + r"\s*", r"[(\[]", "type parameters are written: type List<A> { ... }"),
    Mistake(_CONSTRUCTORS + r"[\w)]\s*", r"[|,]", "constructors are separated by ';'"),
    Mistake(_CONSTRUCTORS + r"\([^{}()]*\w\s*", r":",
            "the type goes before the name: leaf(float(D) x)"),
    Mistake(_CONSTRUCTORS + r"\([^{}]*[\w)>]\s*", r"[,)]",
            "a field has a type and a name: leaf(float(D) x)", "a name"),
    Mistake(r"\b(?:switch|match\s*\([^{}()]*\))\s*", r"[\w{]", _MATCHED),
    Mistake(r"\bmatch\s+\w+\s*", r"[(:]|(?:with|of|in)\b", _MATCHED, "{"),
    Mistake(_MATCH + r"\bcase\s+", r"\w", "a case is a pattern and a block: leaf(x) { ... }"),
    Mistake(_MATCH + r"[\w)]\s*", r"=>|->|:", "a case is a pattern and a block: leaf(x) { ... }",
            "{"),
    Mistake(_MATCH + r"[\w){}]\s*", r"\|", "each case has its own block, and _ fits everything"),
    Mistake(_MATCH + r"[\w)]\s*", r"if\b", "a pattern has no condition: write if in the block",
            "{"),
    Mistake(_MATCH + r"\}\s*", r"else\b", "the case for everything else is: _ { ... }"),
    Mistake(_MATCH + r"[(,]\s*", r"[\d.]", "a pattern has names: compare numbers in the block",
            "a name"),
    Mistake(_MATCH + r"\([^{}]*\w\s+", r"\w", "a pattern has no types: leaf(x)", ")"),
    # definitions
    Mistake("", r"\w", "a definition starts with 'def': def f(float(N) x) -> (y) { ... }", "def"),
    Mistake(_HEAD + r"\w\s*", r"\[", "dimensions go in parentheses: float(N) x"),
    Mistake(r"\bdef\s+\w+\s*\((?:[^{}]*,)?\s*\w+\s*", r":",
            "the type goes before the name: float(N) x"),
    Mistake(_HEAD + r"\w\s+\w+\s*", r"\(", "dimensions belong to the type: float(N) x"),
    Mistake(_HEAD + r";[^)]*\w\s*", r"[,)=]",
            f"an attribute has a kind and a name; kinds: {', '.join(ATTRIBUTE_KINDS)}", "a name"),
    Mistake(_HEAD + r"\)\s*", r"=>|[:={]", "results follow the parameters: -> (y) { ... }",
            "->"),
    Mistake("", r"\(", "statements go in braces: { y(i) = x(i) }", "{"),
    Mistake("", r"\.\.\.?(?!\w)", "an ellipsis has a name: ...s", "...name"),
    Mistake(r"->\s*\([^{}]*\w\s*", r"[\w(]", "results have names alone, types follow: -> (y, z)"),
    # indices
    Mistake(r"\w\s*", r"\[", "indices go in parentheses: y(i)", "an assignment"),
    Mistake(r"\w\[[^\[\]]*", r",",
            "x[...] takes one row-major offset; with an index per dimension: x(i,j)"),
    Mistake(r"\w\s*[\[(][^{}=]*", r":", _SLICE, ")"),
    Mistake(r"[(,\[]\s*", r":", _SLICE),
    Mistake(r"\w\s*\[[^{}=]*", r":", _SLICE, "]"),
    Mistake(r"\w\([^()]*\)\s*", r"\(", "one pair of parentheses holds all indices: x(i,j)"),
    Mistake(r"\w", r"\.[A-Za-z]", "the size of dimension 0 of a tensor x is x.0"),
    Mistake("", r"\}", "a parenthesis is still open", ")"),
    # loops, ranges and conditions
    Mistake(r"\bfor\s*", r"\(", _LOOP),
    Mistake(r"\bfor\s+\w+\s*", r"=", _LOOP),
    Mistake(r"\bin\s+[^{}:]*\.", r"\.", "a range is written low:high"),
    Mistake(r"\bwhere\b[^{}]*\bin\s+[^{}:]*", r".", "a range has two ends: where i in 0:N",
            ":"),
    Mistake(r"\bwhere\b[^{}]*\w\s*=?", r"[<>=!]=?",
            "'where' gives ranges, i in low:high, and names, s = a(i); a condition is chosen by: "
            "condition ? a : b"),
    Mistake(r"\bfor\b[^{}]*", r"\}",
            "a loop goes before its body: for t in 0:N { ... }; "
            "the range of an index is: where i in 0:N"),
    Mistake(r"=[^{}]*\bif\b[^{}]*", r"else\b", _CHOICE),
    Mistake(r"=[^{}]*\bif\b[^{}]*", r"\}", f"{_CHOICE}; a branch is: if condition {{ y(i) = ... }}",
            "{"),
    Mistake(r"\b(?:elif|elseif)\s*", r"\w", "write 'else if'"),
    # statements
    Mistake(r"\)\s*//\s*[A-Za-z]+\s+[A-Za-z][^\n()]*\s*", r"", _COMMENT, "an assignment"),
    Mistake(r"\breturn\s+", r"\w", "results are named in the head: def f(...) -> (y)"),
    Mistake(r"\b(?:let|var|const|auto)\s+", r"\w", _UNDECLARED),
    Mistake(rf"[{{;}})]\s*{_TYPE}(?:\([^()]*\))?\s+", r"\w+\s*(?:\([^()]*\))?\s*=", _UNDECLARED),
    Mistake(rf"=\s*{_TYPE}\s+\w[^={{}}]*", r"", "a conversion is written float(x(i))",
            "an assignment"),
    Mistake(rf"\(\s*{_TYPE}\s*\)\s*\w[^={{}}]*", r"", "a conversion is written float(x(i))",
            "an assignment"),
    Mistake(r"\b(?:and|or|not)\b[^={}]*", r"", _LOGIC),
    Mistake(r"[\d.][fFlLuU]\s*", r"", "a number has no suffix: its type follows", "an assignment"),
    Mistake(r"\b(?:max|min)", r"!", "over an index it is a statement: y(i) max=! x(i,j)"),
    Mistake("", r"\w+\s*=!?", "there are '=', '+=', '*=', 'min=' and 'max='; with '!' they start "
            "anew", "an assignment"),
)  # fmt: skip

_RANDOM = "a definition cannot generate random numbers: pass them as an argument"
# Functions of other languages, most over a whole tensor.
OVER_INDICES = {
    "sum": "a sum is a statement: y +=! x(i)", "prod": "a product is a statement: y *=! x(i)",
    "mean": "a mean is a sum, y +=! x(i), divided by float(N)",
    "max": "over an index it is a statement: y max=! x(i)",
    "min": "over an index it is a statement: y min=! x(i)",
    "matmul": "a matrix product is a sum: C(m,n) +=! A(m,k) * B(k,n)",
    "dot": "a product of vectors is a sum: y +=! a(i) * b(i)",
    **dict.fromkeys(("rand", "randn", "random", "uniform", "normal"), _RANDOM),
    "argmax": POSITIONS, "argmin": POSITIONS,
    "range": "a range is low:high, as in 0:N", "len": "the size of dimension 0 of x is x.0",
}  # fmt: skip


_RESERVED = {
    "if": _CHOICE, "else": _CHOICE, "for": _LOOP, "while": "write a loop as: while c > 0 { ... }",
    "where": "a range is: y(i) = x(i) where i in 0:N", "cast": "a conversion is: cast<float>(x(i))",
    "size": "the size of dimension 0 of x is x.0, the product of those of an ellipsis size(...s)",
}  # fmt: skip


def reserved_hint(word: str) -> str:
    """What to write in place of a reserved word."""
    return _RESERVED.get(word, "use another name")


def shown_read(tensor: str, rank: int | None) -> str:
    """Text of a read of a tensor of this rank: `x(i,j)`."""
    letters = ["i", "j", "k", "l"][:rank] if rank is not None and rank <= 4 else ["..."]
    return f"{tensor}({','.join(letters)})" if letters else tensor


def mistake(text: str, position: int, expected: Collection[str]) -> str:
    """Return the advice for a mistake at a position; empty if unknown.

    `expected` are the tokens that would be valid there, as errors show them.
    """
    before = _COMMENTS.sub("", text[:position])[-_LOOK_BACK:]
    rest = text[position : position + _LOOK_BACK]
    return next((row.advice for row in MISTAKES if row.matches(before, rest, expected)), "")
