"""Sizes that a call of a straight program is bound to, and what follows from them alone.

Calls with the sizes of an earlier call restore it instead of computing it again. They find it by a
key: one size for each different size expression of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from anydim.runtime.invoke import REPORTED, NewResults
from anydim.runtime.signature import Signature
from anydim.runtime.size_values import Block
from anydim.sizes import Size

Key = tuple[int, ...]
KeyAxis = tuple[str, int, int]


class BoundSizes:
    """The sizes of all inputs, `shapes` (None: unbound), and what follows from them."""

    shapes: list[int] | None = None
    results: Sequence[tuple[int, ...]] = ()  # shapes
    makers: Sequence[Callable[..., numpy.ndarray]] = ()  # allocators of results
    new: NewResults | None = None  # the same for native code
    asked_for = 0  # requested bytes of the arena
    parallel = 0  # whether threads are worthwhile
    held = 0  # bytes of blocks outside the arena
    blocks: Sequence[Block] = ()  # shared blocks
    behind = False  # whether blocks too large to be shared are behind the arena
    slots = b""  # the block after a call

    @property
    def dropped(self) -> bool:
        """Whether a shared block was dropped from the cache."""
        return any(block.dropped for block in self.blocks)


UNBOUND = BoundSizes()


def key_axes(signature: Signature) -> list[KeyAxis]:
    """The axes whose sizes are the key: name of the input, axis, index among all axes."""
    found: dict[Size, KeyAxis] = {}
    index = 0
    for spec in signature.inputs:
        for axis, size in enumerate(spec.shape):
            if size.symbols:
                found.setdefault(size, (spec.name, axis, index))
            index += 1
    return list(found.values())


def key_of(given: Mapping[str, Any], axes: Sequence[KeyAxis]) -> Key | None:
    """The key of inputs; None if they have no such sizes."""
    try:
        return tuple([given[name].shape[axis] for name, axis, _ in axes])
    except (LookupError, *REPORTED):
        return None
