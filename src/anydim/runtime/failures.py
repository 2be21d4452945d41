"""Failures of a call, and their errors.

Native code returns the number of a failure and stores its operands in slots of the call's memory
that the failure's record names.
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
    """A kind of failure; `dims` are the slots of the dims that have values at that point.

    kind: 'check' (shapes, or dims defined by data, violate `signature`; `shapes` are the slots of
    the sizes of each tensor), 'found' (data defines a dim outside its bounds), 'given' (a dim
    passed to a region is outside its bounds), 'count' (the number of sizes, in slot `found`,
    differs from the number of dims), 'position' (the index in slot `found` is out of range),
    'memory' (an allocation failed; slot `found` holds its bytes), 'slice' (a slice of a stack
    has another shape; `shapes` are those of slice and stack), 'place' (slice `found` is outside a
    stack of `size` slices), 'time' (the time limit was exceeded), 'loop' (the same, in a program
    with loops), 'interrupted' (by a signal), 'device' (an entry point of the device at slot `found`
    failed; its exception is raised if known), 'engine' (an engine failed; likewise), 'empty' (an
    engine does not support an empty tensor).
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
        """Whether all its slots are inside a call's memory of `words` slots."""
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
    """Return the error for a failure in a call of the program `name`."""
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
        f"declared {dim}; {_REMEDIES[failed.kind]}{_NO_COUNT if value == -1 else ''}",
    )


_NO_COUNT = "; -1 results from a step of 0, or from more elements than 63 bits can count"
_REMEDIES = {
    "found": "the data of the inputs defines this size; change the data or the bound",
    "given": "the inner graph supports a smaller range than the outer one; change the input",
}


def _count(failed: Failure, words: Words, name: str) -> InputError:
    return InputError(
        f"{failed.signature.name}: got {words[failed.found]} sizes for the dims {failed.dim}",
        "give one size for each dim",
    )


def _position(failed: Failure, words: Words, name: str) -> InputError:
    assert failed.position is not None
    return outside(failed.position, words[failed.found], name, _dims(failed, words))


def _memory(failed: Failure, words: Words, name: str) -> InputError:
    """Return the error for an allocation in a region program."""
    return no_memory(failed, words, words[failed.found] if failed.found else 0)


def no_memory(failed: Failure, words: Words, arena: int, results: int = 0) -> OutOfMemoryError:
    """Return the error for a failed allocation of intermediate values and results, in bytes."""
    at = ", ".join(f"{dim} = {value}" for dim, value in _dims(failed, words).items())
    where = f" at {at}" if at else ""
    parts = {"intermediate values": arena, "results": results}
    needed = " and ".join(f"{bytes} bytes of {part}" for part, bytes in parts.items() if bytes)
    return OutOfMemoryError(
        f"{failed.signature.name}: not enough memory{where}" + (needed and f" for {needed}"),
        "use smaller inputs, or free other memory; the model remains usable",
    )


def _slice(failed: Failure, words: Words, name: str) -> InputError:
    given, expected = _shapes(failed, words)
    return InputError(
        f"{failed.signature.name}: an iteration produced a slice of shape {list(given)}, earlier "
        f"iterations slices of shape {list(expected)}",
        "all slices of a stacked output must have the same shape",
    )


def _place(failed: Failure, words: Words, name: str) -> InputError:
    return InputError(
        f"{failed.signature.name}: slice {words[failed.found]} is outside a stack of "
        f"{words[failed.size]} slices",
        "keep the iterations inside the stack",
    )


def _time(failed: Failure, words: Words, name: str) -> UserError:
    allow = "raise the limit with model.limit_time(seconds), or use smaller inputs"
    if failed.kind == "loop":
        allow = f"check for an endless loop; otherwise {allow}"
    return TimeLimitError(f"{failed.signature.name}: the call exceeded its time limit", allow)


def _interruption(failed: Failure, words: Words, name: str) -> UserError:
    return InputError(f"{failed.signature.name}: the call was interrupted")


def _device(failed: Failure, words: Words, name: str) -> UserError:
    return DeviceError(f"{failed.signature.name}: a device failed", "call the model again")


def _engine(failed: Failure, words: Words, name: str) -> UserError:
    return DeviceError(f"{failed.signature.name}: an engine failed", "call the model again")


def _empty(failed: Failure, words: Words, name: str) -> UserError:
    at = ", ".join(f"{dim} = {value}" for dim, value in _dims(failed, words).items())
    return InputError(
        f"{failed.signature.name}: an engine does not support empty tensors, and one is empty at "
        f"{at}",
        "declare bounds from 1, or compile that part by anydim: placement={...: 'cpu'}",
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
    "interrupted": _interruption,
    "device": _device,
    "engine": _engine,
    "empty": _empty,
}
