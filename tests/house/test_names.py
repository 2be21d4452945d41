"""Promise: functions are named by verbs; bare participles (`made`, `held`) only become fewer.

`python -m tests.house.test_names [FOLDER]` lists them.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "anydim"
# most functions that are bare participles
MOST = 168
WORDS = """
begun bound broken built caught chosen dealt done drawn fallen fed felt found given got grown
held hidden kept known laid led left lent lost made meant met paid said seen sent shown sought
spent stood stored sunk taken thought thrown told torn understood woven written
"""
IRREGULAR = frozenset(WORDS.split())
# verbs and nouns that end as participles do
VERBS = frozenset({"embed", "exceed", "feed", "need", "seed", "shed", "speed"})
_DEFINITION = re.compile(r"\bdef\s+(\w+)")


def is_participle(name: str) -> bool:
    """Whether a function's name is one participle, without an object."""
    word = name.strip("_")
    return word in IRREGULAR or (bool(re.fullmatch("[a-z]{3,}ed", word)) and word not in VERBS)


def participles(folder: Path) -> Iterator[tuple[Path, int, str]]:
    """File, line and name of each function and method so named; properties are values."""
    files = [folder] if folder.is_file() else sorted(folder.rglob("*.py"))
    for file in files:
        text = file.read_text("utf-8")
        if not any(map(is_participle, _DEFINITION.findall(text))):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = {ast.unparse(each).split(".")[-1] for each in node.decorator_list}
                value = given & {"property", "cached_property", "setter"}
                if is_participle(node.name) and not value:
                    yield file, node.lineno, node.name


def test_participles_become_fewer() -> None:
    assert len(list(participles(SOURCE))) <= MOST


if __name__ == "__main__":
    for file, line, name in participles(Path(sys.argv[1]).resolve() if sys.argv[1:] else SOURCE):
        print(f"{file.relative_to(ROOT)}:{line}: {name}")
