"""Promise: a plan says what a call will do, and the memory formula bounds every plan."""

from __future__ import annotations

import numpy
import pytest

from anydim.base.errors import DimError, OptionError
from anydim.runtime.program.compile_report import CompileReport
from anydim.runtime.program.explain import explain
from anydim.runtime.program.memory import memory
from anydim.runtime.program.plan import plan
from anydim.runtime.program.segment import Site
from anydim.sizes import Box, Dim, Guard, Size, as_size
from tests.unit.runtime.program.tiny import adder, model_of, program, spec

BOX = Box.of(Dim("n", 0, 1000), Dim("m", 1, 8))
N, M = Size.symbol("n"), Size.symbol("m")


def test_bytes_of_everything() -> None:
    made = adder(BOX, "n", "m", threads=2)
    at = plan(made, {"n": 3, "m": 7})
    assert (at.value_bytes, at.arena_bytes, at.bytes) == (0, 128, 128)
    assert (at.input_bytes, at.output_bytes, at.constant_bytes) == (168, 84, 0)


def test_parts_are_those_of_the_native_cut() -> None:
    made = adder(BOX, "n", "m", threads=3, grain=4)
    parts = {n: plan(made, {"n": n, "m": 1}).launches[0].parts for n in (0, 1, 7, 8, 11, 12, 99)}
    assert parts == {0: 0, 1: 1, 7: 1, 8: 2, 11: 2, 12: 3, 99: 3}


def test_memory_bounds_every_plan() -> None:
    made = adder(BOX, "n", "m")
    formula = memory(made)
    for n in (0, 1, 999, 1000):
        for m in (1, 8):
            taken = plan(made, {"n": n, "m": m}).bytes
            assert taken == formula.at(n=n, m=m) <= (formula.bound or 0)
    assert formula.bound == 32_000
    assert "at most 32000 bytes (31.2 KiB)" in str(formula)


def test_memory_without_bound() -> None:
    formula = memory(adder(Box.of(Dim("n")), "n"))
    assert formula.bound is None and "without bound" in str(formula)


def test_a_plan_prints() -> None:
    step = Site(
        "add", ("x", "x", "y"), (N,), N, as_size(1), source="node 'first'", flops=1000 * N,
        moved=8 * N, schedule="pointwise(lanes=8)", reason="one element after the other",
    )  # fmt: skip
    made = program(Box.of(Dim("n", 0, 9)), [spec("x", "n")], [spec("y", "n")], [step])
    text = str(plan(made, {"n": 5}))
    assert text.splitlines()[0] == "tiny at n = 5"
    assert "1 launch, about 5 kflop" in text and "first" in text.splitlines()[-1]
    why = explain(made, ["softmax joined attention"], details=True)
    for part in ("pointwise(lanes=8)", "one element after the other", "node 'first'", "joined"):
        assert part in why


def test_guards_hold_for_plans_too() -> None:
    guards = (Guard(N, "!=", as_size(5), "five is not taken"),)
    made = program(Box.of(Dim("n", 0, 9)), [spec("x", "n")], [], [], guards=guards)
    assert plan(made, {"n": 4}).bytes == 0
    with pytest.raises(DimError, match=r"do not fit at n = 5[\s\S]*n != 5 does not hold"):
        plan(made, {"n": 5})


def test_a_model_shows_its_stages() -> None:
    made = adder(BOX, "n", "m")
    report = CompileReport(stages={"graph": lambda: "the graph"})
    model = model_of(made, report=report)
    assert model.show("graph") == "the graph"
    assert model.show("program").startswith("program tiny(a: float32[n, m], b: float32[n, m])")
    with pytest.raises(OptionError, match="there is no stage 'kernls'"):
        model.show("kernls")
    assert (model.name, model.dims) == ("tiny", BOX)
    assert [str(t) for t in (*model.inputs, *model.outputs)][-1] == "y: float32[n, m]"
    assert model(numpy.ones((2, 1), "f4"), numpy.ones((2, 1), "f4"))["y"].tolist() == [[3], [3]]
