"""Promise: requests share calls along a batch only where no row changes the result of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.serving.batcher import Batcher, form_of
from tests.unit.serving.models import dependent, images, same

Body = Callable[[ad.Builder, Any], Any]

MIXERS: dict[str, Body] = {
    "largest": lambda g, x: x - g.reduce_max(x, axes=(0,)),
    "least": lambda g, x: x - g.reduce_min(x, axes=(0,)),
    "mean": lambda g, x: x - g.reduce_mean(x, axes=(0,)),
    "all of them": lambda g, x: x - g.reduce_max(x),
    "order": lambda g, x: g.sort(x, axis=0)[0],
    "one before": lambda g, x: x - g.concat(x[:1], x, axis=0)[:-1],
    "first": lambda g, x: x - x[:1],
    "last": lambda g, x: x - x[-1:],
    "sum so far": lambda g, x: g.cum_sum(x, axis=0),
    "product": lambda g, x: g.matmul(g.matmul(x, g.transpose(x, perm=(1, 0))), x),
    "choice": lambda g, x: g.branch(
        g.greater(g.reduce_mean(x), 0.0), lambda b: b.neg(x), lambda b: b.add(x, 0.0)
    ),
    "trips": lambda g, x: g.loop(lambda b, t, s: b.mul(s, 0.5), x, trips=x.shape[0]),
}
"""Functions of [batch, 4] whose rows depend on each other."""

INDEPENDENT: dict[str, Body] = {
    "softmax": lambda g, x: g.softmax(x, axis=1),
    "order": lambda g, x: g.sort(x, axis=1)[0],
    "loop": lambda g, x: g.loop(lambda b, t, s: b.add(s, x), x, trips=3),
    "stacks": lambda g, x: g.reduce_sum(
        g.loop(lambda b, t, s: b.stack(s) or b.mul(s, 2.0), x, trips=3)[1], axes=(0,)
    ),
    "reshapes": lambda g, x: g.reshape(g.reshape(x, shape=(x.shape[0] * 2, 2)), shape=x.shape),
    "product": lambda g, x: g.matmul(x, g.constant(np.eye(4, dtype=np.float32))),
}


def compiled(body: Body) -> ad.Model:
    g = ad.Builder("model")
    x = g.input("x", ad.float32, (g.dim("batch", 1, 64), 4))
    g.output("y", body(g, x))
    return ad.compile(g, threads=1)


def opaque() -> ad.Model:
    """A model whose rows do not depend on each other, though an operator combines them."""
    return compiled(lambda g, x: g.add(x, g.mul(g.reduce_sum(x, axes=(0,)), 0.0)))


def shared(model: Any, rows: Sequence[np.ndarray], form: Any = None) -> Any:
    """Run requests in one call, and compare each with a call alone; returns the form."""
    form = form or form_of(model, "batch")
    found = form.run([form.read(row, None) for row in rows])
    for row, results in zip(rows, found):
        assert same(results, model(row))
    return form


def equal_rows(number: float) -> list[np.ndarray]:
    return [np.full((1, 4), number, np.float32)] * 3


def test_equal_rows_of_the_first_call_hide_no_dependence() -> None:
    """The largest of equal rows is that of each alone."""
    model = compiled(MIXERS["largest"])
    for number in (-7.0, 0.0, 7.0):
        form = shared(model, equal_rows(number))
        assert form.depends and not form.is_proven
    assert "not proven, so a batcher checks samples of calls: model: reduce_max" in " ".join(
        model.explain().split()
    )
    other = [np.float32([[3, 1, 2, 0]]), np.float32([[10, 10, 10, 10]])]
    shared(model, other, form)


@pytest.mark.parametrize("name", MIXERS)
def test_mixers_are_never_proven_and_found_by_samples(name: str) -> None:
    model = compiled(MIXERS[name])
    assert model.story.mixing["batch"]
    for rows in (equal_rows(2.0), equal_rows(-2.0)[:2]):
        assert shared(model, rows).depends


@pytest.mark.parametrize("name", INDEPENDENT)
def test_independent_rows_are_proven(name: str) -> None:
    model = compiled(INDEPENDENT[name])
    assert model.story.mixing["batch"] == ""
    form = shared(model, [np.float32([[n, 2, 3 - n, 4]]) for n in range(5)])
    assert form.is_proven and not form.depends
    assert "'batch': proven: no operator mixes its rows" in model.explain()


def test_a_late_dependence_is_found_now_and_then() -> None:
    """A dependence that the first rows do not show: of integers, whose other values may be none."""
    g = ad.Builder("model")
    x = g.input("x", ad.int64, (g.dim("batch", 1, 64), 4))
    large = g.reduce_max(g.where(g.greater(x, 100), x, 0), axes=(0,))
    g.output("y", g.add(x, large))
    model = ad.compile(g, threads=1)
    form = shared(model, [np.int64([[1, 2, 3, 4]]), np.int64([[5, 6, 7, 8]])])
    assert not form.depends
    given = [np.int64([[200, 2, 3, 4]]), np.int64([[5, 6, 7, 8]])]
    for _ in range(3):
        form.run([form.read(row, None) for row in given])
    assert form.depends
    shared(model, given, form)


def test_the_verdict_is_saved(tmp_path: Path) -> None:
    for model in (images(), dependent()):
        model.save(tmp_path / "model.anydim")
        loaded = ad.load(tmp_path / "model.anydim")
        assert loaded.story.mixing == model.story.mixing
        assert form_of(loaded, "batch").is_proven == form_of(model, "batch").is_proven
        assert "rows      'batch': " in loaded.explain()


@pytest.mark.parametrize(("model", "first", "second"), [(images, 2, 1), (opaque, 7, 3)])
def test_how_many_calls_a_shared_call_makes(model: Any, first: int, second: int) -> None:
    """Proven rows are compared once, as bits could differ; others also beside changed rows."""
    form, counted = form_of(model(), "batch"), list[Any]()
    row = np.ones((1, 3, 5) if form.is_proven else (1, 4), np.float32)
    run = form.executable

    def counting(given: Any) -> Any:
        counted.append(given)
        return run(given)

    form.executable = counting
    for calls in (first, second):
        counted.clear()
        form.run([form.read(row, None) for _ in range(2)])
        assert len(counted) == calls and not form.depends


def test_map_finds_dependences_that_equal_items_hide() -> None:
    model = compiled(MIXERS["largest"])
    with pytest.raises(ad.InputError, match="rows of 'batch' depend on each other"):
        model.map(equal_rows(-7.0), batch="batch")
    assert len(model.map(equal_rows(-7.0), batch="batch", check=False)) == 3
    proven = compiled(INDEPENDENT["softmax"])
    assert all(same(each, proven(equal_rows(1.0)[0])) for each in proven.map(equal_rows(1.0)))


def converging(is_masked: bool) -> ad.Model:
    """Powers of x, until all are small: it never ends where one of [batch, 4] is 1 or more.

    `is_masked`: a row stops by itself, so rows do not depend on each other.
    """

    def body(b: ad.Builder, t: Any, y: Any, x: Any) -> Any:
        largest = b.reduce_max(b.abs(y), axes=(1,), keepdims=True)
        further = b.mul(y, x)
        y = b.where(b.greater(largest, 0.001), further, y) if is_masked else further
        b.proceed(b.greater(b.reduce_max(b.abs(y), keepdims=False), 0.001))
        return y

    return compiled(
        lambda g, x: g.loop(lambda b, t, y: body(b, t, y, x), x, condition=g.constant(np.True_))
    )


@pytest.mark.parametrize("number", [0.5, 0.9, -0.95])
@pytest.mark.parametrize("is_masked", [False, True])
def test_loops_that_converge_for_given_rows_end(is_masked: bool, number: float) -> None:
    """Other rows beside them may be none for which the model ends."""
    model, rows = converging(is_masked), equal_rows(number)
    with Batcher({}) as batcher:
        batcher.add("model", model, batch="batch")
        futures = [batcher.submit({"x": row}) for row in rows * 3]
        assert all(same(each.result(60), model(rows[0])) for each in futures)
    form = shared(model, rows)
    assert not (is_masked and form.depends)
    if not is_masked:
        shared(model, [*rows, np.float32([[0.1, 0.2, 0.3, 0.4]])], form_of(model, "batch"))
    try:
        found = model.map(rows, batch="batch")
    except ad.InputError as error:
        assert not is_masked and "rows of 'batch' depend on each other" in str(error)
    else:
        assert all(same(each, model(rows[0])) for each in found)


def test_a_call_beside_changed_rows_that_fails_says_nothing() -> None:
    model, rows = compiled(MIXERS["largest"]), equal_rows(2.0)
    for error in (ad.TimeLimitError, ad.MemoryLimitError, ad.OutOfMemoryError, MemoryError):
        form, calls = form_of(model, "batch"), list[Any]()
        run = form.executable

        def failing(given: Any, run: Any = run, calls: Any = calls, error: Any = error) -> Any:
            calls.append(given)
            if len({row.tobytes() for row in given["x"]}) > 1:
                raise error("rows that nobody gave")
            return run(given)

        form.executable = failing
        found = form.run([form.read(row, None) for row in rows])
        assert all(same(each, model(rows[0])) for each in found)
        assert not form.depends and len(calls) > 3
