"""Caches that stay in a model: the same results as caches that a caller carries, at any sizes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import anydim as ad
from bench.networks.sequences import decoder

LAYERS, HEADS, WIDTH, WORDS = 2, 2, 8, 60
NAMES = [f"{kind}_{layer}" for layer in range(LAYERS) for kind in ("keys", "values")]


@pytest.fixture(scope="module")
def network() -> bytes:
    return decoder(LAYERS, HEADS, WIDTH, WORDS, places=600).SerializeToString()


def empty(batch: int) -> dict[str, np.ndarray]:
    return {name: np.zeros((batch, HEADS, 0, WIDTH), np.float32) for name in NAMES}


@pytest.mark.sampled(most=2)
@pytest.mark.parametrize("threads", (1, 2))
@pytest.mark.parametrize("batch", (1, 3))
def test_steps_have_the_bits_of_carried_caches(network: bytes, batch: int, threads: int) -> None:
    plain = ad.compile(network, threads=threads)
    step = ad.cached(network, threads=threads, room=4)
    assert step.in_place
    random, caches = np.random.default_rng(0), empty(batch)
    for count in (0, 1, 5, 1, 0, 1, 7, 31, 1, 1, 200, 1):
        ids = random.integers(0, WORDS, (batch, count))
        expected = plain(ids=ids, **caches)
        found = step(ids=ids)
        assert list(found) == ["logits"]
        assert found["logits"].tobytes() == expected["logits"].tobytes()
        caches = {name: expected[f"new_{name}"] for name in NAMES}
        held = step.held()
        assert step.length == caches["keys_0"].shape[2]
        assert all(held[name].tobytes() == caches[name].tobytes() for name in NAMES)


def test_a_step_writes_beside_what_is_there(network: bytes) -> None:
    """Memory stays while there is room, and doubles when there is none."""
    step = ad.cached(network, threads=1, room=8)
    word, places = np.array([[3]]), []
    for _ in range(40):
        step(ids=word)
        places.append((step.held()["keys_0"].ctypes.data, step._held["keys_0"].shape[2]))
    assert len(set(places)) == len({room for _, room in places}) == 4
    step.forget()
    step(ids=word)
    assert (step.held()["keys_0"].ctypes.data, 64) == places[-1]


def test_forgetting_goes_back(network: bytes) -> None:
    step = ad.cached(network, threads=1)
    ids = np.arange(9).reshape(1, 9)
    first = step(ids=ids)["logits"]
    step(ids=np.array([[50, 51]]))
    step.forget(4)
    np.testing.assert_allclose(step(ids=ids[:, 4:])["logits"], first[:, 4:], rtol=0, atol=1e-5)
    with pytest.raises(ad.OptionError, match="hold 9 elements"):
        step.forget(10)


def test_caches_can_be_given(network: bytes) -> None:
    plain, step = ad.compile(network, threads=1), ad.cached(network, threads=1)
    made = plain(ids=np.arange(12).reshape(2, 6), **empty(2))
    caches = {name: made[f"new_{name}"] for name in NAMES}
    step.hold(caches)
    word = np.array([[1], [2]])
    assert step(ids=word)["logits"].tobytes() == plain(ids=word, **caches)["logits"].tobytes()
    with pytest.raises(ad.InputError, match="the caches of decoder are 'keys_0'"):
        step.hold({"keys_0": caches["keys_0"]})
    with pytest.raises(ad.InputError, match="caches of '1', '6' elements"):
        step.hold({**caches, "keys_0": caches["keys_0"][:, :, :1]})
    with pytest.raises(ad.InputError, match="float32 with 4 axes"):
        step.hold({**caches, "keys_0": caches["keys_0"][0]})


def test_other_batches_only_from_the_beginning(network: bytes) -> None:
    step = ad.cached(network, threads=1)
    step(ids=np.array([[1, 2]]))
    before = {name: array.copy() for name, array in step.held().items()}
    for _ in range(2):
        with pytest.raises(ad.DimError):
            step(ids=np.array([[1], [2]]))
    assert step.length == 2
    assert all((step.held()[name] == array).all() for name, array in before.items())
    step.forget()
    assert step(ids=np.array([[1], [2]]))["logits"].shape == (2, 1, WORDS)
    with pytest.raises(ad.InputError, match="owns the cache 'keys_0'"):
        step(ids=np.array([[1], [2]]), keys_0=before["keys_0"])


def test_bounds_of_the_past_hold(network: bytes) -> None:
    step = ad.cached(network, dims={"past": (0, 5)}, threads=1)
    for _ in range(6):
        step(ids=np.array([[1]]))
    with pytest.raises(ad.DimError, match="hold 6 elements, dim 'past' is at most 5"):
        step(ids=np.array([[1]]))


# ---- graphs that are unlike --------------------------------------------------------------------


def built(more: Any = None) -> ad.Builder:
    graph = ad.Builder("g")
    n, m = graph.dim("n", 0, 4096), graph.dim("m", 0, 64)
    past, new = graph.input("past", ad.float32, (n, 8)), graph.input("new", ad.float32, (m, 8))
    joined = graph.concat([past, new], axis=0)
    graph.output("present", joined)
    graph.output("total", graph.reduce_sum(joined, axes=(0,)))
    if more:
        graph.output("more", more(graph, past, joined))
    return graph


def test_what_else_reads_a_cache_makes_it_a_copy() -> None:
    """Whoever reads the past after the new rows were put there would read them too."""
    with pytest.warns(UserWarning, match="copied in every call"):
        step = ad.cached(built(lambda g, past, joined: past * 2), threads=1)
    rows = np.zeros((0, 8), np.float32)
    for count in (3, 0, 2, 60):
        new = np.random.default_rng(count).standard_normal((count, 8)).astype(np.float32)
        found = step(new=new)
        np.testing.assert_array_equal(found["more"], rows * 2)
        rows = np.concatenate([rows, new])
        np.testing.assert_allclose(found["total"], rows.sum(0), rtol=0, atol=1e-4)
        np.testing.assert_array_equal(step.held()["past"], rows)


@pytest.mark.parametrize("pairs", ({"new": "present"}, {"past": "total"}, {"past": "none"}))
def test_pairs_that_are_no_caches(pairs: dict[str, str]) -> None:
    with pytest.raises(ad.GraphError, match="are no cache"):
        ad.cached(built(), pairs)


def test_a_graph_without_caches() -> None:
    graph = ad.Builder("plain")
    x = graph.input("x", ad.float32, (graph.dim("n"),))
    graph.output("y", x + 1)
    with pytest.raises(ad.GraphError, match="no result that appends to an input"):
        ad.cached(graph)
    with pytest.raises(ad.OptionError):
        ad.cached(built(), room=0)


def test_caches_of_unlike_lengths() -> None:
    graph = ad.Builder("unlike")
    for name in "ab":
        past = graph.input(f"past_{name}", ad.float32, (graph.dim(name), 4))
        new = graph.input(f"new_{name}", ad.float32, (graph.dim("m"), 4))
        graph.output(f"present_{name}", graph.concat([past, new], axis=0))
    with pytest.raises(ad.GraphError, match=re.escape("differ in length or growth")):
        ad.cached(graph)
    one = ad.cached(graph, {"past_b": "present_b"})
    rows = np.ones((2, 4), np.float32)
    found = one(new_a=rows, new_b=rows, past_a=rows)
    assert found["present_a"].shape == (4, 4) and one.length == 2
