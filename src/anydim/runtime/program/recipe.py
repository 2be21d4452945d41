"""Recipes: the source text of a site's code, from which any process can regenerate it.

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

The record contains only the texts; `passes/recipes.py` writes them and generates code from them.
"""

from __future__ import annotations

import hashlib
from functools import cached_property

from anydim.base.errors import ArtefactError
from anydim.base.records import dataclass

_MOST = 1 << 22  # maximum characters of a recipe
_WORDS = ("schedule", "machine", "constants", "launch", "operands")


@dataclass(frozen=True)
class Recipe:
    """The source of a site's code, and the interface of all code for that site.

    `work` is the text of a graph with one node, whose box contains all sizes; `constants` are its
    inputs that are known before the first call. `schedule` is the schedule of the kernel template;
    if it is empty, the operator is a routine and `launch` its launch number. `machine` is what
    templates know of the processor.

    Code takes the addresses of `operands` (values of that graph, or intermediate values of a
    routine), then `sizes`, each named by its expression or purpose.
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
        """Return the text; `parse_recipe` reads it back."""
        lists = {"constants": self.constants, "operands": self.operands}
        lines = [f"{word} {_line(lists.get(word, getattr(self, word)))}" for word in _WORDS]
        return "\n".join([*lines, *(f"size {size}" for size in self.sizes), "work", self.work])

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of its text, in hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def subject(self) -> str:
        """The SHA-256 of the computation and the machine, independent of the schedule."""
        text = "\n".join((self.machine, _line(self.constants), self.work))
        return hashlib.sha256(text.encode()).hexdigest()


def parse_recipe(text: str) -> Recipe:
    """Parse a recipe; raises ArtefactError for an invalid one.

    Its fields are parsed when code is generated.
    """
    head, found, work = text.partition("\nwork\n")
    if not found or len(text) > _MOST:
        raise ArtefactError(f"a text of {len(text)} characters is not a recipe")
    lines = [line.partition(" ")[::2] for line in head.split("\n")]
    words = tuple(word for word, _ in lines)
    sizes = tuple(value for word, value in lines if word == "size")
    if words != (*_WORDS, *("size" for _ in sizes)):
        raise ArtefactError(
            "a recipe has unexpected lines", f"expected {', '.join(_WORDS)}, size, work"
        )
    schedule, machine, constants, launch, operands = (value for _, value in lines[: len(_WORDS)])
    if not (launch.isascii() and launch.isdigit() and len(launch) < 10):
        raise ArtefactError(f"a recipe has launch '{launch[:20]}'", "expected a number")
    return Recipe(work, schedule, machine, _list(constants), int(launch), _list(operands), sizes)


def _line(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split(", ")) if text else ()
