"""Promise: in WebAssembly, definitions with structures, recursion and `while` have the results of
the model's own calls; arrays that fit no structure are errors and leave the model usable."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anydim as ad
from tests.unit.deploy.kinds import Inputs
from tests.unit.deploy.test_export_definitions import COLLATZ, FIB, KINDS, compiled
from tests.unit.deploy.web.node import answers, call_of, needs_node, outputs

pytestmark = needs_node


def named(model: ad.Model, arrays: Inputs) -> Inputs:
    """Arrays by the names of the program's inputs, in their order."""
    names = [spec.key for spec in model.program.signature.inputs]
    return dict(zip(names, arrays.values(), strict=True))


def assert_same(model: ad.Model, given: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
    """A result is that of the model's own call, an error where that call has one."""
    try:
        (wanted,) = model(**given).values()
    except ad.AnydimError:
        assert answer.get("ours"), answer
    else:
        (made,) = outputs(model, answer).values()
        np.testing.assert_allclose(made, wanted, 1e-5, 1e-5, err_msg=str(given))


@pytest.mark.parametrize("name", KINDS)
def test_structures_are_arrays(name: str, tmp_path: Path) -> None:
    text, entry, draw = KINDS[name]
    model, random = compiled(text, entry, tmp_path), np.random.default_rng(3)
    model.export(tmp_path / "made", target="wasm32")
    cases = [draw(random, size) for size in (0, 1, 2, 7, 17, 40)]
    found = answers(tmp_path / "made", [call_of(named(model, arrays)) for _, arrays in cases])
    for (given, _), answer in zip(cases, found, strict=True):
        assert_same(model, given, answer)


@pytest.mark.parametrize(
    "name", ["tree", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bush", "list"))]
)
def test_arrays_that_fit_no_structure_are_errors(name: str, tmp_path: Path) -> None:
    text, entry, draw = KINDS[name]
    model, random = compiled(text, entry, tmp_path), np.random.default_rng(4)
    model.export(tmp_path / "made", target="wasm32")
    calls, right = [], call_of(named(model, draw(random, 6)[1]))
    for wrong in (-1, -(2**62), 2**62, 2**32, 10**6, 12):
        arrays = named(model, draw(random, 6)[1])
        for key, array in arrays.items():
            if array.dtype == np.int64 and len(array):
                spoiled = array.copy()
                spoiled[random.integers(len(array))] = wrong
                calls += [call_of({**arrays, key: spoiled}), right]
    found = answers(tmp_path / "made", calls)
    assert all(answer == found[1] and "outputs" in answer for answer in found[1::2])
    errors = [answer for answer in found[::2] if "error" in answer]
    assert len(errors) >= len(calls) // 8 and all(answer["ours"] for answer in errors), errors


def test_loops_that_data_ends_and_recursion_beyond_its_bound(tmp_path: Path) -> None:
    numbers = [{"x": np.array(x, np.int64)} for x in ([], [1], [27, 0, 1, 97], range(1, 60))]
    depths = [{"n": np.array(n)} for n in (-1, 0, 1, 2, 13, 20, 40, 2**40, 7)]
    for text, entry, cases in ((COLLATZ, "collatz", numbers), (FIB, "fib", depths)):
        model = compiled(text, entry, tmp_path)
        model.export(tmp_path / entry, target="wasm32")
        for inputs, answer in zip(cases, answers(tmp_path / entry, map(call_of, cases))):
            assert_same(model, inputs, answer)
