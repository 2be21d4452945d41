"""What a call needs of the parts that another engine runs: words, functions, what went wrong.

`devices/engines/delegated.py` makes the functions; this room knows no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from anydim.base.dtypes import DType
from anydim.base.records import dataclass

RUN, FETCH = range(2)  # what the function of a part is asked for


@dataclass(frozen=True)
class Port:
    """A value that goes into a part or comes out, by the name that the part's model has for it."""

    name: str
    dtype: DType
    rank: int


@dataclass(frozen=True)
class HandedPart:
    """A part of a program that engine `engine` runs: an ONNX model, the constant `model`.

    `function` is the word that holds the address of what runs it. That takes the address of the
    words `first` and following, and RUN or FETCH: for each input where it lies and its sizes; the
    elements of `vectors`, int64 inputs of the part that hold sizes of the program, so many each;
    for each output where it is wanted and its sizes, in place of those that are not known before 0
    and -1. RUN puts what was found there. FETCH copies outputs that were not known to where they
    are wanted by then. Both return 0, or 1 where they fail.
    """

    engine: str
    model: str
    source: str
    function: int
    first: int
    inputs: tuple[Port, ...]
    vectors: tuple[tuple[str, int], ...]
    outputs: tuple[Port, ...]

    @property
    def words(self) -> int:
        """How many words its function reads and writes."""
        ports = sum(1 + port.rank for port in (*self.inputs, *self.outputs))
        return ports + sum(count for _, count in self.vectors)


class Handed(Protocol):
    """The parts of a program that engines run, ready to be called."""

    def functions(self) -> Iterator[tuple[int, int]]:
        """The word of each part's function, and the function's address."""

    def begin(self) -> None:
        """Forget what a part has raised in this thread: a call begins."""

    def raise_kept(self) -> None:
        """Raise what a part has raised last in this thread in this call, if anything."""


class Nothing:
    """No part is handed to another engine."""

    def functions(self) -> Iterator[tuple[int, int]]:
        """None."""
        return iter(())

    def begin(self) -> None:
        """Nothing to forget."""

    def raise_kept(self) -> None:
        """Nothing to raise."""
