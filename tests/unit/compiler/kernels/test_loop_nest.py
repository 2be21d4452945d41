"""Ordered steps: right at every size, however the range is cut, and never outside a buffer."""

from __future__ import annotations

import re

import numpy as np
import pytest

from anydim.base.dtypes import int64
from anydim.base.errors import OptionError
from anydim.compiler.kernels.ir_text import print_kernel
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.loop_nest import nest_template as nest
from anydim.compiler.kernels.loop_nest.nest_form import nest_form
from anydim.compiler.kernels.loop_nest.nest_plan import STAGES
from anydim.compiler.kernels.loop_nest.nest_schedule import LoopNest
from anydim.lang.tree import Group
from anydim.runtime.positions import FINE
from anydim.sizes import Box
from tests.unit.compiler.kernels.launching import Prepared, once_for_each_target
from tests.unit.compiler.kernels.nest_cases import (
    BOX,
    BY_NAME,
    CASES,
    HISTOGRAM,
    STENCIL,
    Case,
    add,
    axis,
    loop,
    number,
    read,
    stencil,
    t,
    tensor,
    write,
)
from tests.unit.compiler.kernels.nest_cases import N as SIZE
from tests.unit.compiler.kernels.nest_cases import T as t_size

SMALL = ((0, 1, 2, 0), (1, 0, 1, 1), (2, 3, 1, 4), (5, 2, 3, 7), (4, 1, 9, 0))
LARGE = ((0, 0, 0, 0), (17, 3, 33, 16), (3, 16, 15, 31), (40, 2, 8, 64), (1, 1, 1, 1))


@once_for_each_target
def prepared(name: str, vector_bytes: int = 32, schedule: LoopNest | None = None) -> Prepared:
    machine = Machine(vector_bytes, 16)
    group = BY_NAME[name].group
    return Prepared(group, (nest.TEMPLATE,), BOX, machine, schedule=schedule)


def sizes(numbers: tuple[int, ...]) -> dict[str, int]:
    first, second, third, fourth = numbers
    return {"T": first, "B": second, "C": third, "K": fourth, "N": first, "M": third}


def check(case: Case, made: Prepared, env: dict[str, int], parts: int, compiled: bool) -> None:
    arrays = case.arrays(env)
    found = made.outputs(arrays, env, parts, compiled)
    assert (made.status == FINE).all()
    for result, expected in zip(found, case.results(arrays), strict=True):
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected, rtol=case.tolerance, atol=1e-5)


@pytest.mark.parametrize("vector_bytes", (16, 64))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_access_is_inside_and_values_are_right(case: Case, vector_bytes: int) -> None:
    made = prepared(case.name, vector_bytes)
    for numbers in SMALL:
        check(case, made, sizes(numbers), 1, compiled=False)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_compiled_at_many_sizes_by_one_kernel(case: Case) -> None:
    made = prepared(case.name)
    for numbers in (*SMALL, *LARGE):
        check(case, made, sizes(numbers), 1, compiled=True)


@pytest.mark.parametrize("case", [c for c in CASES if c.parallel], ids=lambda case: case.name)
def test_parts_of_the_range_need_no_word_from_each_other(case: Case) -> None:
    made = prepared(case.name)
    assert made.schedule.parallel == case.parallel
    for numbers in SMALL[1:]:
        check(case, made, sizes(numbers), 3, compiled=False)
    check(case, made, sizes((9, 5, 37, 3)), 4, compiled=True)


@pytest.mark.parametrize("case", [c for c in CASES if not c.parallel], ids=lambda case: case.name)
def test_what_crosses_parts_is_not_cut(case: Case) -> None:
    made = prepared(case.name)
    assert made.launch.parallel == 1 or made.schedule.parallel == STAGES
    with pytest.raises(OptionError, match="cannot be shared"):
        prepared(case.name, 32, LoopNest(8, 2, "i"))


@pytest.mark.parametrize("block", (1, 4))
@pytest.mark.parametrize("name", ("cumulative", "guarded", "pooling", "elman", "every third"))
def test_blocks_of_the_range_outermost(name: str, block: int) -> None:
    case = BY_NAME[name]
    made = prepared(name, 32, LoopNest(8, 2, case.parallel, block))
    for numbers in SMALL:
        check(case, made, sizes(numbers), 2, compiled=False)
    check(case, made, sizes((9, 5, 37, 3)), 3, compiled=True)


@pytest.mark.sampled(most=20)
@pytest.mark.parametrize("schedule", (LoopNest(1), LoopNest(4, 1), LoopNest(8, 4)))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_any_width_is_right(case: Case, schedule: LoopNest) -> None:
    made = prepared(case.name, 32, schedule)
    check(case, made, sizes((5, 2, 19, 7)), 1, compiled=False)


def test_a_stencil_over_time() -> None:
    made = Prepared(STENCIL, (nest.TEMPLATE,), BOX, Machine(32, 16))
    for iterations, size in ((0, 0), (0, 5), (3, 0), (1, 1), (7, 33), (4, 100)):
        start = np.random.default_rng(size).standard_normal(size, np.float32)
        env = {"T": iterations, "N": size}
        for compiled in (False, True):
            (found,) = made.outputs([start], env, 1, compiled)
            np.testing.assert_allclose(found, stencil(start, iterations), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("compiled", (False, True))
def test_places_that_data_decides(compiled: bool) -> None:
    made = Prepared(HISTOGRAM, (nest.TEMPLATE,), BOX, Machine(32, 16))
    rng = np.random.default_rng(1)
    for count, bins in ((0, 0), (0, 3), (1, 1), (50, 7), (9, 64)):
        place = rng.integers(0, bins, count).astype(np.int32) if bins else np.zeros(0, np.int32)
        weight = rng.standard_normal(count, np.float32)
        found = made.outputs([place, weight], {"N": count, "K": bins}, 1, compiled)
        last = np.zeros(bins, np.float32)
        for where, value in zip(place, weight):
            last[where] = value
        assert (found[0] == np.bincount(place, minlength=bins)).all()
        sums = np.bincount(place, weight.astype(np.float64), bins)
        np.testing.assert_allclose(found[1], sums, rtol=1e-5, atol=1e-5)
        assert (found[2] == last).all()
        assert (made.status == FINE).all()


@pytest.mark.parametrize("compiled", (False, True))
@pytest.mark.parametrize("wrong", (-1, 4, 2**31 - 1, -(2**31)))
def test_a_place_outside_is_told_and_writes_nothing(wrong: int, compiled: bool) -> None:
    made = Prepared(HISTOGRAM, (nest.TEMPLATE,), BOX, Machine(32, 16))
    place, weight = np.array([1, wrong, 3], np.int32), np.ones(3, np.float32)
    made.outputs([place, weight], {"N": 3, "K": 4}, 1, compiled)
    assert made.status[0] == wrong


@pytest.mark.parametrize("compiled", (False, True))
def test_a_length_beyond_the_row_is_told(compiled: bool) -> None:
    made = prepared("ragged")
    arrays = [np.ones((2, 3), np.float32), np.array([2, 5])]
    made.outputs(arrays, {"B": 2, "T": 3}, 1, compiled)
    assert made.status[0] == 3  # the iteration that fails is the last one
    made.outputs([arrays[0], np.array([-(2**63), 2])], {"B": 2, "T": 3}, 1, compiled)
    assert (made.status == FINE).all()


def test_a_tensor_that_is_filled_is_not_cleared_first() -> None:
    for name in ("cumulative", "guarded", "pooling", "backwards", "elman", "halves"):
        form = nest_form(BY_NAME[name].group, BOX)
        assert form is not None and len(form.steps) == 1
    for name in ("every third", "ragged", "levenshtein"):
        form = nest_form(BY_NAME[name].group, BOX)
        assert form is not None and len(form.steps) > len(BY_NAME[name].group.steps)


@pytest.mark.parametrize(
    ("name", "registers"), [("fibonacci", 1), ("guarded", 1), ("levenshtein", 1), ("pooling", 0)]
)
def test_one_element_goes_on_to_the_next_iteration_in_a_register(name: str, registers: int) -> None:
    text = print_kernel(prepared(name).launch.kernel)
    assert len(set(re.findall(r"\bh\d+\b", text))) == registers


def test_a_temporary_whose_size_data_decides_is_left_alone() -> None:
    group = Group(
        inputs=(tensor("n", dtype=int64),),
        outputs=(tensor("y", SIZE),),
        statements=(),
        temporaries=(tensor("w", t),),
        steps=(loop(t, 0, read("n"), write("w", ("i",), (axis("i", t),), 1)),),
    )
    assert nest.TEMPLATE.match(group, Box.of(), Machine(), frozenset()) is None


def test_threads_share_a_range_that_is_not_known_to_be_short() -> None:
    def pooled(rows: object, columns: object) -> str:
        steps = (
            loop(t, 0, t_size, write("y", (t, "b", "c"), (axis("b", rows), axis("c", columns)),
                 add(read("x", t, "b", "c"), read("y", t - 1, "b", "c", default=number(0.0))))),
        )  # fmt: skip
        group = Group(
            (tensor("x", t_size, rows, columns),), (tensor("y", t_size, rows, columns),), (), (),
            (), steps,
        )  # fmt: skip
        return nest.TEMPLATE.match(group, BOX, Machine(), frozenset()).parallel

    assert pooled(SIZE, 64) == "b"
    assert pooled(2, SIZE) == "c"
    assert pooled(1, 8) == "c"
    assert pooled(4, 8) == "c"
    assert pooled(1, 1) == "none"
