"""Promise: compiled random graphs mean what they say, at every size, one size after another.

A failure prints the smallest graph found that fails alike. `python -m tests.fuzz` runs more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fuzz import (
    damaged_files,
    edges,
    exchanged_weights,
    images_alone,
    networks,
    nnsmith_graphs,
    onnx_peers,
    structures,
)
from tests.fuzz.runner import Outcome, run
from tests.guards import everywhere

QUICK, MANY = 4, 500
QUICK_MODELS, MANY_MODELS = 2, 150
QUICK_EDGES, MANY_EDGES = 6, 1000
QUICK_NETWORKS, MANY_NETWORKS = 2, 100
QUICK_STRUCTURES, MANY_STRUCTURES = 1, 100


def failures(seeds: range, run: Callable[[range], Iterator[Outcome]] = run) -> str:
    return "\n\n".join(
        f"seed {outcome.seed}: {outcome.failure}\n{outcome.text}"
        for outcome in run(seeds)
        if outcome.failure
    )


def test_a_few_random_graphs() -> None:
    found = failures(range(QUICK))
    assert not found, found


@pytest.mark.slow
def test_many_random_graphs() -> None:
    found = failures(range(10_000, 10_000 + MANY))
    assert not found, found


def test_launches_of_random_graphs_write_where_they_may() -> None:
    with everywhere():  # other graphs: their values are compared as well
        found = failures(range(QUICK, 2 * QUICK))
    assert not found, found


@pytest.mark.slow
def test_launches_of_many_random_graphs_write_where_they_may() -> None:
    with everywhere():
        found = failures(range(20_000, 20_000 + MANY))
        found += failures(range(20_000, 20_000 + MANY_NETWORKS), networks.run)
    assert not found, found


def test_a_few_random_onnx_models() -> None:
    found = failures(range(QUICK_MODELS), onnx_peers.run)
    assert not found, found


@pytest.mark.slow
def test_many_random_onnx_models() -> None:
    found = failures(range(10_000, 10_000 + MANY_MODELS), onnx_peers.run)
    assert not found, found


def test_a_few_random_models_with_other_weights() -> None:
    found = failures(range(2), exchanged_weights.run)
    assert not found, found


@pytest.mark.slow
def test_many_random_models_with_other_weights() -> None:
    found = failures(range(10_000, 10_000 + MANY_NETWORKS), exchanged_weights.run)
    assert not found, found


def test_a_few_random_networks() -> None:
    found = failures(range(QUICK_NETWORKS), networks.run)
    assert not found, found


def test_a_few_networks_image_by_image() -> None:
    found = failures(range(QUICK_NETWORKS), images_alone.run)
    assert not found, found


@pytest.mark.slow
def test_many_networks_image_by_image() -> None:
    found = failures(range(10_000, 10_000 + MANY_NETWORKS), images_alone.run)
    assert not found, found


@pytest.mark.slow
def test_many_random_networks() -> None:
    found = failures(range(10_000, 10_000 + MANY_NETWORKS), networks.run)
    assert not found, found


@pytest.mark.slow
def test_many_graphs_of_nnsmith() -> None:
    pytest.importorskip("nnsmith")
    found = failures(range(100), nnsmith_graphs.run)
    assert not found, found


def test_a_few_operators_at_their_edges() -> None:
    found = failures(range(QUICK_EDGES), edges.run)
    assert not found, found


@pytest.mark.slow
def test_many_operators_at_their_edges() -> None:
    found = failures(range(10_000, 10_000 + MANY_EDGES), edges.run)
    assert not found, found


def test_a_few_random_recursions() -> None:
    found = failures(range(1, 1 + QUICK_STRUCTURES), structures.run)
    assert not found, found


@pytest.mark.slow
def test_many_random_recursions() -> None:
    found = failures(range(1_000, 1_000 + MANY_STRUCTURES), structures.run)
    assert not found, found


@pytest.mark.slow
def test_many_damaged_files() -> None:
    found = failures(range(200), damaged_files.run)
    assert not found, found
