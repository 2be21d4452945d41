"""Sizes for a check: corners of the box, and random sizes inside it.

A corner has every dim at an end of its bounds, at 0 or at 1. The others are small sizes, primes and
their neighbours, and sizes from the whole range. Sizes too expensive for an oracle are reduced; the
most expensive corners come last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, product
from random import Random

from anydim.base.errors import AnydimError
from anydim.base.records import dataclass
from anydim.compiler.checking.oracle import Oracle
from anydim.runtime.program.binding import determined_dims
from anydim.runtime.program.plan import estimate
from anydim.runtime.program.program import Program
from anydim.sizes import Box, Dim, Guard, holds

Cost = Callable[[Mapping[str, int]], float]

_SHARES = (1 / 8, 1 / 64, 1 / 16, 1 / 64)  # maximum cost of a call, except for the last corners
_MAX_CORNERS = 32
_CALLS_OF_ONE_SIZE = 6  # for a program without dims
_UNBOUNDED = 64  # assumed range of a dim without an upper bound
_BEYOND = 4 * _UNBOUNDED  # the same, for sizes that depend on others
_AROUND = 256  # range of larger sizes tried if a guard fails
_TRIES, _FEW = 20, 5
SPECIAL = (0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 13, 15, 16, 17, 23, 31, 32, 33, 37, 61, 64, 65, 97, 127,
           128, 131, 255, 257, 509, 1021)  # fmt: skip
"""Small sizes, primes, and powers of 2 with their neighbours."""


@dataclass(frozen=True)
class Sample:
    """Sizes for one call: a `corner` of the box, or `reduced` from larger ones."""

    sizes: Mapping[str, int]
    corner: bool = False
    reduced: bool = False


def samples(program: Program, oracle: Oracle, count: int, seed: int) -> Iterator[Sample]:
    """`count` samples, at most half of them corners."""
    box, chance = box_of(program), Random(seed)
    if not box.dims:
        yield from (Sample({}, corner=True) for _ in range(min(count, _CALLS_OF_ONE_SIZE)))
        return
    cost = partial(_cost, program, oracle)
    guards = program.signature.guards
    corners = list(_corners(box, guards, min(_MAX_CORNERS, count // 2), chance))
    corners.sort(key=cost)
    small = [sizes for sizes in corners if cost(sizes) <= min(_SHARES)]
    wide = [sizes for sizes in corners if cost(sizes) > min(_SHARES)]
    for sizes in small:
        yield _affordable(box, sizes, cost, 1.0)
    seen = {tuple(sizes.values()) for sizes in corners}
    for number in range(count - len(corners)):
        limit = _SHARES[number % len(_SHARES)]
        drawn = [_affordable(box, _random(box, guards, chance), cost, limit) for _ in range(_FEW)]
        new = (each for each in drawn if tuple(each.sizes.values()) not in seen)
        sample = next(new, drawn[-1])
        seen.add(tuple(sample.sizes.values()))
        yield sample
    for sizes in wide:
        yield _affordable(box, sizes, cost, 1.0)


def box_of(program: Program) -> Box:
    """The box of dims to choose sizes for: without data-dependent ones."""
    box = program.signature.box
    if program.straight is not None:
        return box
    chosen = determined_dims(box, program.signature.inputs, frozenset())
    return box.without(set(box.names) - chosen)


def edges(box: Box) -> Iterator[dict[str, int]]:
    """Corners: every dim at each of its ends, and at 0 and 1 if inside.

    First one dim at a time, the others at their smallest size above 0; then all combinations.
    """
    ends = {dim.name: ends_of(dim) for dim in box.dims}
    smallest = {name: min(values, key=lambda v: (v == 0, v)) for name, values in ends.items()}
    for name, values in ends.items():
        for value in values:
            yield {**smallest, name: value}
    for point in islice(product(*ends.values()), 4096):
        yield dict(zip(ends, point))


def ends_of(dim: Dim) -> list[int]:
    """The ends of a dim's bounds, and 1 if inside."""
    wanted = [dim.lo, 1, dim.lo + _UNBOUNDED if dim.hi is None else dim.hi]
    return list(dict.fromkeys(value for value in wanted if value in dim))


def _corners(
    box: Box, guards: Sequence[Guard], most: int, chance: Random
) -> Iterator[dict[str, int]]:
    """Distinct corners that pass the guards: one dim at a time, then some of the others."""
    taken = (sizes for sizes in edges(box) if box.contains(sizes) and _taken(guards, sizes))
    found = {tuple(sizes.values()): sizes for sizes in taken}
    single = sum(len(ends_of(dim)) for dim in box.dims)
    every = list(found.values())
    rest = every[single:]
    chance.shuffle(rest)
    yield from (every[:single] + rest)[:most]


def _random(box: Box, guards: Sequence[Guard], chance: Random) -> dict[str, int]:
    """Random sizes in the box that pass the guards, if found in a few tries.

    Raises OptionError if the constraints leave no sizes.
    """
    for _ in range(_TRIES):
        sizes = {dim.name: _drawn(dim, chance) for dim in box.dims}
        sizes = _mended(box, guards, sizes, chance)
        if box.contains(sizes) and _taken(guards, sizes):
            return sizes
    return box.sample(chance)


def _taken(guards: Sequence[Guard], sizes: Mapping[str, int]) -> bool:
    return all(_passes(guard, sizes) for guard in guards)


def _passes(guard: Guard, sizes: Mapping[str, int]) -> bool:
    """Whether a guard holds; True for guards on data-dependent sizes."""
    try:
        return not guard.symbols <= sizes.keys() or holds(guard, sizes)
    except (AnydimError, ArithmeticError):  # a divisor is 0
        return False


def _mended(
    box: Box, guards: Sequence[Guard], sizes: dict[str, int], chance: Random
) -> dict[str, int]:
    """Change one dim for each failing guard to a size at which the guard holds, if found."""
    for guard in guards:
        if _passes(guard, sizes):
            continue
        dims = [box.dim(name) for name in sorted(guard.symbols & set(box.names))]
        fitting = [
            {**sizes, dim.name: value}
            for dim in dims
            for value in range(dim.lo, min(_highest(dim), sizes[dim.name] + _AROUND) + 1)
            if _passes(guard, {**sizes, dim.name: value})
        ]
        sizes = chance.choice(fitting) if fitting else sizes
    return sizes


def _highest(dim: Dim) -> int:
    """The upper bound of a dim, or an assumed one."""
    return dim.lo + _BEYOND if dim.hi is None else dim.hi


def _drawn(dim: Dim, chance: Random) -> int:
    top = dim.lo + _UNBOUNDED if dim.hi is None else dim.hi
    special = [size for size in SPECIAL if dim.lo <= size <= top]
    if special and chance.random() < 0.4:
        return chance.choice(special)
    if chance.random() < 0.5:  # log-uniform
        return dim.lo + int((top - dim.lo + 1) ** chance.random()) - 1
    return chance.randint(dim.lo, top)


def _affordable(box: Box, sizes: dict[str, int], cost: Cost, limit: float) -> Sample:
    """Reduce sizes until a call costs at most `limit`."""
    wanted = sizes
    while cost(sizes) > limit:
        largest = max(box.dims, key=lambda dim: sizes[dim.name] - dim.lo)
        if sizes[largest.name] == largest.lo:
            break
        half = largest.lo + (sizes[largest.name] - largest.lo) // 2
        smaller = {**sizes, largest.name: half}
        if not box.contains(smaller):
            break
        sizes = smaller
    at_ends = all(sizes[dim.name] in ends_of(dim) for dim in box.dims)
    return Sample(sizes, at_ends, sizes != wanted)


def _cost(program: Program, oracle: Oracle, sizes: Mapping[str, int]) -> float:
    """The work of a call as a share of an oracle's limit."""
    planned = estimate(program, sizes)
    size = planned.bytes + planned.input_bytes + planned.output_bytes
    return max(planned.flops / oracle.flops, size / oracle.bytes)
