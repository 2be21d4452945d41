"""Parsers of the grammars, and the tables of the language's own, which the package keeps.

lark takes 40 ms to make tables and 8 to read them. `python -m anydim.lang.surface.tables` writes
them again after a change of `grammar.lark`; those of another grammar or another lark are not used.
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
    """A parser for the grammar that these files make together, from one of its rules."""
    from lark import Lark

    text = _text(files)
    return Lark(text, parser="lalr", lexer="contextual", start=start, transformer=transformer)


def load_language(transformer: Any) -> Lark:
    """The parser of definitions, from the tables of the package where they belong to it."""
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
    """What `load_language` reads: what tables were made of, and they as JSON, tokens by name."""
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
    """What tables depend on: the grammar, and the lark that makes them."""
    import lark

    return f"lark {lark.__version__} {hashlib.sha256(_text(LANGUAGE).encode()).hexdigest()}"


def _text(files: tuple[str, ...]) -> str:
    return "\n".join(_package().joinpath(file).read_text("utf-8") for file in files)


def _package() -> Any:
    return resources.files("anydim.lang.surface")


def _numbered(row: dict[str, Any]) -> dict[int, Any]:
    """Keys are numbers again, which JSON makes texts."""
    return {int(key): value for key, value in row.items()}


if __name__ == "__main__":
    Path(__file__).with_name(TABLES).write_text(tables(), "utf-8")
