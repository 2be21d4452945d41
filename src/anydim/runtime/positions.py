"""Indices that only data determines, and the error for one that is out of range."""

from __future__ import annotations

from collections.abc import Mapping

from anydim.base.errors import InputError
from anydim.base.records import dataclass
from anydim.sizes import Size

ALLOWED = "allowed"  # the indices of the operator `counted` are values
FINE = -(2**63)  # the status of an index in range


@dataclass(frozen=True)
class Position:
    """An index that a kernel checks: into an axis of `size` of `tensor`.

    `source` is the node that reads; negative indices count from the end with `from_end`. `indices`
    is the input that holds the indices, if it is an input.
    """

    source: str
    tensor: str
    size: Size
    from_end: bool = False
    indices: str = ""


def outside(position: Position, found: int, name: str, dims: Mapping[str, int]) -> InputError:
    """Return the error for an index with value `found` in a call of the program `name`."""
    node = position.source.removeprefix(f"{name}: ")
    where = node if name in node else f"{node} of {name}" if node else name
    if not position.size.symbols <= dims.keys():  # a slice in an iteration of a loop
        limits = f"0..{position.size - 1}"
        return InputError(f"{where}: index {found} is outside {limits}", "give indices inside it")
    problem, hint = outside_axis(position, found, position.size.evaluate(dims))
    return InputError(f"{where}: {problem}", hint)


def outside_axis(position: Position, found: int, extent: int) -> tuple[str, str]:
    """Return the problem and the remedy; for negative indices `found` is counted from the front."""
    size, of = position.size, f" of '{position.tensor}'" if position.tensor else ""
    word, words = "index", "indices"
    if position.tensor.rsplit("/", 1)[-1] == ALLOWED:
        word, words, of = "value", "values", ""
    low = -extent if position.from_end else 0
    if position.from_end and found < 0:
        found -= extent
    named = "" if size.constant is not None else f" where {size} is {extent}"
    source = f"; they come from input '{position.indices}'" if position.indices else ""
    if extent < 1:
        problem = f"{word} {found} is outside an axis{of}, whose size is {extent}"
        return problem, f"an axis without elements takes no {words}{source}"
    problem = f"{word} {found} is outside {low}..{extent - 1}{of}{named}"
    return problem, f"give {words} from {low} to {extent - 1}{source}"
