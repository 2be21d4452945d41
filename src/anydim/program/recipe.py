"""Recipes: what the code of a site is made from, as text, so that any process can make it again.

    schedule pointwise(lanes=8, unroll=4)
    machine vector_bytes=32, registers=16, l1_bytes=32768, l2_bytes=524288, fused=1
    constants t1
    launch 0
    operands t0, t1, t2
    size n
    size 4*n
    work
    graph ""
    dim n 0..128
    ...

A record knows no more than its texts; `passes/recipes.py` writes them and makes code of them.
"""

from __future__ import annotations

import hashlib
from functools import cached_property

from anydim.base.errors import ArtefactError
from anydim.base.records import dataclass

_MOST = 1 << 22  # characters of a recipe
_WORDS = ("schedule", "machine", "constants", "launch", "operands")


@dataclass(frozen=True)
class Recipe:
    """What to make for a site, and the interface that all code for it has.

    `work` is the text of a graph of one node, whose box holds all sizes that come; `constants` are
    those of its inputs that are known before the first call. `schedule` is what the kernel
    templates of the machine make it with; where it is empty, the operator of the node is a routine,
    and this is its launch number `launch`. `machine` is what templates know of the processor.

    Code takes the addresses of `operands`, values of that graph or what lives between the launches
    of a routine, then `sizes`, each called by its expression or by what it is for.
    """

    work: str
    schedule: str
    machine: str
    constants: tuple[str, ...]
    launch: int
    operands: tuple[str, ...]
    sizes: tuple[str, ...]

    @cached_property
    def text(self) -> str:
        """All of it; `parse_recipe` reads it back."""
        lists = {"constants": self.constants, "operands": self.operands}
        lines = [f"{word} {_line(lists.get(word, getattr(self, word)))}" for word in _WORDS]
        return "\n".join([*lines, *(f"size {size}" for size in self.sizes), "work", self.work])

    @cached_property
    def digest(self) -> str:
        """The sha256 of its text, in hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def subject(self) -> str:
        """The sha256 of what is computed, for which machine: that of every schedule for it."""
        text = "\n".join((self.machine, _line(self.constants), self.work))
        return hashlib.sha256(text.encode()).hexdigest()


def parse_recipe(text: str) -> Recipe:
    """The recipe that a text says; raises ArtefactError where it says none.

    What stands in its fields is read where code is made of it.
    """
    head, found, work = text.partition("\nwork\n")
    if not found or len(text) > _MOST:
        raise ArtefactError(f"a text of {len(text)} characters is no recipe")
    lines = [line.partition(" ")[::2] for line in head.split("\n")]
    words = tuple(word for word, _ in lines)
    sizes = tuple(value for word, value in lines if word == "size")
    if words != (*_WORDS, *("size" for _ in sizes)):
        raise ArtefactError("a recipe has other lines", f"expected {', '.join(_WORDS)}, size, work")
    schedule, machine, constants, launch, operands = (value for _, value in lines[: len(_WORDS)])
    if not (launch.isascii() and launch.isdigit() and len(launch) < 10):
        raise ArtefactError(f"a recipe is of launch '{launch[:20]}'", "launches have numbers")
    return Recipe(work, schedule, machine, _list(constants), int(launch), _list(operands), sizes)


def _line(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split(", ")) if text else ()
