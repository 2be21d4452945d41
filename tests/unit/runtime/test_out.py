"""Promise: a model writes its results where the caller wants them, and reads what was there."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest

import anydim as ad


def two_results() -> ad.Builder:
    graph = ad.Builder("two")
    x = graph.input("x", ad.float32, (graph.dim("n", 0, 1000), 4))
    cache = graph.input("cache", ad.float32, (graph.dim("n", 0, 1000), 4))
    graph.output("turned", x[::-1])
    graph.output("present", graph.add(cache[::-1], x))
    return graph


@pytest.fixture(scope="module", params=["compiled", "loaded"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    made = ad.compile(two_results())
    if request.param == "compiled":
        return made
    path = Path(tmp_path_factory.mktemp("saved"), "two.anydim")
    made.save(path)
    return ad.load(path)


def drawn(rows: int, seed: int = 0) -> numpy.ndarray:
    return numpy.random.default_rng((seed, rows)).standard_normal((rows, 4), numpy.float32)


@pytest.mark.parametrize("rows", [0, 1, 7, 33])
def test_arrays_are_filled_and_handed_back(model, rows: int) -> None:
    x, cache = drawn(rows), drawn(rows, 1)
    turned, present = (numpy.full_like(x, numpy.nan) for _ in range(2))
    for out in ({"turned": turned, "present": present}, [turned, present], (turned, None)):
        results = model(x, cache=cache, out=out)
        assert results["turned"] is turned
        numpy.testing.assert_array_equal(turned, x[::-1])
        numpy.testing.assert_array_equal(results["present"], cache[::-1] + x)


@pytest.mark.parametrize("rows", [0, 1, 7, 33])
def test_a_cache_is_input_and_output(model, rows: int) -> None:
    cache, expected = drawn(rows, 1), drawn(rows, 1)
    for step in range(3):
        x = drawn(rows, 2 + step)
        expected = expected[::-1] + x
        results = model(x=x, cache=cache, out={"present": cache})
        assert results["present"] is cache
        numpy.testing.assert_array_equal(cache, expected)
        numpy.testing.assert_array_equal(results["turned"], x[::-1])


def test_outputs_that_overlap_inputs_and_change_places(model) -> None:
    memory = drawn(20)
    x, cache = memory[:10], memory[10:]
    turned, present = x[::-1].copy(), cache[::-1] + x
    model(x, cache, out={"turned": memory[10:], "present": memory[:10]})
    numpy.testing.assert_array_equal(memory[10:], turned)
    numpy.testing.assert_array_equal(memory[:10], present)


def test_arrays_of_other_libraries_share_memory_too(model) -> None:
    torch = pytest.importorskip("torch")
    cache, x = torch.ones(5, 4), torch.ones(5, 4)
    results = model(x, cache, out={"present": cache})
    assert results["present"] is cache
    assert cache.tolist() == torch.full((5, 4), 2.0).tolist()


@pytest.mark.parametrize("out,problem", [
    ({"past": numpy.zeros((3, 4), numpy.float32)}, "two has no result 'past' to write into"),
    (numpy.zeros((3, 4), numpy.float32), "two has 2 results, got 1 array"),
    ({"present": numpy.zeros((3, 4))}, "has dtype float64, the result has float32"),
    ({"present": numpy.zeros((3, 4), ">f4")}, "float32 in the other byte order, the result has"),
    ({"present": numpy.zeros((4, 4), numpy.float32)}, "has shape"),
    ({"present": numpy.zeros((3, 8), numpy.float32)[:, ::2]}, "is not contiguous"),
])  # fmt: skip
def test_arrays_that_do_not_fit(model, out: object, problem: str) -> None:
    with pytest.raises(ad.InputError, match=problem):
        model(drawn(3), drawn(3), out=out)


def test_an_input_may_be_called_out() -> None:
    graph = ad.Builder("named")
    graph.output("y", graph.neg(graph.input("out", ad.float32, (2,))))
    given = numpy.ones(2, numpy.float32)
    assert ad.compile(graph)(out=given)["y"].tolist() == [-1, -1]


def test_results_of_programs_with_branches() -> None:
    graph = ad.Builder("chosen")
    n = graph.dim("n", 0, 1000)
    x, up = graph.input("x", ad.float32, (n,)), graph.input("up", ad.boolean, ())
    graph.output("y", graph.branch(up, lambda b: b.add(x, 1.0), lambda b: b.identity(x)))
    model = ad.compile(graph)
    for size in (0, 3, 900):
        x = numpy.arange(size, dtype=numpy.float32)
        expected = x + 1
        assert model(x, True, out=x)["y"] is x
        numpy.testing.assert_array_equal(x, expected)
        model(x, False, out=x)
        numpy.testing.assert_array_equal(x, expected)


# ---- caches that are updated in place ------------------------------------------------------------


def cached(operator: str, threads: int = 1) -> ad.Model:
    graph = ad.Builder("cached")
    n, t = graph.dim("n", 0, 4096), graph.dim("t", 0, 64)
    batch = graph.dim("b", 0, 8)
    if operator == "tensor_scatter":
        cache = graph.input("cache", ad.float32, (batch, 2, n, 8))
        new = graph.input("new", ad.float32, (batch, 2, t, 8))
        at = graph.input("at", ad.int64, (batch,))
        graph.output("present", graph.tensor_scatter(cache, at, new, axis=2))
    else:
        cache = graph.input("cache", ad.float32, (n, 8))
        new, at = graph.input("new", ad.float32, (t, 8)), graph.input("at", ad.int64, (t, 1))
        graph.output("present", graph.scatter_nd(cache, at, new))
    return ad.compile(graph, threads=threads)


def entries(operator: str, n: int, t: int) -> dict[str, numpy.ndarray]:
    chance = numpy.random.default_rng(n)
    if operator == "tensor_scatter":
        shapes, at = ((3, 2, n, 8), (3, 2, t, 8)), chance.integers(0, n - t + 1, 3)
    else:
        shapes, at = ((n, 8), (t, 8)), chance.permutation(n)[:t].reshape(t, 1)
    cache, new = (chance.standard_normal(shape, numpy.float32) for shape in shapes)
    return {"cache": cache, "new": new, "at": at}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("operator", ["tensor_scatter", "scatter_nd"])
def test_a_cache_is_updated_where_it_lies(operator: str, threads: int) -> None:
    model = cached(operator, threads)
    assert ("present", "cache") in model.executable.updates
    for n, t in ((1, 1), (5, 0), (7, 3), (16, 16), (1000, 2)):
        feeds = entries(operator, n, t)
        expected = model(**feeds)["present"]
        cache = feeds["cache"]
        untouched = cache.copy()
        apart = model(**feeds, out={"present": numpy.full_like(cache, numpy.nan)})["present"]
        numpy.testing.assert_array_equal(apart, expected)
        numpy.testing.assert_array_equal(cache, untouched)
        for _ in range(2):
            assert model(**feeds, out={"present": cache})["present"] is cache
            numpy.testing.assert_array_equal(cache, expected)


def test_a_cache_beside_other_inputs_that_lie_in_it() -> None:
    """What is new lies in the cache: the result is made elsewhere, and copied."""
    model = cached("scatter_nd")
    memory = numpy.arange(80, dtype=numpy.float32).reshape(10, 8)
    at = numpy.array([[0], [1]])
    expected = memory.copy()
    expected[:2] = memory[1:3]
    model(memory, new=memory[1:3], at=at, out=memory)
    numpy.testing.assert_array_equal(memory, expected)


def test_parts_of_an_input_are_no_update() -> None:
    lib = ad.define("def f(float(N) x, float(N) y) -> (z) { z(i) = x(i) + y(i) }")
    model = lib.f.model([1.0], [1.0])
    memory = numpy.arange(12, dtype=numpy.float32)
    x, y, z = memory[:8], memory[2:10], memory[1:9]
    expected = x + y
    model(x, y, out=z)
    numpy.testing.assert_array_equal(z, expected)
    same = numpy.arange(8, dtype=numpy.float32)
    model(same, same, out=same)
    numpy.testing.assert_array_equal(same, 2 * numpy.arange(8))


def test_an_input_that_is_read_again_is_no_update() -> None:
    graph = ad.Builder("again")
    x = graph.input("x", ad.float32, (graph.dim("n", 0, 99), 16))
    y = graph.add(x, 1.0)
    weights = graph.constant(numpy.ones((16, 16), numpy.float32))
    graph.output("y", y)
    graph.output("z", graph.matmul(x, weights))
    model = ad.compile(graph)
    memory = numpy.arange(32, dtype=numpy.float32).reshape(2, 16)
    before, made = memory.copy(), model(memory.copy())
    results = model(memory, out={"y": memory})
    numpy.testing.assert_array_equal(memory, before + 1)
    numpy.testing.assert_array_equal(results["z"], made["z"])
