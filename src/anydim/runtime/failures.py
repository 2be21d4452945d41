"""What can go wrong in a call, and the errors for it.

Native code returns the number of a failure; what it found stands in the memory of the call, at
words that the failure names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

from anydim.base.errors import (
    DeviceError,
    DimError,
    InputError,
    OutOfMemoryError,
    TimeLimitError,
    UserError,
)
from anydim.base.records import dataclass
from anydim.runtime.checks import Check, failure
from anydim.runtime.positions import Position, outside
from anydim.runtime.signature import Signature


class Words(Protocol):
    """The memory of a call."""

    def __getitem__(self, word: int, /) -> int: ...


@dataclass(frozen=True)
class Failure:
    """One thing that can go wrong; `dims` are the words of the dims that have values there.

    kind: 'check' (shapes that came, or dims just found, against `signature`; `shapes` are the
    words of the sizes of each tensor), 'found' (a dim outside its bounds, by data), 'given' (one
    from outside), 'count' (more or fewer values than dims, at word `found`), 'position' (an index
    that left its axis, at word `found`), 'memory' (there is none, for as many bytes as word `found`
    says), 'slice' (a slice of a stack has another shape than the stack; `shapes` are those of slice
    and stack), 'place' (the slice at `found` is outside the stack whose size is in word `size`),
    'time' (the call takes longer than it may), 'loop' (the same, of a program that has loops),
    'interrupted' (a signal ended it), 'device' (a verb
    failed of the device whose words begin at `found`; what it raised is raised, where it is known),
    'engine' (one that runs a part failed; the same), 'empty' (a part of an engine has an empty
    tensor that the engine does not take).
    """

    kind: str
    signature: Signature
    dims: Mapping[str, int] = field(default_factory=dict)
    check: Check | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    position: Position | None = None
    dim: str = ""
    found: int = 0
    size: int = 0

    def fits(self, words: int) -> bool:
        """Whether it can be told of a call's memory of so many words."""
        named = (*self.dims.values(), self.found, self.size, *sum(self.shapes, ()))
        tensors = self.signature.inputs if self.check is not None else ()
        ranks = [spec.rank for spec in tensors]
        known = self.kind in _ERRORS and self.dims.keys() <= set(self.signature.box.names)
        whole = self.check is None or self.check.input < 0 or (
            self.check.input < len(ranks) == len(self.shapes)
            and 0 <= self.check.axis < ranks[self.check.input] == len(self.shapes[self.check.input])
        )  # fmt: skip
        return known and whole and all(0 <= word < words for word in named)


def call_error(failed: Failure, words: Words, name: str) -> UserError:
    """The error for a failure in a call of the program `name`."""
    return _ERRORS[failed.kind](failed, words, name)


def _dims(failed: Failure, words: Words) -> dict[str, int]:
    return {dim: words[word] for dim, word in failed.dims.items()}


def _shapes(failed: Failure, words: Words) -> list[tuple[int, ...]]:
    return [tuple(words[word] for word in shape) for shape in failed.shapes]


def _check(failed: Failure, words: Words, name: str) -> InputError:
    assert failed.check is not None
    dims = _dims(failed, words)
    return failure(failed.check, failed.signature, _shapes(failed, words), dims)


def _outside(failed: Failure, words: Words, name: str) -> InputError:
    dim, value = failed.signature.box.dim(failed.dim), words[failed.dims[failed.dim]]
    side, bound = ("below", dim.lo) if value < dim.lo else ("above", dim.hi)
    return DimError(
        f"{failed.signature.name}: dim '{dim.name}' is {value}, {side} its bound {bound}",
        f"declared {dim}; {_TOLD[failed.kind]}{_NO_COUNT if value == -1 else ''}",
    )


_NO_COUNT = "; -1 is what a step of 0 makes, and more elements than 63 bits count"
_TOLD = {
    "found": "the data of the inputs gave this size; change them, or the bound",
    "given": "what runs there takes fewer sizes than what is around it; change the input",
}


def _count(failed: Failure, words: Words, name: str) -> InputError:
    return InputError(
        f"{failed.signature.name}: {words[failed.found]} sizes came for the dims {failed.dim}",
        "give one size for each dim",
    )


def _position(failed: Failure, words: Words, name: str) -> InputError:
    assert failed.position is not None
    return outside(failed.position, words[failed.found], name, _dims(failed, words))


def _memory(failed: Failure, words: Words, name: str) -> InputError:
    """For regions: the bytes of the block that there was not."""
    return no_memory(failed, words, words[failed.found] if failed.found else 0)


def no_memory(failed: Failure, words: Words, arena: int, results: int = 0) -> OutOfMemoryError:
    """The error for memory that the system refused: bytes of intermediate values and results."""
    at = ", ".join(f"{dim} = {value}" for dim, value in _dims(failed, words).items())
    where = f" at {at}" if at else ""
    parts = {"intermediate values": arena, "results": results}
    needed = " and ".join(f"{bytes} bytes of {part}" for part, bytes in parts.items() if bytes)
    return OutOfMemoryError(
        f"{failed.signature.name}: not enough memory{where}" + (needed and f" for {needed}"),
        "use smaller inputs, or give other memory back; the model can be called again",
    )


def _slice(failed: Failure, words: Words, name: str) -> InputError:
    came, expected = _shapes(failed, words)
    return InputError(
        f"{failed.signature.name}: an iteration made a slice of shape {list(came)}, those before "
        f"it slices of shape {list(expected)}",
        "all slices that are stacked must have one shape",
    )


def _place(failed: Failure, words: Words, name: str) -> InputError:
    return InputError(
        f"{failed.signature.name}: slice {words[failed.found]} is outside of a stack of "
        f"{words[failed.size]} slices",
        "the iterations must not leave it",
    )


def _time(failed: Failure, words: Words, name: str) -> UserError:
    allow = "allow more with model.limit_time(seconds), or give smaller inputs"
    if failed.kind == "loop":
        allow = f"a loop may never end; if none does so, {allow}"
    return TimeLimitError(
        f"{failed.signature.name}: the call takes longer than its time limit", allow
    )


def _interrupted(failed: Failure, words: Words, name: str) -> UserError:
    return InputError(f"{failed.signature.name}: the call was interrupted")


def _device(failed: Failure, words: Words, name: str) -> UserError:
    return DeviceError(f"{failed.signature.name}: a device failed", "call the model again")


def _engine(failed: Failure, words: Words, name: str) -> UserError:
    return DeviceError(f"{failed.signature.name}: an engine failed", "call the model again")


def _empty(failed: Failure, words: Words, name: str) -> UserError:
    at = ", ".join(f"{dim} = {value}" for dim, value in _dims(failed, words).items())
    return InputError(
        f"{failed.signature.name}: an engine takes no empty tensors, and at {at} one is empty",
        "give its dims bounds from 1, or let anydim compile that part: placement={...: 'cpu'}",
    )


_ERRORS = {
    "check": _check,
    "found": _outside,
    "given": _outside,
    "count": _count,
    "position": _position,
    "memory": _memory,
    "slice": _slice,
    "place": _place,
    "time": _time,
    "loop": _time,
    "interrupted": _interrupted,
    "device": _device,
    "engine": _engine,
    "empty": _empty,
}
