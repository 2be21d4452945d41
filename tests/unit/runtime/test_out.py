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
    (numpy.zeros((3, 4), numpy.float32), "two has 2 results, 1 arrays were given"),
    ({"present": numpy.zeros((3, 4))}, "has dtype float64, the result has float32"),
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
