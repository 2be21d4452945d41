"""Promise: groups are those of the least seconds, within the limit; rates explain timed calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy
import pytest

from anydim.runtime.program.batches.cuts import Seconds, cut, cut_few
from anydim.runtime.program.batches.work import Columns, Done, Rates


def columns(sizes: numpy.ndarray, rows: numpy.ndarray) -> Columns:
    return {"rows": rows, **{f"d{n}": column for n, column in enumerate(sizes.T)}}


def seconds(at: Columns) -> numpy.ndarray:
    """A fixed part, and what grows with all elements of a group."""
    return 3.0 + at["rows"] * numpy.prod([at[name] for name in at if name != "rows"], axis=0)


def at_most(limit: int) -> Callable[[Columns], numpy.ndarray]:
    return lambda at: numpy.where(seconds(at) - 3.0 <= limit, seconds(at), numpy.inf)


def of_groups(limit: int, least: int = 0, most: int = 10**9) -> Seconds:
    """Seconds by sizes and rows, infinite for groups above the limit or with other rows."""

    def found(sizes: numpy.ndarray, rows: numpy.ndarray) -> numpy.ndarray:
        inside = (rows >= least) & (rows <= most)
        return numpy.where(inside, at_most(limit)(columns(sizes, rows)), numpy.inf)

    return found


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    first, *rest = items
    for part in partitions(rest):
        yield [[first], *part]
        for number, group in enumerate(part):
            yield [*part[:number], [first, *group], *part[number + 1 :]]


def cost(group: list[int], sizes: numpy.ndarray, rows: numpy.ndarray, limit: int) -> float:
    at = columns(sizes[group].max(axis=0)[None], rows[group].sum()[None])
    return float(at_most(limit)(at)[0])


@pytest.mark.parametrize("seed", range(8))
def test_no_partition_is_better(seed: int) -> None:
    chance = numpy.random.default_rng(seed)
    sizes, rows = chance.integers(1, 9, (6, 1)), chance.integers(1, 3, 6)
    limit = 18
    found, groups = cut(sizes, rows, of_groups(limit))
    assert sorted(n for group in groups for n in group) == list(range(6))
    each = [cost(list(group), sizes, rows, limit) for group in groups]
    best = min(
        sum(cost(group, sizes, rows, limit) for group in part)
        for part in partitions(list(range(6)))
    )
    assert found == pytest.approx(sum(each)) == pytest.approx(best)


@pytest.mark.parametrize("count", [1, 2, 7, 16])
def test_few_items_have_the_groups_of_many(count: int) -> None:
    chance = numpy.random.default_rng(count)
    sizes, rows, calls = chance.integers(1, 9, count), chance.integers(1, 3, count), at_most(18)

    def of(keys: list[tuple[int, int]]) -> list[float]:
        at = numpy.array(keys)
        return calls({"rows": at[:, 1], "d0": at[:, 0]}).tolist()  # type: ignore[no-any-return]

    expected, _ = cut(sizes[:, None], rows, of_groups(18))
    found = cut_few(sizes.tolist(), rows.tolist(), of)
    assert sum(one for _, one in found) == pytest.approx(expected)
    assert sorted(n for group, _ in found for n in group) == list(range(count))
    for group, one in found:
        assert one == pytest.approx(cost(group, sizes[:, None], rows, 18))
    assert cut_few([9, 1], [5, 1], of) == []  # an item does not fit


def test_two_padded_dims() -> None:
    """Tall and wide items are never put together: that would double them."""
    sizes = numpy.array([(1, 40), (40, 1)] * 16)
    found, groups = cut(sizes, numpy.ones(32, int), of_groups(10**6))
    assert len(groups) == 2 and found == 2 * 3.0 + 32 * 40


def test_rows_have_bounds() -> None:
    sizes, rows = numpy.ones((60, 1), int), numpy.ones(60, int)
    seconds = of_groups(10**6, 4, 25)
    _, groups = cut(sizes, rows, seconds, 4)
    assert len(groups) == 3 and all(4 <= len(group) <= 25 for group in groups)
    assert cut(sizes[:3], rows[:3], seconds, 4) == (numpy.inf, [])
    assert cut(sizes, rows, of_groups(0))[1] == []  # nothing fits


def test_rates_are_learnt_in_spite_of_slow_moments() -> None:
    true, chance, rates = numpy.array([5e-6, 4e-11, 9e-11]), numpy.random.default_rng(0), Rates()

    def done(at: Columns) -> Done:
        tokens = at["tokens"].astype(float)
        flops = numpy.array([3e5 * tokens, 9e5 * tokens])
        moved = numpy.array([4e6 + 3e3 * tokens, 6e3 * tokens])
        return Done(tokens, tokens, numpy.full(len(tokens), 58.0), flops, moved)

    for number, tokens in enumerate((1, 2, 5, 9, 20, 60, 200, 900, 3000, 10_000)):
        one, at = Rates(), {"tokens": numpy.array([tokens])}
        one.now = true
        slow = 3.0 if number % 4 == 3 else chance.uniform(0.97, 1.03)
        rates.learn({"tokens": tokens}, float(one.seconds(done(at))[0]) * slow)
    rates.fit(done)
    numpy.testing.assert_allclose(rates.now[1:], true[1:], rtol=0.15)


def test_without_timed_calls_rates_are_the_first_ones() -> None:
    rates = Rates()
    first = rates.now
    rates.fit(lambda at: pytest.fail("nothing was learnt"))
    assert (rates.now == first).all()
