"""Values that lie in the bytes of an operand that dies.

A kernel says which of its results it can write where it reads an operand (`Launch.in_place`). That
is done where nobody reads the operand afterwards and both take equally many bytes. A result of the
graph takes the operand along: into the caller's array, where it is written in the first place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from anydim.passes.schedule import Scheduled
from anydim.sizes import Size

Rename = Callable[[str], str]


def in_place(
    launches: Sequence[Scheduled], root: Rename, given: Collection[str], results: Collection[str],
    bytes_of: Callable[[str], Size],
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """Pairs (made, read) of values that may be one, in the order of the launches that make them.

    Values are named by `root`, what a value is the bytes of. Those that are `given` (inputs and
    constants) or `results` are read by others than launches.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, item in numbered(launches):
        for value in map(root, (*item.reads, *item.writes)):
            first.setdefault(value, number)
            last[value] = number
    for number, item in numbered(launches):
        operands = [root(value) for value in item.reads]
        for result, operand in item.launch.in_place:
            made, read = root(item.values[result]), root(item.values[operand])
            if read in given or read in results or operands.count(read) != 1:
                continue
            if first[made] != number or last[read] != number or bytes_of(made) != bytes_of(read):
                continue
            last[read] = -1  # it has a place in one result
            first[made] = -1
            yield made, read


def numbered(launches: Sequence[Scheduled]) -> Iterator[tuple[int, Scheduled]]:
    """Launches with numbers in their order; those that do one group have the same one."""
    number = 0
    for item in launches:
        yield number, item
        number += not item.goes_on


def updates(
    launches: Sequence[Scheduled], root: Rename, inputs: Collection[str], results: Collection[str],
    bytes_of: Callable[[str], Size],
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """Pairs (result, input) for which a caller may give one array: nothing else reads the input.

    The launch that makes the result reads the input where the kernel allows it; those before it
    leave the result alone, those after it read the input no more.
    """
    used: dict[str, list[int]] = {}
    for number, item in numbered(launches):
        for value in map(root, (*item.reads, *item.writes)):
            used.setdefault(value, []).append(number)
    for number, item in numbered(launches):
        for result, operand in item.launch.in_place:
            made, read = root(item.values[result]), root(item.values[operand])
            if made not in results or read not in inputs or bytes_of(made) != bytes_of(read):
                continue
            once = [root(value) for value in item.reads].count(read) == 1
            if used[made][0] == number == used[read][-1] and once:
                yield made, read
