"""Promises: rows, threads, sizes and precision change no result beyond what is written down.

`python -m tests.fuzz --laws`, `--cuts` and `--sizes` run more.
"""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest

from tests.fuzz import (
    alternatives,
    cuts,
    decoders,
    fixed,
    independence,
    metamorphic,
    ragged,
    sizes_as_data,
)
from tests.fuzz.coverage import special
from tests.fuzz.metamorphic import row_case
from tests.fuzz.test_fuzz import failures

QUICK = 2
MANY_SIZES = 300
MANY, MANY_CUTS = 300, 700  # a hundred of each model


def test_laws_of_a_few_graphs() -> None:
    found = failures(range(QUICK), metamorphic.run)
    assert not found, found


def test_strategies_rungs_and_saved_models_of_a_few_graphs() -> None:
    found = failures(range(1, 1 + QUICK), alternatives.run)  # all laws, in little time
    assert not found, found


def test_ragged_rows_of_a_few_graphs() -> None:
    found = failures(range(2 * QUICK), ragged.run)
    assert not found, found


def test_independent_rows_of_a_few_graphs() -> None:
    found = failures(range(5 * QUICK), independence.run)
    assert not found, found


def test_planted_mixers_of_a_few_graphs_are_found() -> None:
    found = failures(range(2 * QUICK), independence.run_planted)
    assert not found, found


@pytest.mark.slow
def test_independent_rows_of_many_graphs() -> None:
    found = failures(range(50_000, 50_000 + 10 * MANY), independence.run)
    assert not found, found


@pytest.mark.slow
def test_planted_mixers_of_many_graphs_are_found() -> None:
    found = failures(range(60_000, 60_000 + MANY), independence.run_planted)
    assert not found, found


def test_rows_of_a_few_decoders() -> None:
    found = failures(range(QUICK // 2), decoders.run)
    assert not found, found


@pytest.mark.slow
def test_rows_of_many_decoders() -> None:
    found = failures(range(40_000, 40_000 + MANY), decoders.run)
    assert not found, found


@pytest.mark.slow
def test_ragged_rows_of_many_graphs() -> None:
    found = failures(range(30_000, 30_000 + MANY), ragged.run)
    assert not found, found


def test_sizes_wrap_as_data_free_and_fixed() -> None:
    found = failures(range(QUICK), sizes_as_data.run)
    assert not found, found


@pytest.mark.slow
def test_many_sizes_as_data() -> None:
    found = failures(range(20_000, 20_000 + MANY_SIZES), sizes_as_data.run)
    assert not found, found


def test_values_at_the_edges_are_drawn() -> None:
    case = next(case for case in map(row_case, range(0, 100, 4)) if case.points[0])
    drawn = numpy.concatenate(
        [
            array.astype(numpy.float32).ravel()
            for seed in range(200)
            for array in (replace(case, seed=seed).inputs(case.points[0]) or {}).values()
        ]
    )
    assert special(drawn) >= {"-0", "subnormal", "beside", "largest", "inf", "nan"}


def test_a_detector_with_fixed_dims() -> None:
    row = fixed.judged("detector", *fixed.nets()["detector"]())
    assert not row.wrong, row
    assert row.equal == row.calls > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["decoder", "beams", "attention", "minilm", "squeezenet"])
def test_nets_with_fixed_dims(name: str) -> None:
    row = fixed.judged(name, *fixed.nets()[name]())
    assert not row.wrong, row
    assert row.calls > 0


@pytest.mark.slow
def test_laws_of_many_graphs() -> None:
    found = failures(range(10_000, 10_000 + MANY), metamorphic.run)
    assert not found, found


@pytest.mark.slow
def test_parts_of_real_models() -> None:
    found = failures(range(MANY_CUTS), cuts.run)
    assert not found, found
