"""Promise: WebAssembly loads parts of vectors without branches, and stores whole ones at once."""

from __future__ import annotations

import pytest

from anydim.base.dtypes import boolean, float32, int8
from anydim.compiler.kernels import ir
from anydim.compiler.kernels.codegen.arithmetic import first_lanes
from anydim.compiler.kernels.ir import constant
from anydim.compiler.targets.llvm.render import render
from anydim.compiler.targets.processor import describe_processor


def text(processor: str, kind: ir.Type, *body: ir.Step) -> str:
    """A function that has `mask`, of the first lanes of a vector."""
    count = ir.Load(ir.INDEX, "n", constant(0))
    made = ir.Function(
        "f", (ir.Pointer("x", kind.dtype), ir.Pointer("n", ir.INDEX.dtype)),
        (ir.Let("count", count), ir.Let("mask", first_lanes(ir.Var(ir.INDEX, "count"), kind.lanes)),
         *body),
    )  # fmt: skip
    return render(
        ir.Library("lib", lambda: (made,), "of a test", True), describe_processor(processor)
    )


def copied(kind: ir.Type, at: int, to: int) -> ir.Store:
    mask = ir.Var(ir.Type(boolean, kind.lanes), "mask")
    return ir.Store("x", constant(to), ir.Load(kind, "x", constant(at), mask), mask)


@pytest.mark.parametrize(
    "kind", [ir.Type(float32, 4), ir.Type(int8, 16), ir.Type(float32, 8)], ids=str
)
def test_lanes_of_a_whole_vector(kind: ir.Type) -> None:
    made = text("wasm32", kind, copied(kind, 4, 100))
    assert "masked.load" not in made and "wasm.anytrue" in made
    assert "wasm.alltrue" in made and made.count("masked.store") == 2  # a call, its declaration
    other = text("x86-64-v3", kind, copied(kind, 4, 100))
    assert "masked.load" in other and "wasm" not in other


def test_without_a_lane_the_beginning_of_memory_is_read() -> None:
    """An address is cleared before small offsets, which engines add, and behind others."""
    kind = ir.Type(float32, 4)
    near = text("wasm32", kind, copied(kind, 4, 0))
    assert near.index("inttoptr i32") < near.index("getelementptr nuw float")
    far = text("wasm32", kind, copied(kind, -4, 0))
    assert far.index("getelementptr float") < far.index("inttoptr i32")
