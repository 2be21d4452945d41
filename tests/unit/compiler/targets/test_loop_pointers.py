"""Promise: loops of WebAssembly address memory by pointers that move, and assignments keep their
place; other processors keep indices."""

from __future__ import annotations

import re

import pytest

from anydim.base.dtypes import float32
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.ir import constant, register
from anydim.compiler.targets.llvm.render import render
from anydim.compiler.targets.processor import describe_processor

VECTOR = ir.Type(float32, 4)


def text(processor: str, *body: ir.Step, step: int = 1) -> str:
    """A function with a loop of `n` steps around `body`, and a register `at`."""
    count = ir.Load(ir.INDEX, "n", constant(0))
    made = ir.Function(
        "f", (ir.Pointer("x", float32), ir.Pointer("n", ir.INDEX.dtype)),
        (
            ir.Let("count", count),
            ir.Declare("at", constant(8)),
            ir.Declare("sum", ir.splat(ir.number(float32, 0), 4)),
            ir.For("i", constant(0), ir.Var(ir.INDEX, "count"), constant(step), body),
            ir.Store("x", constant(0), ir.Get(VECTOR, "sum")),
        ),
    )  # fmt: skip
    library = ir.Library("lib", lambda: (made,), "of a test", True)
    return render(library, describe_processor(processor))


def added(offset: ir.Value) -> ir.Assign:
    return ir.Assign("sum", ir.Get(VECTOR, "sum") + ir.Load(VECTOR, "x", offset))


@pytest.mark.parametrize("step", [1, 4])
def test_a_counter_moves_a_pointer(step: int) -> None:
    made = text("wasm32", added(ir.Var(ir.INDEX, "i")), step=step)
    assert f"getelementptr float, ptr {_pointer(made)}, i64 {step}" in made
    assert "phi ptr" not in text("x86-64-v3", added(ir.Var(ir.INDEX, "i")), step=step)


def test_a_register_moves_a_pointer_from_its_first_value() -> None:
    at = register("at")
    made = text("wasm32", added(at), ir.Assign("at", at + 12))
    assert "getelementptr float, ptr %a0, i64 8" in made
    assert f"getelementptr float, ptr {_pointer(made)}, i64 12" in made


def test_a_register_that_is_replaced_moves_a_pointer_from_its_base() -> None:
    made = text(
        "wasm32", added(register("at")), ir.Assign("at", ir.Load(ir.INDEX, "n", constant(0)))
    )
    assert re.search(r"phi ptr .*%t\d+, %b\d+ \]", made)


def test_few_pointers_of_a_loop() -> None:
    count = ir.Var(ir.INDEX, "count")
    body = (added(ir.Var(ir.INDEX, "i") + count * factor) for factor in range(2, 20))
    assert text("wasm32", *body).count("phi ptr") == 8


def test_assignments_in_loops_keep_their_place() -> None:
    made = text("wasm32", added(ir.Var(ir.INDEX, "i")))
    assert made.count('asm sideeffect "", "=r,0"') == 1
    assert "asm" not in text("x86-64-v3", added(ir.Var(ir.INDEX, "i")))


def _pointer(text: str) -> str:
    (found,) = re.findall(r"(%t\d+) = phi ptr", text)
    assert isinstance(found, str)
    return found
