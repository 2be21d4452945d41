"""Promise: a launch is served by the body that its sizes have, else by the generic one."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from functools import cache

import numpy
import pytest

from anydim.compiler.native.threads import LAUNCH, threads_code
from anydim.compiler.targets.target import Code
from anydim.compiler.targets.targets import target
from anydim.runtime.variant_tables import (
    AS_LAUNCHED,
    SEEN_ROWS,
    Callee,
    Choice,
    Site,
    Span,
    VariantEntry,
    hash_of,
)  # fmt: skip
from tests.kernel_targets import HOST_TARGETS

WORD = ctypes.c_int64
EXTENT = ctypes.CFUNCTYPE(WORD, WORD)
KERNEL = ctypes.CFUNCTYPE(None, WORD, WORD, WORD, WORD)
MISSED = ctypes.CFUNCTYPE(WORD, WORD, WORD)


@cache
def pool(name: str) -> Code:
    """The code of launches by a target."""
    made = target(name)
    assert made.load is not None
    objects = made.compile(made.sources([threads_code()], made.processor))
    return made.load(objects.code.values(), [LAUNCH])


class Launched:
    """Launches of a site with two operands and two sizes; `ran` is what they ran."""

    def __init__(
        self, callee: Callee | None = None, watching: bool = False, made: str = "llvm"
    ) -> None:
        self.ran: list[tuple[str, int, int]] = []
        self._kept: list[object] = []
        self._launch = ctypes.CFUNCTYPE(None, *[WORD] * 8)(pool(made).address(LAUNCH))
        self.choice = Choice(Site(self.code("generic"), 2, 3), callee, watching)

    def code(self, name: str) -> int:
        """The address of a kernel that says its name."""
        run = KERNEL(lambda a, start, stop, s: self.ran.append((name, start, stop)))
        self._kept.append(run)
        return ctypes.cast(run, ctypes.c_void_p).value or 0

    def extent(self, says: Callable[..., int]) -> int:
        """The address of what says the parallel range for sizes."""
        run = EXTENT(lambda at: says(*(WORD * 3).from_address(at)))
        self._kept.append(run)
        return ctypes.cast(run, ctypes.c_void_p).value or 0

    def __call__(self, sizes: tuple[int, int], parallel: int) -> str:
        self.ran.clear()
        arguments = numpy.array([0, 0, *sizes, -1], numpy.int64)
        self._launch(0, self.choice.entry, arguments.ctypes.data, parallel, 1, 0, 0, 0)
        ((name, *_),) = self.ran
        return name


@pytest.mark.parametrize("made", HOST_TARGETS)
def test_each_size_has_its_body(made: str) -> None:
    launched = Launched(made=made)
    known = [(m, n, 4) for m, n in itertools.product((0, 1, 7, 1 << 40), (3, 31, 93))]
    for sizes in known:
        body = VariantEntry(sizes, launched.code(str(sizes)), 4, 1, 0)
        launched.choice.change([body])
    for sizes in known:
        assert launched(sizes[:2], 4) == str(sizes)
        assert launched(sizes[:2], 5) == "generic"  # the parallel range counts too
    assert launched((2, 3), 4) == "generic"
    assert launched((1 << 31, 3), 4) == "generic"  # hashes like (0, 3)
    assert hash_of((1 << 31, 3, 4)) == hash_of((0, 3, 4))
    assert [launched.choice.hits(sizes) for sizes in known] == [1] * len(known)
    launched.choice.change(less=known[:3])
    assert [launched(sizes[:2], 4) for sizes in known[:4]] == ["generic"] * 3 + [str(known[3])]


def test_a_body_is_launched_its_own_way() -> None:
    launched = Launched()
    launched.choice.change([VariantEntry((5, 6, 7), launched.code("wide"), 2, 1, 0)])
    assert launched((5, 6), 7) == "wide"
    assert launched.ran == [("wide", 0, 2)]


@pytest.mark.parametrize("made", HOST_TARGETS)
def test_what_has_no_body_of_its_own_has_that_of_a_span(made: str) -> None:
    launched = Launched(watching=True, made=made)
    spans = [Span((low, 3, 0), (high, 3, 99)) for low, high in ((1, 16), (17, 32), (20, 1 << 40))]
    for span in spans:
        code = launched.code(str(span.low[0]))
        launched.choice.change([VariantEntry(span, code, AS_LAUNCHED, 1, 1 << 62)])
    asked = (0, 1, 16, 17, 31, 32, 33, 1 << 40, (1 << 40) + 1, 1)
    wanted = ["generic", "1", "1", *["17"] * 3, "20", "20", "generic", "1"]
    assert [launched((size, 3), 4) for size in asked] == wanted
    assert launched.ran == [("1", 0, 4)]
    assert [launched((5, 2), 4), launched((5, 3), 100)] == ["generic", "generic"]
    assert launched((20, 3), 4) == "17" and launched((33, 3), 4) == "20"
    assert launched((20, 3), 4) == "20"  # that was found last
    assert [launched.choice.hits(span) for span in spans] == [3, 4, 4]
    assert sum(launched.choice.frequent_sizes().values()) == 4
    launched.choice.change([VariantEntry((5, 3, 4), launched.code("5"), 4, 1, 0)])
    assert [launched((size, 3), 4) for size in (5, 6, 5)] == ["5", "1", "5"]
    launched.choice.change(less=[spans[0]])
    assert [launched((size, 3), 4) for size in (5, 6, 21)] == ["5", "generic", "17"]


def test_a_span_may_have_a_parallel_range_of_its_own_and_sizes_that_it_does_not_take() -> None:
    launched = Launched()
    extent = launched.extent(lambda m, n, parallel: -1 if m % 2 else (m + n) * parallel)
    span, other = Span((1, 1, 1), (9, 9, 9)), Span((1, 1, 1), (7, 7, 7))
    launched.choice.change(
        [VariantEntry(span, launched.code("even"), AS_LAUNCHED, 1, 0, extent=extent)]
    )
    assert (launched((2, 3), 4), launched.ran) == ("even", [("even", 0, 20)])
    assert launched((3, 3), 4) == "generic"
    launched.choice.change([VariantEntry(other, launched.code("any"), AS_LAUNCHED, 1, 0)])
    assert [launched((m, 3), 4) for m in (2, 3, 2, 8, 9)] == [
        "even", "any", "any", "even", "generic"
    ]  # fmt: skip


def test_a_row_without_code_leaves_a_launch_to_the_generic_body() -> None:
    told: list[int] = []
    run = MISSED(lambda number, sizes: told.append(number) or 0)
    launched = Launched(Callee(ctypes.cast(run, ctypes.c_void_p).value or 0, 8))
    launched.choice.change([VariantEntry((1, 2, 3), 0, AS_LAUNCHED, 1, 1 << 62)])
    assert [launched((m, 2), 3) for m in (1, 1, 2)] == ["generic"] * 3
    assert told == [8]


def test_what_comes_often_is_seen() -> None:
    launched = Launched(watching=True)
    place = hash_of((1, 2, 3)) % SEEN_ROWS
    other = next(n for n in range(9, 999) if hash_of((n, 2, 3)) % SEEN_ROWS == place)
    for times, size, seen in ((5, 1, {(1, 2, 3): 5}), (3, other, {(1, 2, 3): 2}),
                              (4, other, {(other, 2, 3): 2})):  # fmt: skip
        for _ in range(times):
            assert launched((size, 2), 3) == "generic"
        assert launched.choice.frequent_sizes() == seen
    launched.choice.forget((other, 2, 3))
    assert launched.choice.frequent_sizes() == {}


def test_a_miss_may_be_answered_with_a_row() -> None:
    asked: list[tuple[int, ...]] = []

    def missed(number: int, sizes: int) -> int:
        asked.append((number, *(WORD * 3).from_address(sizes)))
        choice.change([VariantEntry((1, 2, 3), launched.code("made"), 3, 1, 0)])
        return choice.row((1, 2, 3)) if asked[-1][1:] == (1, 2, 3) else 0

    told: Callable[[int, int], int] = MISSED(missed)
    address = ctypes.cast(told, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
    launched = Launched(Callee(address, 8))
    choice = launched.choice
    served = [launched((size, 2), 3) for size in (1, 1, 4, 1)]
    assert served == ["made", "made", "generic", "made"]
    assert asked == [(8, 1, 2, 3), (8, 4, 2, 3)]
