"""Promise: the parser's tables in the package are those of the grammar, and parse as it does."""

from __future__ import annotations

import json
from importlib import resources

import lark
import pytest

from anydim.base.errors import LanguageError
from anydim.lang.surface import tables
from anydim.lang.surface.parser import grammar, run_grammar
from anydim.lang.surface.rules import builder

FILES = resources.files("anydim.compiler.ops")
LIBRARY = [file for file in FILES.iterdir() if file.name.endswith(".tc")]
BAD = (
    "def f(float(N) a) -> (o) { o(n) = a(n }",
    "def f() {",
    "def f(float(N) a) -> (o) { o(n) $ }",
)


def test_tables_are_current() -> None:
    written = resources.files("anydim.lang.surface").joinpath(tables.TABLES).read_text("utf-8")
    made_of = json.loads(written)[0]
    if made_of.split()[:2] != ["lark", lark.__version__]:
        pytest.skip("tables of another version of lark: not used with this one")
    assert made_of == tables.origin(), "python -m anydim.lang.surface.tables writes them again"


@pytest.mark.parametrize("file", LIBRARY, ids=lambda file: file.name)
def test_the_library_parses_alike(file) -> None:
    text = file.read_text("utf-8")
    made = tables.load_grammar(tables.LANGUAGE, tables.START, builder())
    assert run_grammar(grammar(), text, file.name) == run_grammar(made, text, file.name)


@pytest.mark.parametrize("text", BAD)
def test_errors_are_alike(text: str) -> None:
    made = tables.load_grammar(tables.LANGUAGE, tables.START, builder())
    errors = []
    for parser in (grammar(), made):
        with pytest.raises(LanguageError) as caught:
            run_grammar(parser, text, "text")
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
