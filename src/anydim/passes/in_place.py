"""Pairs of values that share a buffer: a result and an operand that dies.

A kernel lists the results that it can write where it reads an operand (`Launch.in_place`). The
buffer is reused if the operand has no later reader and both have the same size in bytes. If the
result is a graph output, the operand moves into the caller's array and is written there.
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
    """Pairs (made, read) of values that may share a buffer, in launch order.

    `root` maps a value to the name of its buffer. `given` (inputs and constants) and `results` have
    readers other than launches.
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
            last[read] = -1  # it is reused by one result
            first[made] = -1
            yield made, read


def numbered(launches: Sequence[Scheduled]) -> Iterator[tuple[int, Scheduled]]:
    """Launches with numbers in order; launches of one group share a number."""
    number = 0
    for item in launches:
        yield number, item
        number += not item.goes_on


def updates(
    launches: Sequence[Scheduled], root: Rename, inputs: Collection[str], results: Collection[str],
    bytes_of: Callable[[str], Size],
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """Pairs (result, input) that may be the same array of the caller.

    No other launch reads the input afterwards: the launch that makes the result reads the input
    where the kernel allows it; earlier launches do not touch the result.
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
