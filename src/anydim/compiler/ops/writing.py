"""Text helpers of the writer functions: indices, sizes, reads and parameters.

A tensor of rank 3 is written `T(N0,N1,N2) x` and read `x(i0,i1,i2)`; one of rank 0 is a bare
`T x`, read `x`. Sizes that a text cannot name are passed as its `size` attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anydim.base.errors import GraphError
from anydim.base.user_values import items_of
from anydim.compiler.kernels.routines.arguments import axis_of
from anydim.compiler.kernels.routines.arguments import expect_inputs as expect_inputs
from anydim.compiler.kernels.routines.arguments import sizes_of as sizes_of
from anydim.lang.tree import TensorType
from anydim.sizes import Size, as_size


def numbered(letter: str, count: int) -> list[str]:
    """['i0', 'i1', ...]"""
    return [f"{letter}{number}" for number in range(count)]


def parameter(name: str, sizes: Sequence[str], dtype: str = "T") -> str:
    """`T(N0,N1) x`"""
    return f"{dtype}({','.join(sizes)}) {name}" if sizes else f"{dtype} {name}"


def read(name: str, indices: Sequence[str]) -> str:
    """`x(i0,i1)`"""
    return f"{name}({','.join(indices)})" if indices else name


def or_default(text: str, kind: TensorType) -> str:
    """A read of a tensor, with a default if the tensor is always empty.

    Results with data-dependent sizes are then empty too; a guard states that, no proof could.
    """
    if not any(size.constant == 0 for size in kind.shape):
        return text
    return f"({text} else {'false' if kind.dtype.kind == 'bool' else '0'})"


def target(name: str, indices: Sequence[str]) -> str:
    """`y(i0,i1)`; a scalar result is written `y()`."""
    return f"{name}({','.join(indices)})" if indices else name


def upper_names(indices: Iterable[str]) -> list[str]:
    """['...p', 'M']: the sizes of the axes of indices '...p', 'm'."""
    return [index if index.startswith("...") else index.upper() for index in indices]


def ranges(pairs: Iterable[tuple[str, str]]) -> str:
    """` where i in 0:N, ...` for (index, extent) pairs; empty for none."""
    text = ", ".join(f"{index} in 0:{extent}" for index, extent in pairs)
    return f" where {text}" if text else ""


def definition(
    name: str,
    parameters: Sequence[str],
    statements: Sequence[str],
    attributes: Sequence[str] = (),
    results: Sequence[str] = ("y",),
) -> str:
    """`def name(parameters; attributes) -> (results) { statements }`"""
    declared = f"; {', '.join(attributes)}" if attributes else ""
    body = "\n  ".join(statements)
    head = f"def {name}({', '.join(parameters)}{declared}) -> ({', '.join(results)})"
    return f"{head} {{\n  {body}\n}}"


def sizes_as_attributes(letter: str, sizes: Iterable[Size | int]) -> dict[str, Size]:
    """{'S0': ..., 'S1': ...}: values of `size` attributes, one per size."""
    return {f"{letter}{number}": as_size(size) for number, size in enumerate(sizes)}


def declared(values: Iterable[str]) -> list[str]:
    """['size S0', ...]"""
    return [f"size {name}" for name in values]


def axis_set(operator: str, axes: Any, rank: int) -> tuple[int, ...]:
    """Sorted axes counted from the front; None: all. Raises GraphError for a repeated axis."""
    if axes is None:
        return tuple(range(rank))
    given = [axes] if isinstance(axes, int) else items_of(
        f"axes of operator '{operator}'", axes, "give a list of integers, or None for all"
    )  # fmt: skip
    found = tuple(axis_of(operator, axis, rank) for axis in given)
    if len(set(found)) != len(found):
        raise GraphError(f"operator '{operator}': axes {tuple(given)} name an axis twice")
    return tuple(sorted(found))


def steps_of(operator: str, attributes: Mapping[str, Any], word: str, rank: int) -> tuple[int, ...]:
    """An attribute of one positive number per axis; defaults to 1."""
    values = attributes[word]
    values = (1,) * rank if values is None else tuple(values)
    if len(values) != rank or not all(isinstance(v, int) and v > 0 for v in values):
        raise GraphError(
            f"operator '{operator}': {word} {values} for {rank} axes, expected numbers >0"
        )
    return values


def pads_of(operator: str, pads: Any, rank: int) -> Sequence[Any]:
    """Padding before all axes, then after them; None: none."""
    counts: Sequence[Any] = (0,) * (2 * rank) if pads is None else pads
    if isinstance(counts, str) or len(counts) != 2 * rank:
        given = f"pads '{counts}'" if isinstance(counts, str) else f"{len(counts)} pads"
        raise GraphError(f"operator '{operator}': {given} for {rank} axes, expected {2 * rank}")
    return counts


def expect_rank(operator: str, kind: TensorType, rank: int, what: str) -> None:
    """Raise GraphError unless a tensor has the rank."""
    if kind.rank != rank:
        raise GraphError(f"operator '{operator}': {what} is {kind}, expected {rank} axes")


def aligned(kind: TensorType, shape: Sequence[Size], indices: Sequence[str]) -> list[str]:
    """Indices that read a tensor broadcast to `shape`: '0' along its axes of size 1."""
    offset = len(shape) - kind.rank
    if offset < 0:
        raise GraphError(f"{kind} cannot be broadcast to {len(shape)} axes")
    return [
        "0" if size.constant == 1 and shape[offset + axis].constant != 1 else indices[offset + axis]
        for axis, size in enumerate(kind.shape)
    ]


def wrapped(index: str, extent: str) -> str:
    """An index that counts from the end if negative."""
    return f"({index} < 0 ? {index} + {extent} : {index})"


def placed(attributes: Mapping[str, Any], index: str, extent: str) -> str:
    """An index of any integer type as a position; with `from_end`, negative ones are wrapped."""
    position = f"cast<int64>({index})"
    return wrapped(position, extent) if attributes["from_end"] else position
