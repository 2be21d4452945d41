"""Syntax highlighting of the comprehension language, for Pygments and tools based on it.

Registered as lexer `tc` in pyproject.toml: `pygmentize -l tc kernels.tc`. The keywords come from
the tables of the language itself.
"""

from __future__ import annotations

from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups, words
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    Text,
    Whitespace,
)

from anydim.lang.functions import FUNCTIONS
from anydim.lang.surface.syntax import ATTRIBUTE_KINDS, FUNCTION_ALIASES, RESERVED, TYPE_NAMES
from anydim.lang.tree.composed import COMPOSED

_CONSTANTS = ("true", "false", "inf", "nan")
_KEYWORDS = tuple(sorted(RESERVED.difference(_CONSTANTS, ("cast", "size"))))
_TYPES = tuple(sorted({*TYPE_NAMES, *ATTRIBUTE_KINDS} - {"size"}))
_CALLED = tuple(
    sorted(
        {row.name for row in FUNCTIONS.values() if not (row.internal or row.operator)}
        | FUNCTION_ALIASES.keys() | COMPOSED.keys() | {"cast", "size"}
    )
)  # fmt: skip


class ComprehensionLexer(RegexLexer):
    """Lexer of definitions in the comprehension language (docs/language.md)."""

    name = "Tensor comprehensions"
    aliases: ClassVar[list[str]] = ["tc", "anydim"]
    filenames: ClassVar[list[str]] = ["*.tc"]

    tokens: ClassVar[dict[str, list[tuple[object, ...]]]] = {
        "root": [
            (r"\s+", Whitespace),
            (r"#[^\n]*", Comment.Single),
            (r"(def)(\s+)([A-Za-z_]\w*)", bygroups(Keyword, Whitespace, Name.Function)),
            (r"(type)(\s+)([A-Z]\w*)(?=\s*[<{])", bygroups(Keyword, Whitespace, Name.Class)),
            (r"match(?=\s+\w+\s*[,{])", Keyword),
            (words(_KEYWORDS, prefix=r"\b", suffix=r"\b"), Keyword),
            (words(_CONSTANTS, prefix=r"\b", suffix=r"\b"), Keyword.Constant),
            (words(_TYPES, prefix=r"\b", suffix=r"\b"), Keyword.Type),
            (r"(?:\+|\*|\bmin|\bmax)?=!", Operator),
            (r"(?:\+|\*|\bmin|\bmax)=(?!=)", Operator),
            (words(_CALLED, prefix=r"\b", suffix=r"\b(?=\s*[(<])"), Name.Builtin),
            (r"\.\.\.[A-Za-z_]\w*", Name.Variable),
            (r"([A-Za-z_]\w*)(\.)([0-9]+)", bygroups(Name, Punctuation, Number.Integer)),
            (r"(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?", Number.Float),
            (r"[0-9]+[eE][-+]?[0-9]+", Number.Float),
            (r"[0-9]+", Number.Integer),
            (r"->|//|\|\||&&|==|!=|<=|>=|<<|>>|[-+*/%<>&|^~!?=]", Operator),
            (r"[(){}\[\],;:]", Punctuation),
            (r"[A-Za-z_]\w*", Name),
            (r".", Text),
        ]
    }
