"""Promise: `map` gives what single calls give, in their order, and no call is above the limit."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.base.errors import DimError, InputError, MemoryLimitError, OptionError
from anydim.runtime.program.batches import bar

PAD = {"ids": 0, "mask": 0}
TABLE = numpy.random.default_rng(0).standard_normal((9, 4)).astype(numpy.float32)


@pytest.fixture(scope="module")
def model() -> ad.Model:
    """rows = table[ids] * mask [batch, seq, 4]; total = sums of tanh(rows @ A) @ B [batch, 4]."""
    g = ad.Builder("lookup")
    batch, seq = g.dim("batch", 0, 40), g.dim("seq", 1, 64)
    ids = g.input("ids", ad.int64, (batch, seq))
    mask = g.input("mask", ad.float32, (batch, seq))
    found = g.gather(g.constant(TABLE), ids, axis=0)
    rows = g.mul(found, g.reshape(mask, shape=(batch, seq, 1)))
    g.output("rows", rows)
    wide = g.tanh(g.matmul(rows, g.constant(numpy.tile(TABLE[:4], 4))))
    g.output(
        "total", g.reduce_sum(g.matmul(wide, g.constant(numpy.tile(TABLE, (2, 1))[:16])), axes=(1,))
    )
    return ad.compile(g)


def item(number: int, rows: int | None = 1) -> dict[str, numpy.ndarray]:
    """Of a size that its number decides; without rows, no axis of the batch."""
    chance = numpy.random.default_rng(number)
    shape = (chance.integers(1, 30),) if rows is None else (rows, chance.integers(1, 30))
    return {
        "ids": chance.integers(0, 9, shape),
        "mask": chance.integers(0, 2, shape).astype(numpy.float32),
    }


def check(found: Any, model: ad.Model, items: list[dict[str, numpy.ndarray]]) -> None:
    found = list(found)
    assert len(found) == len(items)
    for one, given in zip(found, items):
        for name, array in model(**given).items():
            numpy.testing.assert_allclose(one[name], array, rtol=1e-5, atol=1e-6)
            assert one[name].shape == array.shape and one[name].flags.c_contiguous


@pytest.mark.parametrize("pad", [None, PAD])
def test_results_are_those_of_single_calls(model: ad.Model, pad: Any) -> None:
    items = [item(number, 1 + number % 3) for number in range(50)]
    items.insert(7, item(1, 0))  # an item without rows
    check(model.map(items, pad=pad), model, items)
    assert model.map([]) == []


def test_items_without_an_axis_of_the_batch(model: ad.Model) -> None:
    items = [item(number, None) for number in range(20)]
    found = model.map([tuple(each.values()) for each in items], pad=PAD)
    check(
        [{name: array[None] for name, array in each.items()} for each in found], model,
        [{name: array[None] for name, array in each.items()} for each in items],
    )  # fmt: skip
    assert found[0]["total"].shape == (4,)


def test_an_iterator_is_read_by_windows(model: ad.Model) -> None:
    items = [item(number) for number in range(25)]
    read = []

    def source() -> Iterator[dict[str, numpy.ndarray]]:
        for number, each in enumerate(items):
            read.append(number)
            yield each

    found = model.map(source(), pad=PAD, window=10)
    assert iter(found) is found and read == []
    first = next(found)
    assert len(read) == 10
    check([first, *found], model, items)


class Measured:
    """An executable that notes what its calls take: arena, inputs, outputs."""

    def __init__(self, executable: Any) -> None:
        self.inner, self.taken, self.rows = executable, [], []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self, given: Mapping[str, numpy.ndarray]) -> dict[str, Any]:
        found = self.inner(given)
        arrays = [*given.values(), *found.values()]
        self.taken.append(self.inner.arena_bytes + sum(array.nbytes for array in arrays))
        self.rows.append(len(arrays[0]))
        return found


def test_no_call_is_above_the_limit(model: ad.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    items = [item(number) for number in range(60)]
    model(**{name: numpy.zeros((40, 64), array.dtype) for name, array in items[0].items()})
    assert model.executable.arena_bytes > 60_000  # what it keeps would be too much
    for limit in (8_000, 20_000, 60_000):
        measured = Measured(model.executable)
        monkeypatch.setattr(model._mapper, "executable", measured)
        check(model.map(items, limit, pad=PAD), model, items)
        monkeypatch.undo()
        assert max(measured.taken) <= limit
        assert max(measured.rows) > 1 and sum(measured.rows) >= 60


def test_more_memory_makes_larger_groups_and_outputs_can_be_chosen(model: ad.Model) -> None:
    items, told = [item(number) for number in range(60)], []
    found = model.map(
        items, "1 MiB", pad=PAD, outputs=["total"], progress=lambda *at: told.append(at)
    )
    assert all(list(each) == ["total"] for each in found)
    assert [done for done, *_ in told] == sorted(done for done, *_ in told)
    assert told[-1][:2] == (60, 60) and "batch=" in told[0][2]
    few = len(told)
    told.clear()
    model.map(items, 8_000, pad=PAD, progress=lambda *at: told.append(at))
    assert len(told) > few


def test_what_does_not_fit_is_named(model: ad.Model) -> None:
    items = [item(number) for number in range(5)]
    items.insert(3, {"ids": numpy.zeros((1, 64), int), "mask": numpy.ones((1, 64), numpy.float32)})
    with pytest.raises(
        MemoryLimitError, match=r"item 3: lookup at batch=1, seq=64 takes \d+ bytes"
    ):
        model.map(items, 4_000, pad=PAD)
    items[3] = {name: numpy.repeat(array, 2, 1) for name, array in items[3].items()}
    with pytest.raises(DimError, match="item 3: dim 'seq' is 128, outside its bounds"):
        model.map(items, pad=PAD)
    items[3] = item(3)
    items[3]["ids"][0, 0] = 99
    with pytest.raises(InputError, match=r"item 3: .*99"):
        model.map(items, pad=PAD)
    for wrong, problem in (
        ({"ids": items[0]["ids"]}, "item 3: lookup needs input 'mask'"),
        ((items[0]["ids"],), "item 3: lookup has 2 inputs, got 1"),
        ({**items[0], "mask": items[0]["ids"]}, "item 3: .*expected dtype float32"),
        ({"ids": numpy.zeros((1, 4), int), "mask": numpy.ones((1, 5), numpy.float32)}, "item 3: "),
    ):
        items[3] = wrong
        with pytest.raises(InputError, match=problem):
            model.map(items, pad=PAD)
    assert len(model.map(items[:3], pad=PAD)) == 3


def test_options_are_checked_before_anything_runs(model: ad.Model) -> None:
    for options, problem in (
        ({"batch": "bach"}, "no dim 'bach'"),
        ({"batch": "seq"}, "output total: .* needs exactly one axis 'seq'"),
        ({"pad": {"ids": 0}}, "input 'mask' has the padded dim 'seq'"),
        ({"pad": {"id": 0}}, "no input 'id'"),
        ({"pad": {"ids": 0.5, "mask": 0}}, "padded with 0.5, not of type int64"),
        ({"outputs": ["totals"]}, "no result 'totals'"),
        ({"memory": "1 GiBi"}, "expected a number of bytes"),
        ({"window": 0}, "window is 0"),
    ):  # fmt: skip
        with pytest.raises(OptionError, match=problem):
            model.map(iter([item(0)]), **options)
    with pytest.raises(InputError, match="got dict"):
        model.map(item(0))  # type: ignore[arg-type]


def test_rows_that_depend_on_each_other_are_found() -> None:
    g = ad.Builder("shares")
    x = g.input("x", ad.float32, (g.dim("n", 0, 99), g.dim("m", 0, 99)))
    g.output("y", g.softmax(x, axis=0))
    model = ad.compile(g)
    items = [numpy.random.default_rng(n).standard_normal((1, 3), numpy.float32) for n in range(4)]
    with pytest.raises(InputError, match="result 'y' differs between a group and a single item"):
        model.map(items, batch="n")
    assert len(model.map(items, batch="n", check=False)) == 4


def test_progress_without_a_terminal_or_rich(
    model: ad.Model, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bar, "LINE_EVERY", 0.0)
    monkeypatch.setitem(sys.modules, "rich.progress", None)  # as with anydim-runtime
    model.map([item(number) for number in range(9)], pad=PAD, progress=True)
    assert "mapping lookup: 9 of 9" in capsys.readouterr().err
    model.map([item(number) for number in range(9)], pad=PAD)
    assert capsys.readouterr().err == ""


def test_the_limit_of_the_model_holds_too(model: ad.Model) -> None:
    items, taken = [item(number) for number in range(30)], []
    before = model.executable.most_bytes
    try:
        model.executable.most_bytes = model.plan(batch=3, seq=29).bytes
        check(model.map(items, pad=PAD, progress=lambda *at: taken.append(at)), model, items)
        assert len(taken) > 5
        model.executable.most_bytes = 1
        with pytest.raises(MemoryLimitError, match="limit of the model"):
            model.map(items, pad=PAD)
    finally:
        model.executable.most_bytes = before


def test_a_loaded_model_maps(model: ad.Model, tmp_path: Path) -> None:
    model.save(tmp_path / "lookup.anydim")
    loaded = ad.load(tmp_path / "lookup.anydim")
    items = [item(number) for number in range(12)]
    check(loaded.map(iter(items), 20_000, pad=PAD), model, items)


def test_inputs_without_the_batch_are_equal_in_a_group() -> None:
    g = ad.Builder("scaled")
    batch = g.dim("batch")
    x, by = g.input("x", ad.float32, (3, batch)), g.input("by", ad.float32, ())
    g.output("y", g.mul(x, by))
    model, told = ad.compile(g), []
    items = [
        {"x": numpy.full((3, 1), n, numpy.float32), "by": numpy.float32(n % 2)} for n in range(6)
    ]
    found = model.map(items, batch="batch", progress=lambda *at: told.append(at))
    assert [float(each["y"][0, 0]) for each in found] == [0, 1, 0, 3, 0, 5] and len(told) == 2
    assert len(model.map(items)) == 6  # no dim is axis 0 of all: each item is a call
    with pytest.raises(OptionError, match="padding needs a batch dim"):
        model.map(items, pad={"x": 0})
