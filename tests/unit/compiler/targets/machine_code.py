"""Innermost loops of machine code as text, and what is to be found in them."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LABEL = re.compile(r"^(\.L\w+):")
_JUMP = re.compile(r"\s+(?:j\w+|b(?:\.\w+)?|cbn?z\s+\w+,|tbn?z\s+\w+,\s*#\d+,)\s+(\.L\w+)")
_CALL = re.compile(r"\s+(?:call\w*|blr?)\s")
_FUSED = re.compile(r"\s(?:vfn?m(?:add|sub)\w*|fml[as]|vpdpbusds?|vpmadd\w+|sdot|[su]mlal2?|mla)\s")
_APART = re.compile(r"\s(?:v?mul[ps][sd]|fmul)\s")
_VECTOR = re.compile(r"%[xyz]mm\d|\b[qv]\d")
_STACK = re.compile(r"\(%rsp[,)]|\[sp\b")
_STORE = re.compile(r"\s+(?:v?mov\w+\s+%[xyz]mm\d+, \S*\(|st[rp]\s)")


def innermost_loops(text: str) -> Iterator[list[str]]:
    """From the label that a later jump goes back to, to that jump; loops without others inside."""
    lines, labels, spans = text.splitlines(), {}, []
    for number, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label[1]] = number
        if (jump := _JUMP.match(line)) and jump[1] in labels:
            spans.append((labels[jump[1]], number))
    for start, end in spans:
        inside = ((s, e) for s, e in spans if start <= s and e <= end and (s, e) != (start, end))
        if not any(inside):
            yield lines[start : end + 1]


def fused(loop: list[str]) -> list[str]:
    """Multiply-adds, of floats or of bytes."""
    return [line for line in loop if _FUSED.search(line)]


def apart(loop: list[str]) -> list[str]:
    """Products whose sum is an instruction of its own."""
    return [line for line in loop if _APART.search(line)]


def calls(loop: list[str]) -> list[str]:
    return [line for line in loop if _CALL.match(line)]


def on_the_stack(loop: list[str]) -> list[str]:
    """Vectors that the stack holds: those that are put there, or taken from there."""
    return [line for line in loop if _STACK.search(line) and _VECTOR.search(line)]


def spilled(loop: list[str]) -> list[str]:
    """Vectors that the loop puts on the stack."""
    return [line for line in on_the_stack(loop) if _STORE.match(line)]


def sums(loop: list[str]) -> bool:
    """Whether the loop is there for multiply-adds: four and more, a third of its instructions."""
    return len(fused(loop)) >= max(4, len(loop) // 3)
