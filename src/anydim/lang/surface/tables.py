"""Parsers of the grammars, and precomputed parser tables of the language, stored in the package.

lark takes 40 ms to make tables and 8 ms to load them. `python -m anydim.lang.surface.tables`
regenerates them after a change of `grammar.lark`; tables of another grammar or lark are ignored.
"""

from __future__ import annotations

import hashlib
import json
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from lark import Lark

LANGUAGE = ("grammar.lark",)
START = "start"
TABLES = "grammar.json"


def load_grammar(files: tuple[str, ...], start: str, transformer: Any) -> Lark:
    """Build a parser for the grammar in these files, starting at one of its rules."""
    from lark import Lark

    text = _text(files)
    return Lark(text, parser="lalr", lexer="contextual", start=start, transformer=transformer)


def load_language(transformer: Any) -> Lark:
    """Load the parser of definitions, from the package's tables if they are up to date."""
    from lark import Lark

    made_of, data, memo = json.loads(_package().joinpath(TABLES).read_bytes())
    if made_of != origin():
        return load_grammar(LANGUAGE, START, transformer)
    table = data["parser"]["parser"]
    table["tokens"] = {name: name for name in table["tokens"]}
    table["states"] = _numbered(table["states"])
    parser = Lark._load_from_dict(data, _numbered(memo), transformer=transformer)
    return cast("Lark", parser)


def tables() -> str:
    """The JSON text that `load_language` reads: the origin of the tables, and the tables."""
    from lark.grammar import Rule
    from lark.lexer import TerminalDef

    data, memo = load_grammar(LANGUAGE, START, None).memo_serialize([TerminalDef, Rule])
    table = data["parser"]["parser"]
    names = table["tokens"]
    table["states"] = {
        state: {names[token]: action for token, action in row.items()}
        for state, row in table["states"].items()
    }
    table["tokens"] = [*names.values()]
    return json.dumps([origin(), data, memo], separators=(",", ":")) + "\n"


def origin() -> str:
    """The inputs of the tables: the grammar, and the version of lark."""
    import lark

    return f"lark {lark.__version__} {hashlib.sha256(_text(LANGUAGE).encode()).hexdigest()}"


def _text(files: tuple[str, ...]) -> str:
    return "\n".join(_package().joinpath(file).read_text("utf-8") for file in files)


def _package() -> Any:
    return resources.files("anydim.lang.surface")


def _numbered(row: dict[str, Any]) -> dict[int, Any]:
    """Convert keys back to numbers, since JSON stores them as strings."""
    return {int(key): value for key, value in row.items()}


if __name__ == "__main__":
    Path(__file__).with_name(TABLES).write_text(tables(), "utf-8")
