"""Continuous batching: rows with caches of their own lengths have what each has alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest

import anydim as ad
from anydim.api.cached_rows import CachedRows
from bench.networks.sequences import decoder

LAYERS, HEADS, WIDTH, WORDS = 2, 2, 8, 60
NAMES = [f"{kind}_{layer}" for layer in range(LAYERS) for kind in ("keys", "values")]
BYTES = len(NAMES) * HEADS * WIDTH * 4  # of a cached element


@pytest.fixture(scope="module")
def network() -> bytes:
    return decoder(LAYERS, HEADS, WIDTH, WORDS, places=600).SerializeToString()


def rows_of(source: Any, **options: Any) -> CachedRows:
    options = {"ragged": {"s": "b"}, "threads": 1, **options}
    made = ad.cached(source, **options)
    assert isinstance(made, CachedRows)
    return made


def words(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((count, seed)).integers(0, WORDS, count)


@pytest.mark.parametrize("threads", (1, 2))
def test_200_joins_and_leaves_beside_onnxruntime(network: bytes, threads: int) -> None:
    model = rows_of(network, threads=threads, room=4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    peer = onnxruntime.InferenceSession(network, options, ["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    caches: dict[int, dict[str, np.ndarray]] = {}
    joined = left = 0
    while joined + left < 200:
        if random.random() < 0.6 or not caches:
            caches[model.join()] = dict.fromkeys(NAMES, np.zeros((1, HEADS, 0, WIDTH), np.float32))
            joined += 1
        if len(caches) > 16 or (len(caches) > 1 and random.random() < 0.5):
            row = int(random.choice(list(caches)))
            model.leave(row)
            del caches[row]
            left += 1
        given = {row: words(int(random.choice((0, 1, 1, 1, 2, 9, 40))), row)
                 for row in caches if random.random() < 0.8}  # fmt: skip
        found = model.step(given)["logits"]
        assert len(found) == len(given)
        for (row, ids), logits in zip(given.items(), found):
            expected, *rest = peer.run(None, {"ids": ids[None], **caches[row]})
            caches[row] = dict(zip(NAMES, rest))
            np.testing.assert_allclose(logits, expected[0], rtol=0, atol=3e-5)
            assert model.length(row) == rest[0].shape[2]
            for name, array in model.held(row).items():
                np.testing.assert_allclose(array, caches[row][name][0], rtol=0, atol=3e-5)
    assert model.rows == tuple(caches)


@pytest.mark.parametrize("threads", (1, 2))
def test_rows_have_the_bits_of_rows_alone(network: bytes, threads: int) -> None:
    """Whatever else is in the batch, and near those of `ad.cached` without ragged."""
    model, alone = (rows_of(network, threads=threads, room=room) for room in (4, 64))
    plain = ad.cached(network, threads=threads)
    rows, single = [model.join() for _ in range(5)], alone.join()
    chunks = [words(count, 7) for count in (40, 1, 1, 0, 3, 1)]
    expected = [alone.step({single: chunk})["logits"][0] for chunk in chunks]
    near = [plain(ids=chunk[None])["logits"][0] for chunk in chunks]
    for number, chunk in enumerate(chunks):
        others = {row: words(1 + 3 * number, row) for row in rows[: number % 5]}
        found = model.step({**others, rows[4]: chunk})["logits"]
        assert found[len(others)].tobytes() == expected[number].tobytes()
        np.testing.assert_allclose(found[len(others)], near[number], rtol=0, atol=1e-5)


def test_a_step_writes_new_elements_alone(network: bytes) -> None:
    model = rows_of(network, room=8)
    assert model.in_place
    one, two = model.join(), model.join()
    model.step({one: words(5), two: words(6)})
    slabs, arrays = model._slabs, dict(model._slabs.arrays)
    before = {name: array.copy() for name, array in arrays.items()}
    model.step({two: words(1), one: words(2)})
    assert all(slabs.arrays[name] is array for name, array in arrays.items())
    for kind in slabs.kinds:
        bits = (each[kind.name].view(np.uint32) for each in (before, arrays))
        changed = np.subtract(*bits).nonzero()[0]
        written = np.zeros(len(arrays[kind.name]))
        for row, first, last in ((one, 5, 7), (two, 6, 7)):
            kind.slab(written, slabs.rows[row], last)[:, first:] = 1
        assert set(changed) <= set(written.nonzero()[0])
        assert len(changed) > 0.9 * written.sum()
    assert model.model.executable.leaked == 0


def test_rows_without_new_elements_are_not_run(network: bytes) -> None:
    model = rows_of(network)
    one, two, three = (model.join() for _ in range(3))
    model.step({one: words(3), two: words(4)})
    told: list[Any] = []
    call = model.model.executable.__call__
    model.model.executable = Spy(model.model.executable, told)  # type: ignore[assignment]
    found = model.step({one: [], two: words(1), three: []})["logits"]
    assert [len(each) for each in found] == [0, 1, 0]
    assert len(told[0][model._packing.table.rows]) == 1
    assert [len(each) for each in model.step({one: [], two: []})["logits"]] == [0, 0]
    assert len(model.step({})["logits"]) == 0
    assert [model.length(row) for row in (one, two, three)] == [3, 5, 0] and call


class Spy:
    """Notes the inputs of calls."""

    def __init__(self, executable: Any, told: list[Any]) -> None:
        self.executable, self.told = executable, told
        self.signature = executable.signature

    def __call__(self, feeds: Any, into: Any) -> Any:
        self.told.append(feeds)
        return self.executable(feeds, into)


def test_forgetting_and_holding(network: bytes) -> None:
    model = rows_of(network)
    one, two = model.join(), model.join()
    ids = words(9)
    first = model.step({one: ids, two: words(3)})["logits"][0]
    model.forget(one, 4)
    again = model.step({one: ids[4:]})["logits"][0]
    np.testing.assert_allclose(again, first[4:], rtol=0, atol=1e-5)
    three = model.join()
    model.hold(three, model.held(one))
    assert model.length(three) == 9
    both = model.step({one: words(1), three: words(1)})["logits"]
    assert both[0].tobytes() == both[1].tobytes()
    model.forget(three)
    assert model.length(three) == 0


def test_memory_is_bounded_by_formulas(network: bytes) -> None:
    model = rows_of(network, room=16)
    lengths = [0, 1, 16, 17, 100, 257]
    assert 0 == model.cache_bytes([0]) < model.cache_bytes([1])
    assert model.cache_bytes(lengths) == sum(model.cache_bytes([length]) for length in lengths)
    assert model.cache_bytes([1 << 16]) == BYTES << 16
    rows = [model.join() for _ in lengths]
    most = 0
    for number in range(12):
        new = [0 if number else length for length in lengths[:-1]] + [1 if number else 257]
        before = [model.length(row) for row in rows]
        most = max(most, model.plan(before, new).bytes)
        model.step({row: words(count) for row, count in zip(rows, new)})
        assert model.model.executable.highest_arena_bytes <= most
    held = model.cache_bytes(map(model.length, rows))
    assert held == model.held_bytes() == model.held_bytes([*rows, 99])
    for wrong in ([True], [[0]], ["0"], [0.0], [words(1)], 0, "0"):
        with pytest.raises(ad.UserError, match=r"rows (is|are)"):
            model.held_bytes(wrong)
    for no_row in (True, 0.0, "0", None, [0], words(3), -1, 99):
        for asked in (model.length, model.leave, model.held, model.forget):
            with pytest.raises(ad.InputError, match="is no row"):
                asked(no_row)
        with pytest.raises(ad.InputError, match="is no row"):
            model.copy(no_row, 0)
    model.forget(rows[-1], 20, spare=30)
    assert model.held_bytes(rows[-1:]) == model.cache_bytes([50])
    model.forget(rows[-1], 20)
    assert model.held_bytes(rows[-1:]) == model.cache_bytes([20])
    for row in rows:
        model.leave(row)
    assert model.held_bytes() == 0


def test_a_limit_of_caches(network: bytes) -> None:
    limit = 3 * rows_of(network).cache_bytes([64])
    model = rows_of(network, cache_limit=limit)
    rows = [model.join() for _ in range(4)]
    model.step({row: words(64) for row in rows[:3]})
    with pytest.raises(ad.MemoryLimitError, match="caches of 4 rows would take"):
        model.step({rows[3]: words(1), rows[0]: words(1)})
    assert [model.length(row) for row in rows] == [64, 64, 64, 0]
    assert model.held_bytes() == limit
    model.leave(rows[1])
    model.step({rows[3]: words(1)})
    with pytest.raises(ad.MemoryLimitError):
        model.step({rows[3]: words(64)})
    with pytest.raises(ad.OptionError, match="cache_limit is 'much'"):
        rows_of(network, cache_limit="much")
    with pytest.raises(ad.OptionError, match="cache_limit without ragged"):
        ad.cached(network, cache_limit=limit, threads=1)


def test_a_limit_of_caches_can_change(network: bytes) -> None:
    each = rows_of(network).cache_bytes([5])
    model = rows_of(network, cache_limit=16 * each)
    rows = [model.join() for _ in range(4)]
    model.step({row: words(5, row) for row in rows})
    held = {row: model.held(row) for row in rows[:2]}
    held = {row: {name: array.copy() for name, array in each.items()} for row, each in held.items()}
    with pytest.raises(ad.MemoryLimitError, match="caches of 4 rows would take"):
        model.limit_caches(3 * each)
    for row in rows[2:]:
        model.leave(row)
    model.limit_caches(2 * each)
    assert model.held_bytes() == 2 * each
    for row, caches in held.items():
        assert all(np.array_equal(model.held(row)[name], array) for name, array in caches.items())
    model.limit_caches(1 << 40)  # not above what `cache_limit` allows
    more = [model.join() for _ in range(15)]
    with pytest.raises(ad.MemoryLimitError):
        model.step({row: words(1) for row in more})


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("lengths, new", (
    ([0], [1]), ([0], [128]), ([70], [9]), ([70, 3, 0], [1, 1, 40]), ([200] * 9, [1] * 9),
))  # fmt: skip
def test_the_bytes_of_a_step_are_a_formula(
    network: bytes, lengths: list[int], new: list[int]
) -> None:
    model = rows_of(network)
    taken = model.step_bytes(lengths, new)
    assert model.plan(lengths, new).bytes < taken
    rows = [model.join() for _ in lengths]
    for row, length in zip(rows, lengths):
        if length:
            model.step({row: words(length)})
    model.model.trim()
    found = model.step(dict(zip(rows, map(words, new))))["logits"]
    assert model.model.executable.arena_bytes + found.values.nbytes <= taken
    longer = model.step_bytes([length + 1 for length in lengths], new)
    assert taken <= longer <= model.step_bytes([*lengths, 5], [*new, 1]) + longer - taken


def test_bounds_of_the_past_hold_for_each_row(network: bytes) -> None:
    model = rows_of(network, dims={"past": (0, 5)})
    one, two = model.join(), model.join()
    model.step({one: words(6), two: words(2)})
    with pytest.raises(ad.DimError, match=f"the cache of row {one} holds 6 elements.*at most 5"):
        model.step({two: words(1), one: words(1)})
    assert model.length(two) == 2
    model.step({two: words(1)})


def test_mistakes(network: bytes) -> None:
    model = rows_of(network)
    with pytest.raises(ad.InputError, match=r"0 is no row"):
        model.step({0: words(1)})
    one, two = model.join(), model.join()
    model.step({one: words(2)})
    model.leave(two)
    for call in (model.leave, model.length, model.held, model.forget):
        with pytest.raises(ad.InputError, match="row 1 has left"):
            call(two)
    mistakes: list[tuple[Any, str]] = [
        ({"first": words(1)}, "'first' is no row"),
        ([words(1)], r"rows is .*"),
        ({one: words(1)[None]}, "row 0: input 'ids' has 2 axes, expected 1, without the axis"),
        ({one: {"id": words(1)}}, "row 0: 'id' is no input of rows"),
        ({one: {"keys_0": words(1)}}, "row 0: the model owns the cache 'keys_0'"),
        ({one: {}}, "row 0: input 'ids' is missing"),
        ({one: [[1, 2], [3]]}, "row 0: input 'ids': list is not an array"),
        ({one: words(1).astype(np.float32)}, "ids"),
        ({one: [WORDS]}, "ids|Gather"),
    ]
    for given, text in mistakes:
        with pytest.raises(ad.InputError, match=text):
            model.step(given)
        assert model.length(one) == 2
    with pytest.raises(ad.InputError, match="'scale' is no input that rows share"):
        model.step({one: words(1)}, scale=2)
    with pytest.raises(ad.OptionError, match="row 0 of decoder holds 2 elements"):
        model.forget(one, 3)
    held = {name: array.copy() for name, array in model.held(one).items()}
    for caches, text in (
        ({}, "its caches are 'keys_0'"),
        ({**held, "keys_0": held["keys_0"][:, :1]}, "caches of '1', '2' elements"),
        ({**held, "keys_0": [[1, 2], [3]]}, "row 0: cache 'keys_0': list is not an array"),
        ({**held, "keys_0": held["keys_0"][0]}, "'keys_0' is float32"),
        ({**held, "keys_0": held["keys_0"].astype(np.float64)}, "'keys_0' is float32"),
    ):
        with pytest.raises(ad.InputError, match=text):
            model.hold(one, caches)
    with pytest.raises(ad.OptionError, match="'batch' is not a dim"):
        rows_of(network, ragged={"s": "batch"})


# ---- graphs that are unlike ----------------------------------------------------------------------


def summed(more: Any = None) -> ad.Builder:
    """A graph with two inputs, and a result of one number per row."""
    g = ad.Builder("g")
    b, n, m = g.dim("b"), g.dim("n"), g.dim("m")
    past, new = g.input("past", ad.float32, (b, n, 8)), g.input("new", ad.float32, (b, m, 8))
    scale = g.input("scale", ad.float32, (b,))
    joined = g.concat(past, new, axis=1)
    g.output("present", joined)
    g.output("total", g.reduce_sum(joined, axes=(1, 2)) * scale)
    if more:
        g.output("more", more(g, past, joined))
    return g


def numbers(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 8), np.float32)


def steps(model: CachedRows, more: Any = None) -> None:
    """Compare steps of rows with numpy."""
    held: dict[int, np.ndarray] = {}
    for number, counts in enumerate(((3, 0), (0, 1, 60), (2, 2, 2), (0, 0, 0))):
        while len(held) < len(counts):
            held[model.join()] = np.zeros((0, 8), np.float32)
        given: dict[int, Mapping[str, Any]] = {
            row: {"new": numbers(count), "scale": np.float32(row + 1)}
            for row, count in zip(held, counts)
        }
        found = model.step(given)
        for place, row in enumerate(given):
            if more is not None:
                np.testing.assert_array_equal(found["more"][place], more(held[row]))
            held[row] = np.concatenate([held[row], given[row]["new"]])
            np.testing.assert_array_equal(model.held(row)["past"], held[row])
            wanted = held[row].sum() * (row + 1)
            np.testing.assert_allclose(found["total"][place], wanted, rtol=0, atol=1e-3)
        assert found["total"].shape == (len(counts),), number


def test_rows_with_several_inputs_and_results() -> None:
    model = ad.cached(summed(), ragged="auto", threads=1, room=2)
    assert isinstance(model, CachedRows) and model.in_place
    steps(model)
    row = model.rows[0]
    for given, text in (
        (numbers(1), "row 0 has 'new', 'scale' as inputs"),
        ({"new": numbers(1), "scale": np.zeros(2, np.float32)}, "'scale' has 1 axes, expected 0"),
        ({"new": numbers(1)[:, :3], "scale": np.float32(1)}, "row 0: .*axis 1 has size 3"),
    ):
        with pytest.raises(ad.InputError, match=text):
            model.step({row: given})


def test_what_else_reads_a_cache_makes_it_a_copy() -> None:
    with pytest.warns(UserWarning, match="copied in every call"):
        model = ad.cached(
            summed(lambda g, past, joined: past * 2), ragged="auto", threads=1, room=2
        )
    assert isinstance(model, CachedRows)
    steps(model, lambda held: held * 2)


@pytest.mark.parametrize("rules", ({"*": "a"}, {"softmax": "a"}), ids=str)
def test_rows_on_devices_have_copied_caches(network: bytes, rules: dict[str, str]) -> None:
    plain = rows_of(network)
    with pytest.warns(UserWarning, match="or it uses devices"):
        model = rows_of(network, devices={"a": "cpu:1"}, placement=rules)
    pairs = [(plain.join(), model.join()) for _ in range(3)]
    for counts in ((5, 0, 1), (1, 1, 1), (0, 30, 1)):
        chunks = [words(count, 3) for count in counts]
        one, other = (
            each.step({pair[side]: chunk for pair, chunk in zip(pairs, chunks)})["logits"]
            for side, each in enumerate((plain, model))
        )
        np.testing.assert_allclose(one.values, other.values, rtol=0, atol=1e-5)


def test_rows_that_depend_on_each_other() -> None:
    graph = summed(lambda g, past, joined: g.reduce_sum(past, axes=(0,)))
    with pytest.raises(ad.ModelError, match=r"rows of 'b' are not independent|needs one axis 'b'"):
        ad.cached(graph, ragged="auto", threads=1)


@pytest.mark.parametrize("bounds", [(0, None), (8, 8)])
def test_sizes_of_caches_that_differ_between_calls(bounds: tuple[int, int | None]) -> None:
    g = ad.Builder("g")
    b, n, m, wide = g.dim("b"), g.dim("n"), g.dim("m"), g.dim("wide", *bounds)
    past, new = g.input("past", ad.float32, (b, n, wide)), g.input("new", ad.float32, (b, m, wide))
    g.output("present", g.concat(past, new, axis=1))
    g.output("sums", g.reduce_sum(new, axes=(2,)))
    if bounds[1] is None:
        with pytest.raises(ad.GraphError, match="size wide of cache 'past' differs between calls"):
            ad.cached(g, ragged={"m": "b"}, threads=1)
        return
    model = ad.cached(g, ragged={"m": "b"}, threads=1)
    assert isinstance(model, CachedRows)
    row = model.join()
    model.step({row: numbers(4)})
    np.testing.assert_array_equal(model.held(row)["past"], numbers(4))


def test_a_copy_has_the_first_elements_of_a_row(network: bytes) -> None:
    model = rows_of(network, threads=1)
    first = model.join()
    model.step({first: words(40, 7)})
    for length in (0, 1, 17, 40):
        other = model.copy(first, length)
        assert model.length(other) == length and model.length(first) == 40
        for name, array in model.held(other).items():
            axis = array.ndim - 2
            assert (array == np.take(model.held(first)[name], range(length), axis)).all()
        model.leave(other)
    with pytest.raises(ad.OptionError, match="holds 40"):
        model.copy(first, 41)
    with pytest.raises(ad.InputError):
        model.copy(99, 1)
    assert model.rows == (first,)
