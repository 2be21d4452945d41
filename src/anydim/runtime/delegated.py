"""Interface of a call to subgraphs that other engines run; see `devices/engines/delegated.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from anydim.base.dtypes import DType
from anydim.base.records import dataclass

RUN, FETCH = range(2)  # requests to the function of a part


@dataclass(frozen=True)
class Port:
    """An input or output of a part, by its name in the part's ONNX model."""

    name: str
    dtype: DType
    rank: int


@dataclass(frozen=True)
class DelegatedPart:
    """A part of a program that engine `engine` runs: an ONNX model, stored as constant `model`.

    Slot `function` holds the address of the function that runs it. Its arguments are the address of
    slot `first`, and RUN or FETCH. From `first` on, the slots hold: for each input its address and
    sizes; the elements of `vectors`, int64 inputs that contain sizes of the program, with their
    counts; for each output its destination and sizes, or 0 and -1 where they are unknown. RUN
    stores addresses and sizes of the unknown outputs there; FETCH copies these outputs to the
    destinations that were allocated since. Both return 0, or 1 on failure.
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
        """The number of slots that its function reads and writes."""
        ports = sum(1 + port.rank for port in (*self.inputs, *self.outputs))
        return ports + sum(count for _, count in self.vectors)


class DelegatedParts(Protocol):
    """The callable parts of a program that engines run."""

    def functions(self) -> Iterator[tuple[int, int]]:
        """Yield the slot and the address of each part's function."""

    def begin(self) -> None:
        """Clear this thread's stored exception at the begin of a call."""

    def raise_kept(self) -> None:
        """Raise this thread's stored exception of this call, if any."""


class NoDelegates:
    """A program without delegated parts."""

    def functions(self) -> Iterator[tuple[int, int]]:
        """None."""
        return iter(())

    def begin(self) -> None:
        """Nothing to forget."""

    def raise_kept(self) -> None:
        """Nothing to raise."""
