"""Promise: `map` of a ragged model gives each row's result alone, bit for bit, within the limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest

import anydim as ad
from anydim.base.errors import DimError, InputError, MemoryLimitError, OptionError

TABLE = numpy.random.default_rng(0).standard_normal((9, 4)).astype(numpy.float32)
WIDE = numpy.random.default_rng(1).standard_normal((4, 64)).astype(numpy.float32)


def graph(least: int = 0) -> ad.Builder:
    """rows = softmax over seq of table[ids] * scale + shift [batch, seq, 4], total = its tanh @ W,
    summed over seq [batch, 64]; scale is per row, shift is shared."""
    g = ad.Builder("lookup")
    batch, seq, wide = g.dim("batch", least, 40), g.dim("seq", 1, 64), g.dim("wide", 1, 8)
    ids = g.input("ids", ad.int64, (batch, seq))
    scale = g.input("scale", ad.float32, (batch,))
    shift = g.input("shift", ad.float32, (wide,))
    found = g.gather(g.constant(TABLE), ids, axis=0)
    scaled = g.mul(found, g.reshape(scale, shape=(batch, 1, 1)))
    moved = g.add(scaled, g.reduce_sum(shift))
    g.output("rows", g.softmax(moved, axis=1))
    g.output("total", g.reduce_sum(g.tanh(g.matmul(moved, g.constant(WIDE))), axes=(1,)))
    return g


@pytest.fixture(scope="module")
def model() -> ad.Model:
    return ad.compile(graph(), ragged={"seq": "batch"})


SHIFT = numpy.ones(3, numpy.float32)


def item(number: int, shift: numpy.ndarray = SHIFT) -> dict[str, numpy.ndarray]:
    chance = numpy.random.default_rng(number)
    ids = chance.integers(0, 9, chance.integers(1, 30))
    return {"ids": ids, "scale": numpy.float32(chance.random()), "shift": shift}  # type: ignore[dict-item]


def check(found: Any, model: ad.Model, items: list[dict[str, numpy.ndarray]]) -> None:
    found = list(found)
    assert len(found) == len(items)
    for one, given in zip(found, items):
        scale = numpy.asarray(given["scale"])[None]
        alone = model(ids=[given["ids"]], scale=scale, shift=given["shift"])
        assert list(one) == ["rows", "total"]
        for name, array in one.items():
            assert array.shape == alone[name][0].shape
            assert array.tobytes() == alone[name][0].tobytes()


class Measured:
    """An executable that notes the rows and the bytes of its calls."""

    def __init__(self, executable: Any) -> None:
        self.inner, self.taken, self.rows = executable, list[int](), list[int]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __call__(self, given: Mapping[str, numpy.ndarray]) -> dict[str, Any]:
        found: dict[str, Any] = self.inner(given)
        arrays = [*given.values(), *found.values()]
        self.taken.append(self.inner.arena_bytes + sum(array.nbytes for array in arrays))
        self.rows.append(len(given["scale"]))
        return found


@pytest.mark.parametrize("count", [1, 2, 8, 100])
def test_results_are_those_of_rows_alone(model: ad.Model, count: int) -> None:
    items = [item(number) for number in range(count)]
    check(model.map(items), model, items)
    check(model.map([tuple(each.values()) for each in items]), model, items)
    assert model.map([]) == []


def test_items_with_the_batch_axis_have_results_with_it(model: ad.Model) -> None:
    items = [item(number) for number in range(5)]
    lifted = [{**each, "ids": each["ids"][None], "scale": numpy.atleast_1d(each["scale"])}
              for each in items]  # fmt: skip
    found = model.map([*lifted, items[0]])
    assert found[1]["rows"].shape == (1, len(items[1]["ids"]), 4)
    assert found[1]["total"].shape == (1, 64) and found[5]["total"].shape == (64,)
    check([{name: each[0] for name, each in one.items()} for one in found[:5]], model, items)


def test_an_iterator_is_read_by_windows(model: ad.Model) -> None:
    items, read, told = [item(number) for number in range(25)], list[int](), list[Any]()

    def source() -> Iterator[dict[str, numpy.ndarray]]:
        for number, each in enumerate(items):
            read.append(number)
            yield each

    found = model.map(source(), window=10, progress=lambda *at: told.append(at))
    assert iter(found) is found and read == []
    first = next(found)
    assert len(read) == 10
    check([first, *found], model, items)
    assert [done for done, *_ in told] == [10, 20, 25] and "10 at batch=10" in told[0][2]


def test_no_call_is_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ad.compile(graph(), ragged={"seq": "batch"}, memory_limit="1 GiB")  # exact blocks
    items = [item(number) for number in range(60)]
    rows = []
    for limit in (12_000, 40_000, 200_000):
        measured = Measured(model.executable)
        model.map(items[:1])
        monkeypatch.setattr(model._mapper.form, "executable", measured)
        check(model.map(items, limit), model, items)
        monkeypatch.undo()
        assert max(measured.taken) <= limit and sum(measured.rows) == 60
        rows.append(max(measured.rows))
    assert rows == sorted(rows) and rows[0] < rows[-1] <= 40  # bound of batch


def test_groups_grow_until_a_call_costs_little(
    model: ad.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Measured(model.executable)
    model.map([item(0)])
    monkeypatch.setattr(model._mapper.form, "executable", measured)
    model.map([item(number) for number in range(30)])
    assert measured.rows == [30]
    measured.rows.clear()
    model.map([item(number) for number in range(90)])
    assert sum(measured.rows) == 90 and len(measured.rows) <= 4


def test_shared_inputs_are_equal_in_a_group(
    model: ad.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, longer = SHIFT + 1, numpy.ones(5, numpy.float32)
    shifts = [SHIFT, SHIFT.copy(), other, other, longer, SHIFT]
    items = [item(number, shift) for number, shift in enumerate(shifts)]
    measured = Measured(model.executable)
    model.map(items[:1])
    monkeypatch.setattr(model._mapper.form, "executable", measured)
    check(model.map(items), model, items)
    assert measured.rows == [2, 2, 1, 1]


@pytest.mark.parametrize(
    "wrong, kind, problem",
    [
        ({"ids": numpy.zeros(65, int)}, DimError, "'seq' is 65"),
        ({"ids": numpy.zeros(0, int)}, DimError, "'seq' is 0"),
        ({"ids": numpy.zeros(3, numpy.float32)}, InputError, "expected dtype int64, got float32"),
        ({"ids": numpy.zeros((2, 3), int), "scale": numpy.ones(2, numpy.float32)}, InputError,
         "'ids' has 2 rows"),
        ({"ids": numpy.zeros((1, 3), int)}, InputError, "others do not"),
        ({"ids": numpy.array([1, 99])}, InputError, "99"),
        ({"id": numpy.zeros(3, int)}, InputError, "no input 'id'"),
    ],
)  # fmt: skip
def test_errors_name_the_item(model: ad.Model, wrong: Any, kind: type, problem: str) -> None:
    items = [item(number) for number in range(6)]
    items[3] = {**items[3], **wrong}
    with pytest.raises(kind, match=f"^item 3: .*{problem}"):
        model.map(items)
    with pytest.raises(kind, match=f"^item 3: .*{problem}"):
        list(model.map(iter(items), window=2))
    items[3] = (items[0]["ids"],)  # type: ignore[call-overload]
    with pytest.raises(InputError, match=r"^item 3: lookup has 3 inputs, got 1"):
        model.map(items)


def test_an_item_above_the_limit_is_named_before_anything_runs(model: ad.Model) -> None:
    items, told = [item(number) for number in range(6)], list[Any]()
    items[4] = {**items[4], "ids": numpy.zeros(64, int)}
    with pytest.raises(MemoryLimitError, match=r"item 4: lookup at batch=1, .* takes \d+ bytes"):
        model.map(items, 12_000, progress=lambda *at: told.append(at))
    assert not told


@pytest.mark.parametrize(
    "options, problem",
    [
        ({"pad": {"ids": 0}}, "map got `pad`"),
        ({"batch": "batch"}, "map got `batch`"),
        ({"check": False}, "map got `check`"),
        ({"outputs": ["totals"]}, "no result 'totals'"),
        ({"window": 0}, "window is 0"),
        ({"memory": "1 GiBi"}, "expected a number of bytes"),
    ],
)
def test_options_are_checked(model: ad.Model, options: Any, problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        model.map(iter([item(0)]), **options)
    with pytest.raises(InputError, match="got dict"):
        model.map(item(0))  # type: ignore[arg-type]


def test_masks_are_left_out_or_all_ones() -> None:
    g = ad.Builder("pooled")
    batch, seq = g.dim("batch", 0, 99), g.dim("seq", 0, 99)
    x, mask = g.input("x", ad.float32, (batch, seq)), g.input("mask", ad.float32, (batch, seq))
    g.output("total", g.reduce_sum(g.mul(x, mask), axes=(1,)))
    model = ad.compile(g, ragged="auto")
    rows = [numpy.arange(n, dtype=numpy.float32) for n in (3, 0, 5)]
    found = model.map([{"x": row, "mask": numpy.ones_like(row)} for row in rows])
    assert [float(each["total"]) for each in found] == [3, 0, 10]
    assert [float(each["total"]) for each in model.map(rows)] == [3, 0, 10]
    with pytest.raises(InputError, match=r"^item 1: .*'mask' is not all ones"):
        model.map([{"x": row, "mask": (row < 2).astype(row.dtype)} for row in (rows[1], rows[0])])
    with pytest.raises(InputError, match=r"^item 1: .*some items have input 'mask'"):
        model.map([{"x": rows[0], "mask": numpy.ones_like(rows[0])}, {"x": rows[2]}])
    with pytest.raises(InputError, match=r"^item 0: .*'seq' is 2 in input 'mask', 3 in input 'x'"):
        model.map([{"x": rows[0], "mask": numpy.ones(2, numpy.float32)}])


def test_a_loaded_model_maps(model: ad.Model, tmp_path: Path) -> None:
    model.save(tmp_path / "lookup.anydim")
    loaded = ad.load(tmp_path / "lookup.anydim")
    items = [item(number) for number in range(12)]
    check(loaded.map(iter(items), 40_000), loaded, items)


def test_groups_have_the_least_rows_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    ragged = {"seq": "batch"}
    plain, model = ad.compile(graph(), ragged=ragged), ad.compile(graph(3), ragged=ragged)
    model.map([item(0), item(1), item(2)])
    for count in (3, 4, 5, 17, 100):
        for limit in ("64 KiB", "1 GiB"):
            items, measured = [item(number) for number in range(count)], Measured(model.executable)
            monkeypatch.setattr(model._mapper.form, "executable", measured)
            check(model.map(items, limit), plain, items)
            monkeypatch.undo()
            assert min(measured.rows) >= 3 and max(measured.rows) <= 40
    with pytest.raises(DimError, match=r"item 0: .*'batch' is 2"):
        model.map([item(0), item(1)])
    with pytest.raises(MemoryLimitError, match="item 0: "):
        model.map([item(0), item(1), item(2)], 100)


def test_plans_and_limits_know_that_rows_have_a_longest_size(model: ad.Model) -> None:
    """A total is at most the number of rows times the longest, and at least the longest."""
    sizes = {"seq.longest": 30, "wide": 2}
    assert model.largest("seq.total", memory="1 GiB", batch=40, **sizes) == 40 * 30
    assert model.largest("batch", memory="1 GiB", **sizes, **{"seq.total": 40}) == 11  # 30 + 10 * 1
    assert model.plan(batch=2, **sizes, **{"seq.total": 60}).sizes["seq.total"] == 60
    with pytest.raises(DimError, match=r"'seq.total' is 61, above batch\*seq.longest = 60"):
        model.plan(batch=2, **sizes, **{"seq.total": 61})
    assert model.memory.at(batch=2, **sizes, **{"seq.total": 60}) > 0
    with pytest.raises(DimError, match=r"'seq.total' is 61, above batch\*seq.longest = 60"):
        model.memory.at(batch=2, **sizes, **{"seq.total": 61})
    for call in (model.plan, model.memory.at):
        with pytest.raises(DimError, match=r"'seq.total' is 29, below .* = 31"):
            call(batch=2, **sizes, **{"seq.total": 29})
        with pytest.raises(DimError, match=r"'seq.total' is 1, above"):
            call(batch=0, **sizes, **{"seq.total": 1})


def test_plans_and_limits_know_that_rows_have_a_least_size() -> None:
    g = ad.Builder("rows")
    x = g.input("x", ad.float32, (g.dim("batch", 0, 99), g.dim("seq", 3, 50), 8))
    g.output("y", g.softmax(g.exp(x), axis=1))
    model = ad.compile(g, ragged="auto")
    sizes = {"seq.longest": 10}
    for call in (model.plan, model.memory.at):
        call(batch=5, **sizes, **{"seq.total": 10 + 4 * 3})
        call(batch=0, **{"seq.longest": 3, "seq.total": 0})
        with pytest.raises(DimError, match=r"'seq.total' is 21, below .* = 22\n.*at least 3 each"):
            call(batch=5, **sizes, **{"seq.total": 21})
    assert model.largest("batch", memory="1 GiB", **sizes, **{"seq.total": 40}) == 11
