"""Checked indices: an index outside is stored in the word of its check, one that counts nowhere
is not, at every width; nothing outside a tensor is read (the evaluator watches every access)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from anydim.base.dtypes import boolean, float32, int64
from anydim.compiler.kernels.launch import STATUS, STATUS_TENSOR, Machine
from anydim.compiler.kernels.templates import TEMPLATES
from anydim.compiler.passes.canonical_groups import canonical
from anydim.lang.resolve.instantiate import instantiate
from anydim.lang.surface.parser import parse_definition
from anydim.lang.tree import TensorType
from anydim.runtime.positions import FINE
from anydim.sizes import Box, Dim, as_size
from tests.unit.compiler.kernels.attention_cases import BOX as ATTENTION_BOX
from tests.unit.compiler.kernels.attention_cases import BY_NAME as ATTENTIONS
from tests.unit.compiler.kernels.launching import Prepared, once_for_each_target

BOX = Box.of(*(Dim(name, 0, 5000) for name in ("R", "C", "V")))
REGISTERS = {16: 16, 32: 16, 64: 32}
SIZES = ((0, 3), (3, 0), (1, 1), (2, 7), (3, 16), (1, 17), (5, 65), (2, 131))


@dataclass(frozen=True)
class Case:
    """A definition over x, at and on, the template that takes it, and the shapes of all three."""

    name: str
    body: str
    shape: str = "R C"  # of `at` and `on`
    template: str = "pointwise"
    table: str = "V"


CASES = (
    Case("each its own", "y(r,c) = x(at(r,c))"),
    Case("along a row", "y(r,c) = x(at(c)) where r in 0:R", "C"),
    Case("one for a row", "y(r,c) = x(at(r),c)", "R", table="V C"),
    Case("one for all", "y(r,c) = x(at(0),c) where r in 0:R", "1", table="V C"),
    Case("last axis", "y(r,c) = x(r,at(c))", "C", table="R V"),
    Case("row sums", "y(r) +=! x(at(r,c))", template="rows"),
    Case("sums of one", "y(r) +=! x(at(r),c)", "R", "rows", "V C"),
    Case("column sums", "y(c) +=! x(at(r,c))", template="rows"),
    Case("column sums of rows", "y(c) +=! x(at(r),c)", "R", "rows", "V C"),
    Case("chosen", "y(r,c) = on(r,c) ? x(at(r,c)) : 0"),
    Case("chosen rows", "y(r,c) = on(r) ? x(at(r),c) : 0", "R", table="V C"),
    Case("not chosen", "y(r) +=! on(r,c) ? 0 : x(at(r,c))", template="rows"),
    Case("chosen twice", "y(r,c) = on(r,c) && x(at(r,c)) > 0 ? x(at(r,c)) : 0"),
)
BY_NAME = {case.name: case for case in CASES}


@once_for_each_target
def prepared(name: str, vector_bytes: int) -> Prepared:
    case = BY_NAME[name]
    letters = ",".join
    table, shape = case.table.split(), case.shape.split()
    text = (
        f"def f(float({letters(table)}) x, int64({letters(shape)}) at,"
        f" bool({letters(shape)}) on; size R, size C) -> (y) {{ {case.body} }}"
    )
    types = [
        TensorType(kind, tuple(as_size(int(s) if s.isdigit() else s) for s in sizes))
        for kind, sizes in ((float32, table), (int64, shape), (boolean, shape))
    ]
    sizes = {"R": as_size("R"), "C": as_size("C")}
    group, _, found = canonical(instantiate(parse_definition(text), types, sizes, BOX))
    assert len(found) == 1
    made = Prepared(group, TEMPLATES, BOX, Machine(vector_bytes, REGISTERS[vector_bytes]))
    assert made.template.name == case.template
    assert made.launch.kernel.operands[-1] == STATUS
    assert made.launch.arguments[-1].tensor == STATUS_TENSOR
    return made


def status(made: Prepared, arrays, env, compiled: bool) -> int:
    made.outputs(arrays, env, parts=2, compiled=compiled)
    assert (made.status[1:] == FINE).all()
    return int(made.status[0])


@pytest.mark.sampled(most=16)
@pytest.mark.parametrize("vector_bytes", REGISTERS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_outside_is_reported(case: Case, vector_bytes: int) -> None:
    made = prepared(case.name, vector_bytes)
    chance = np.random.default_rng(5)
    for rows, columns in SIZES:
        env = {"R": rows, "C": columns, "V": 6, "1": 1}
        shape = [env[name] for name in case.shape.split()]
        x = np.ones([env[name] for name in case.table.split()], np.float32)
        at, on = chance.integers(0, 6, shape), chance.random(shape) < 0.5
        used = ~on if case.name == "not chosen" else on if "chosen" in case.name else on | ~on
        some = rows * columns > 0
        compiled = columns > 20
        assert status(made, [x, at, on], env, compiled) == FINE
        for bad in (6, -1, 2**40):
            place = tuple(chance.integers(0, n) for n in shape) if some else ()
            wrong = at.copy()
            if some:
                wrong[place] = bad
            counts = some and used[place]
            assert status(made, [x, wrong, on], env, compiled) == (bad if counts else FINE)
        wrong = np.where(used, at, 99)  # what is not used does not count, however much it is
        assert status(made, [x, wrong, on], env, compiled) == FINE


@pytest.mark.parametrize("vector_bytes", REGISTERS)
def test_the_least_integer_is_not_taken_for_none(vector_bytes: int) -> None:
    made = prepared("each its own", vector_bytes)
    x, at = np.ones(6, np.float32), np.full((3, 37), FINE)
    env = {"R": 3, "C": 37, "V": 6}
    assert status(made, [x, at, at == 0], env, compiled=True) == FINE + 1


@pytest.mark.parametrize("vector_bytes", REGISTERS)
def test_attention_reports_a_bias_that_is_not_there(vector_bytes: int) -> None:
    machine = Machine(vector_bytes, REGISTERS[vector_bytes])
    case = ATTENTIONS["looked up"]
    made = Prepared(case.group(), TEMPLATES, ATTENTION_BOX, machine)
    assert made.template.name == "attention"
    env = {"B": 2, "H": 2, "Q": 3, "K": 21}
    arrays = case.arrays(env)
    assert status(made, arrays, env, compiled=True) == FINE
    for place in ((0, 0), (1, 16), (2, 20)):
        bucket = arrays[4].copy()
        bucket[place] = 2
        wrong = [*arrays[:4], bucket]
        assert status(made, wrong, env, compiled=place != (1, 16)) == 2


def test_no_check_no_operand() -> None:
    text = "def f(float(N) x, int64(M) at) -> (y) { y(i) = x(at(i)) else 0 }"
    types = [TensorType(float32, (as_size("V"),)), TensorType(int64, (as_size("C"),))]
    group = instantiate(parse_definition(text), types, {}, BOX)
    made = Prepared(group, TEMPLATES, BOX, Machine(64, 32))
    assert STATUS not in made.launch.kernel.operands
