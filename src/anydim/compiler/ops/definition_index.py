"""Index of the definitions of the `.tc` files, built without parsing them.

A definition is parsed at its first use. Until then its header provides what the record needs: the
name, the comment above it, and the attributes with their defaults.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from anydim.base.errors import InternalError
from anydim.base.frozen import FrozenMapping
from anydim.compiler.graph.operator import REQUIRED, Operator

_HEADER = re.compile(
    r"^def (?P<name>\w+)\((?P<inputs>[^;{]*?)(?:;(?P<attributes>[^{]*?))?\)\s*->", re.MULTILINE
)
_DOMAIN = re.compile(r"domain (?P<low>\S+)\.\.(?P<high>\S+)")
_WORDS = {"true": True, "false": False}


def scan() -> Iterator[Operator]:
    """Yield a record for each definition of the library's `.tc` files."""
    for path in sorted(Path(__file__).parent.glob("*.tc")):
        yield from scan_text(path.read_text(encoding="utf-8"), path.name, path.stem)


def scan_text(text: str, file: str, kind: str) -> Iterator[Operator]:
    """Yield a record for each definition of one text."""
    headers = list(_HEADER.finditer(text))
    ends = [_comment_start(text, header.start()) for header in headers[1:]] + [len(text)]
    for header, end in zip(headers, ends):
        start = header.start()
        comment = text[_comment_start(text, start) : start]
        lines = [line.lstrip("# ").rstrip() for line in comment.splitlines()]
        domain = _DOMAIN.search(comment)
        yield Operator(
            name=header["name"],
            text="\n" * text.count("\n", 0, start) + text[start:end],
            kind=kind,
            doc=" ".join(line for line in lines if not line.startswith("domain ")).strip(),
            attributes=FrozenMapping(_attributes(header["attributes"] or "")),
            domain=(float(domain["low"]), float(domain["high"])) if domain else (-3.0, 3.0),
            file=file,
        )


def _comment_start(text: str, position: int) -> int:
    """Offset of the first of the comment lines directly above a position."""
    while position:
        line = text.rfind("\n", 0, position - 1) + 1
        if not text.startswith("# ", line):
            break
        position = line
    return position


def _attributes(text: str) -> dict[str, Any]:
    """Parse the defaults in `float alpha = 0.01, bool negative = true`."""
    found: dict[str, Any] = {}
    for part in filter(str.strip, text.split(",")):
        words, _, default = part.partition("=")
        name = words.split()[-1]
        found[name] = _value(default.strip(), part) if default else REQUIRED
    return found


def _value(text: str, part: str) -> int | float | bool:
    if text in _WORDS:
        return _WORDS[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise InternalError(f"the default of '{part.strip()}' is not a number")
