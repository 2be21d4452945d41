"""Promise: documents are in a technical writer's English, without the phrases in PHRASES.

Each phrase stands for a construction that hides its subject or its verb; beside it, what to write.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

FOLDERS = ("docs", "examples", "release", "src")
"""Folders whose Markdown files are read."""

SOURCES: tuple[str, ...] = ("src/anydim",)
"""Folders whose Python files are read, their comments and texts, such as `src/anydim`."""

FILES = ("CHANGELOG.md", "CONTRIBUTING.md", "README.md")

EXEMPT = (
    "docs/decisions/",  # as they were written
    "docs/operators.md",  # generated from tables of the package, as the next two
    "docs/settings.md",
    "docs/cli.md",
)

PHRASES = {
    r"there (?:is|are) not\b": "name what is missing: 'no X', 'X is missing'",
    r"so many\b": "'that number of', 'many', or the number",
    r"as many (?:\w+ )?as\b": "'up to n', 'one per X', 'the number of X'",
    r"\basks? (?:for|whether|what)\b": "'requires', 'needs', 'specifies', 'checks'",
    r"asked (?:for|of)\b": "'requested', 'required'",
    r"speaks? (?:of|for)\b": "'refers to', 'contains', 'votes for'",
    r"(?:is|are|was|were) told\b": "'receives', 'is called with', 'is set to'",
    r"tells? apart\b": "'distinguishes'",
    r"(?:no|the) inputs? tells?\b": "'determines'",
    r"(?:is|are) known of\b": "'X is known'",
    r"whoever\b": "name the subject: 'the user', 'the reader'",
    r"nobody\b": "'no caller', 'no thread'",
    r"what comes\b": "name it: 'the following node', 'later sizes'",
    r"time for one of\b": "'anydim's time divided by onnxruntime's'",
    r"goes where\b": "'is placed on', 'follows'",
    r"begins? anew\b": "'restarts', 'is cleared'",
    r"made anew\b": "'computed again', 'recreated'",
    r"it was so\b|(?:is|are) so from\b": "state what it was",
    r"what is not there\b": "'missing'",
    r"of (?:its|their) own kind\b": "name the kind",
    r"comes? again and again\b": "'recurs'",
    r"(?:room|rooms) of the house\b": "'packages', 'stages'",
    r"stands? beside\b": "'is next to', 'is listed with'",
    r"by way of\b": "'through', 'by'",
    r"\blies? (?:last|where)\b": "'is the last axis', 'in place'",
    r"has to have the\b": "'must have the'",
    r"take (?:0\.\d+ (?:to|of)) .{0,16}of (?:its|their) time\b": "'N times faster'",
    r"made in turns\b|in turns\b": "'alternately', 'interleaved'",
    r"\baside\b(?! \{)": "'in the background', 'in separate memory'",
    r"(?:leaves?|left|leaving) away\b": "'omits', 'omitted'",
    r"unlike (?:widths?|sizes?|numbers?|branches)\b": "'different', 'variable'",
    r"sizes? (?:that )?(?:come|came)\b(?! (?:from|before|first|back|in))": "'given', 'requested'",
    r"\bsays nothing\b(?! (?:else|about))": "'is ignored'",
    r"\bchecked alike\b|\bor alike\b": "'in the same way', 'or the like'",
    r"\bis there (?:whole|twice)\b": "'is complete', 'exists twice'",
    r"\bof yours\b": "'your X'",
    r"\b(?:go|goes|went) on (?:in|with|from)\b": "'continues'",
    r"\bis said (?:of|in|to)\b|\bsaid of\b": "name who reports it, and how",
    r"\bspoken of\b": "'named', 'described'",
    r"\bwhereof|whereby|thereof|therein\b": "'of which', 'by which'; repeat the noun",
}

_SPACED = [re.compile(pattern.replace(" ", r"[\s#]+")) for pattern in PHRASES]
_BLOCK = re.compile(r"^```.*?^```|^(?: {4}|\t).*?$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")


def documents() -> Iterator[Path]:
    """The Markdown files, and the Python files of `SOURCES`."""
    yield from (ROOT / name for name in FILES)
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.md"))
    for folder in SOURCES:
        yield from sorted((ROOT / folder).rglob("*.py"))


def prose(path: Path) -> str:
    """The text of a file without code; line breaks stay, so that lines can be counted."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        return remarks(text)
    without = _BLOCK.sub(lambda found: re.sub(r"[^\n]+", "", found[0]), text)
    return _CODE.sub(lambda found: "`" * len(found[0]), without)


def remarks(source: str) -> str:
    """The comments and texts of a Python file, each at its line."""
    lines = [""] * (source.count("\n") + 2)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for offset, line in enumerate(token.string.split("\n")):
                lines[token.start[0] - 1 + offset] += " " + line.lstrip("# ")
    return "\n".join(lines)


def may_have_one(path: Path) -> bool:
    """Whether a phrase is in a file, in code or not: those without one are read no further."""
    text = path.read_text("utf-8").lower()
    return any(pattern.search(text) for pattern in _SPACED)


def found(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, phrase and advice for each phrase of a text; a phrase may cross a line's end."""
    for pattern, advice in PHRASES.items():
        spaced = pattern.replace(" ", r"\s+")
        for match in re.finditer(spaced, text, re.IGNORECASE):
            yield text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), advice


def is_exempt(path: Path) -> bool:
    return str(path.relative_to(ROOT)).startswith(EXEMPT)


CHECKED = [path for path in documents() if not is_exempt(path)]
FOLDERS = sorted({path.parent for path in CHECKED})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_have_none_of_the_phrases(folder: Path) -> None:
    faults = [
        f"{path}, line {line}: '{phrase}': {advice}"
        for path in CHECKED
        if path.parent == folder and may_have_one(path)
        for line, phrase, advice in found(prose(path))
    ]
    assert not faults, "\n".join(faults)


def test_phrases_are_found_across_lines_and_not_in_code(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("As\nso\nmany lines.\n\n    so many\n\n```\nso many\n```\n`so many`\n", "utf-8")
    assert [(line, phrase) for line, phrase, _ in found(prose(page))] == [(2, "so many")]


def test_phrases_are_found_in_comments_and_docstrings(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text('so_many = 1  # so many\n\n\ndef f():\n    """Asks\n    for it."""\n', "utf-8")
    hits = [(line, phrase.lower()) for line, phrase, _ in found(prose(file))]
    assert hits == [(1, "so many"), (5, "asks for")]
