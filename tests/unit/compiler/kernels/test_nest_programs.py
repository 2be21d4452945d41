"""Every ordered program of the catalogue as one kernel, beside numpy: checked, and compiled."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from anydim.base.dtypes import from_numpy
from anydim.compiler.kernels.launch import Machine
from anydim.compiler.kernels.loop_nest import nest_template as nest
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse
from anydim.lang.tree import Group, TensorType
from anydim.runtime.positions import FINE
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.launching import Prepared, once_for_each_target
from tests.unit.lang.catalogue import PROGRAMS, Program


@cache
def group_of(name: str) -> tuple[Group, Box]:
    program = next(program for program in PROGRAMS if program.name == name)
    (definition, *_) = parse(program.text).values()
    types = [
        TensorType(from_numpy(np.dtype(dtype)), tuple(map(as_size, dims)))
        for dtype, dims in program.arguments
    ]
    box = Box.of(*(Dim(name, 0) for name in program.dims))
    return instantiate(definition, types, {}, box), box


ORDERED = [program for program in PROGRAMS if group_of(program.name)[0].steps]


@once_for_each_target
def prepared(name: str, vector_bytes: int) -> Prepared:
    group, box = group_of(name)
    return Prepared(group, (nest.TEMPLATE,), box, Machine(vector_bytes, 16))


def check(program: Program, made: Prepared, sizes: dict[str, int], **how: Any) -> None:
    arrays = program.arrays(sizes)
    results = made.outputs(arrays, sizes, **how)
    assert (made.status == FINE).all()
    wide = [a.astype("float64") if a.dtype.kind == "f" else a for a in arrays]
    with np.errstate(all="ignore"):
        expected = program.reference(*wide)
    for result, wanted in zip(results, expected if isinstance(expected, tuple) else (expected,)):
        assert result.shape == np.shape(wanted), sizes
        tolerance = {"rtol": program.tolerance, "atol": program.tolerance}
        np.testing.assert_allclose(result, wanted, err_msg=str(sizes), **tolerance)


def test_there_are_ordered_programs() -> None:
    assert len(ORDERED) > 8


@pytest.mark.parametrize("program", ORDERED, ids=lambda p: p.name)
def test_every_access_is_inside_and_values_are_right(program: Program) -> None:
    for sizes in program.sizes(8):
        check(program, prepared(program.name, 16), sizes, parts=2)


@pytest.mark.sampled(most=7)
@pytest.mark.parametrize("program", ORDERED, ids=lambda p: p.name)
def test_compiled_at_many_sizes(program: Program) -> None:
    for number, sizes in enumerate(program.sizes(50)):
        check(program, prepared(program.name, 32), sizes, parts=1 + number % 3, compiled=True)
