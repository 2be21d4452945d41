"""Promise: a compiled program of regions gives what its graph means, at every size, and leaks
nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import anydim as ad
from tests.unit.graph.region_graphs import EXAMPLES

NAMES = ["prefix", "chosen", "chosen_by_size", "called"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_what_the_graph_means(name: str, threads: int) -> None:
    example = EXAMPLES[name]()
    model = ad.compile(example.graph, threads=threads)
    rng = np.random.default_rng(1)
    for _ in range(60):
        inputs = example.draw(rng)
        wanted = example.meaning(**inputs)
        got = model(**inputs)
        for key, value in wanted.items():
            assert got[key].shape == np.shape(value)
            np.testing.assert_allclose(got[key], value, rtol=1e-5, atol=1e-6)
    assert model.executable.leaked == 0


@pytest.mark.parametrize("name", NAMES)
def test_several_threads_may_call_one_program(name: str) -> None:
    example = EXAMPLES[name]()
    model = ad.compile(example.graph)

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(40):
            inputs = example.draw(rng)
            got = model(**inputs)
            for key, value in example.meaning(**inputs).items():
                np.testing.assert_allclose(got[key], value, rtol=1e-5, atol=1e-6)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert model.executable.leaked == 0
