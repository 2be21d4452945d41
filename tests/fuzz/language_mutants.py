"""Programs with mistakes: characters and words lost, doubled, swapped, cut off."""

from __future__ import annotations

import random
import re

from tests.unit.lang.catalogue import PROGRAMS, Program

_WORD = re.compile(r"[A-Za-z_]\w*|[0-9.]+|\s+|=!|[-+*/<>=!&|:]+|.", re.S)
_JUNK = (
    "{", "}", "(", ")", ",", ";", ":", "=", "+=", "+=!", "max=!", "for", "if", "else", "where",
    "in", "exists", "-1", "0", "1", "2", "0.5", "t", "i", "N", "...s", "?", "%", "//", "-",
    "\x00", "é", '"', "x.0", "size(", "cast<", "def", "99999999999999999999", "\n", "#", "==",
    "inf", "true", "int32", "bool", "1e400",
)  # fmt: skip
_CLASSES = (
    re.compile(r"[A-Za-z_]\w*"), re.compile(r"[0-9]+"), re.compile(r"[-+*/%<>]|==|<=|>="),
    re.compile(r"(\+|\*|min|max)?=!?"),
)  # fmt: skip
_OTHERS: dict[int, tuple[str, ...]] = {
    0: ("float", "double", "half", "bfloat16", "int64", "int32", "int8", "uint64", "uint8", "bool",
        "T", "softmax", "matmul"),
    1: ("0", "1", "2", "3", "7"), 2: ("+", "-", "*", "/", "//", "%", "<", ">=", "=="),
    3: ("=", "+=", "+=!", "max=", "max=!", "*=!", "min="),
}  # fmt: skip


def mutant(seed: int) -> tuple[Program, str]:
    """A program of the catalogue, and its text with a few mistakes."""
    rng = random.Random(seed)
    program = rng.choice(PROGRAMS)
    return program, mutated(program.text, rng)


def mutated(text: str, rng: random.Random) -> str:
    """A text with a few mistakes."""
    words = _WORD.findall(text)
    for _ in range(rng.randint(1, 3)):
        (_exchange if rng.random() < 0.7 else _damage)(rng, words)
        words = words or [" "]
    text = "".join(words)
    return text[: rng.randrange(len(text) + 1)] if rng.random() < 0.15 else text


def _exchange(rng: random.Random, words: list[str]) -> None:
    """Another word of the same kind: a name, a number, an operator, an assignment."""
    kind = rng.randrange(len(_CLASSES))
    places = [at for at, word in enumerate(words) if _CLASSES[kind].fullmatch(word)]
    if places:
        at = rng.choice(places)
        words[at] = rng.choice([*(words[place] for place in places), *_OTHERS.get(kind, ())])


def _damage(rng: random.Random, words: list[str]) -> None:
    at = rng.randrange(len(words))
    choice = rng.randrange(6)
    if choice == 0:
        del words[at]
    elif choice == 1:
        words.insert(at, rng.choice(_JUNK))
    elif choice == 2:
        words[at] = rng.choice(_JUNK)
    elif choice == 3:
        other = rng.randrange(len(words))
        words[at], words[other] = words[other], words[at]
    elif choice == 4:
        words[at:at] = words[at : at + rng.randint(1, 6)]
    else:
        word = words[at]
        place = rng.randrange(len(word) + 1)
        junk = rng.choice("(){}=+-*:,;.!?<>%&|'\"xN0 \t")
        words[at] = word[:place] + junk + word[place + 1 :]
