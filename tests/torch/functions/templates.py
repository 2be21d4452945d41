"""The templates of templates.txt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def _sections() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    own: list[str] = []
    for line in Path(__file__).with_name("templates.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            own = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            own.append(line)
    return {name: tuple(lines) for name, lines in found.items()}


def _calls(line: str) -> Iterator[str]:
    """Calls of the functions of a line `arguments | module: names`; `name(*,2)` adds arguments."""
    arguments, _, rest = line.partition(" | ")
    module, _, names = rest.partition(": ")
    for name in names.split():
        call = name if "(" in name else f"{name}(*)"
        yield f"{module}.{call.replace('*', arguments, 1)}"


_FOUND = _sections()
FUNCTIONS = tuple(call for line in _FOUND["functions"] for call in _calls(line))
SIZE_TEXTS, NUMBER_TEXTS, VIEWS = _FOUND["sizes"], _FOUND["numbers"], _FOUND["views"]
VALUES = _FOUND["values"] + 2 * _FOUND["of floats"]  # floats are common
TIED = _FOUND["tied"]
"""Their gradients go to one of equal elements, any of them."""
CHANGES = _FOUND["changes"]
COMPLEX, OF_MODULES, RANDOM = _FOUND["complex"], _FOUND["of modules"], _FOUND["random"]
RANDOM_CHANGES, MODULE_CHANGES = _FOUND["random changes"], _FOUND["changes of modules"]
PLACES, IN_TORCH, ATTENTION = _FOUND["places"], _FOUND["in torch"], _FOUND["attention"]
"""Indices that may be invalid at later points; operators without a row; attention."""
