"""Names and messages of a model as C text: string literals, and text in comments."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[^ -~]")


def string(text: str | None) -> str:
    """A C string literal of printable ASCII, without trigraphs; `NULL` for None."""
    if text is None:
        return "NULL"
    plain = _CONTROL.sub("?", text)
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"').replace("?", "\\?")
    return f'"{escaped}"'


def comment(text: str) -> str:
    """One line of a C comment: without its delimiters, control characters and trigraphs."""
    plain = _CONTROL.sub("?", text).replace("*/", "* /").replace("/*", "/ *")
    return re.sub(r"\?(?=\?)", "? ", plain)
