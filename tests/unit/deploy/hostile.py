"""Files that are damaged, or built to lie: what `ad.load` makes of them, in a process of its own.

    python -m tests.unit.deploy.hostile FOLDER SEED COUNT

FOLDER holds the good files NAME.anydim of `kinds.py`. A bad file gives a UserError, or a model
whose results are those of the good one. Prints how many were refused and how many were equal.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import anydim as ad
from anydim.deploy.archive import Member, write
from anydim.deploy.container import Container
from tests.unit.deploy.kinds import KINDS, Inputs

EXTREMES = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
Change = Callable[[random.Random, bytearray, list[bytes]], bytes]


# ---- damage --------------------------------------------------------------------------------------


def flipped(chance: random.Random, data: bytearray, others: list[bytes]) -> bytes:
    """Some bits are others, near the beginning more often than behind."""
    for _ in range(chance.choice((1, 1, 2, 16))):
        reach = chance.choice((64, 4096, len(data)))
        data[chance.randrange(min(reach, len(data)))] ^= 1 << chance.randrange(8)
    return bytes(data)


def cut(chance: random.Random, data: bytearray, others: list[bytes]) -> bytes:
    """The end is missing, or a piece of the middle."""
    start = chance.randrange(len(data))
    stop = chance.choice((len(data), chance.randrange(start, len(data))))
    return bytes(data[:start] + data[stop:])


def spliced(chance: random.Random, data: bytearray, others: list[bytes]) -> bytes:
    """A piece of another file, at the same place or at any."""
    other = chance.choice(others)
    start = chance.randrange(len(data))
    length = chance.choice((8, 64, 4096, len(data)))
    place = start if chance.random() < 0.5 else chance.randrange(len(other))
    data[start : start + length] = other[place : place + length]
    return bytes(data)


def written_over(chance: random.Random, data: bytearray, others: list[bytes]) -> bytes:
    """A word is a number that is hard to count with."""
    size = chance.choice((2, 4, 8))
    at = chance.randrange(min(chance.choice((128, len(data))), len(data) - size))
    value = chance.choice(EXTREMES) & (1 << 8 * size) - 1
    data[at : at + size] = value.to_bytes(size, "little")
    return bytes(data)


def zeroed(chance: random.Random, data: bytearray, others: list[bytes]) -> bytes:
    """A block was never written, or the end."""
    start, length = _block(chance, data)
    if chance.random() < 0.25:
        start, length = len(data) - chance.randrange(1, 200), 200
    data[start : start + length] = bytes(len(data[start : start + length]))
    return bytes(data)


def swapped(chance: random.Random, data: bytearray, others: list[bytes]) -> bytes:
    """Two blocks stand in each other's place."""
    length = chance.choice((8, 64, 512, 4096))
    first, second = (chance.randrange(max(1, len(data) // length)) * length for _ in range(2))
    one, other = data[first : first + length], data[second : second + length]
    if len(one) == len(other):
        data[first : first + length], data[second : second + length] = other, one
    return bytes(data)


def appended(chance: random.Random, data: bytearray, others: list[bytes]) -> bytes:
    """More stands behind: zeros, noise, or the file again."""
    count = chance.choice((1, 10, 4096))
    return bytes(data) + chance.choice((bytes(count), chance.randbytes(count), bytes(data)))


def _block(chance: random.Random, data: bytearray) -> tuple[int, int]:
    length = chance.choice((1, 64, 512, 4096))
    return chance.randrange(max(1, len(data) // length)) * length, length


DAMAGE: tuple[Change, ...] = (
    flipped, cut, spliced, written_over, zeroed, swapped, appended,
)  # fmt: skip

# ---- lies: all digests of the manifest are right -------------------------------------------------


def lie(chance: random.Random, path: Path, target: Path) -> None:
    """A file whose records, constants or manifest say something else.

    Not its code: whoever writes code and its digest writes a program, which nobody can judge.
    """
    container = Container(str(path))
    members = [Member(name, bytes(container.view(name)), _alignment(container, name))
               for name in container.parts]  # fmt: skip
    about = json.loads(json.dumps(container.about))
    number = chance.choice([n for n, each in enumerate(members) if not each.name.endswith("/code")])
    if chance.random() < 0.25:
        _change(chance, about)
    else:
        old = members[number]
        members[number] = Member(old.name, _lied(chance, old), old.alignment)
    write(str(target), about, members)


def _alignment(container: Container, name: str) -> int:
    offset = container.part(name).offset
    return next(size for size in (1 << 16, 4096, 64) if offset % size == 0)


def _lied(chance: random.Random, member: Member) -> bytes:
    if member.name.endswith(".json"):
        value = json.loads(bytes(member.data))
        for _ in range(chance.choice((1, 1, 3))):
            _change(chance, value)
        return json.dumps(value).encode()
    data = bytearray(member.data)
    return chance.choice((flipped, cut, written_over))(chance, data, []) if len(data) > 8 else b"x"


def _change(chance: random.Random, value: Any) -> None:
    """Another value somewhere inside."""
    while value:
        places = list(value) if isinstance(value, dict) else range(len(value))
        place = chance.choice(places)
        inner = value[place]
        if isinstance(inner, (dict, list)) and inner and chance.random() < 0.9:
            value = inner
            continue
        other: Any = chance.choice((None, True, "", "n", [], {}, "9" * 40, *EXTREMES, -1, -(2**63)))
        if isinstance(inner, int) and chance.random() < 0.5:
            other = inner + chance.choice((-1, 1, 7, 1 << 20))
        value[place] = other
        return


# ---- judge ---------------------------------------------------------------------------------------


def outcome(path: Path, cases: list[tuple[Inputs, dict[str, bytes]]]) -> str:
    """'refused' or 'equal'; raises AssertionError for another model."""
    try:
        model = ad.load(path)
        for inputs, expected in cases:
            got = {name: array.tobytes() for name, array in model(**inputs).items()}
            assert got == expected, f"{path} is another model"
        str(model.memory), model.explain(details=True), model.plan(n=3)
    except ad.UserError:
        return "refused"
    return "equal"


def main(folder: Path, seed: int, count: int) -> None:
    good = {name: folder / f"{name}.anydim" for name in KINDS}
    data = {name: path.read_bytes() for name, path in good.items()}
    cases = {}
    for name, path in good.items():
        model = ad.load(path)
        cases[name] = [(inputs, {key: array.tobytes() for key, array in model(**inputs).items()})
                       for inputs in KINDS[name].inputs()]  # fmt: skip
    found: Counter[str] = Counter()
    for number in range(seed, seed + count):
        chance, bad = random.Random(number), folder / f"bad{number}"  # one file may be mapped still
        name = chance.choice(list(KINDS))
        change = chance.choice((*DAMAGE, None))
        sys.stderr.write(f"\r{number} {name} {change.__name__ if change else 'lie'}      ")
        if change is None:
            lie(chance, good[name], bad)
        else:
            bad.write_bytes(change(chance, bytearray(data[name]), list(data.values())))
        with np.errstate(all="ignore"):
            found[outcome(bad, cases[name])] += 1
        bad.unlink()
    print(dict(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
