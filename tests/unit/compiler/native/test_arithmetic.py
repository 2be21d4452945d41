"""Promise: native size arithmetic has the values of `Size.evaluate`, and cannot trap or wrap."""

from __future__ import annotations

import ctypes

import pytest

from anydim.base.errors import DimError
from anydim.compiler.native.emit import emit
from anydim.runtime.layout import Layout
from anydim.runtime.program.program import Program
from anydim.runtime.program.segment import Site
from anydim.sizes import Box, Dim, Guard, Size, as_size, maximum, minimum, parse
from tests.unit.runtime.program.tiny import executable, program, spec

EXPRESSIONS = [
    "a*b + 3", "a - b", "(a + 1)//2", "(a - 5)//3", "(a - 5) % 3", "(3 - a)//b", "(3 - a) % b",
    "(a - 9)//(b - 4)", "(a - 9) % (b - 4)", "a**3 - 7*b", "min(a, b, 4)", "max(a - b, b - a)",
    "64*((4*a*b + 63)//64)", "(a*b) % 7 - a//4 + min(a*a, 9*b)", "(5 - 2*a)//(3 - b)", "17",
]  # fmt: skip


def slots_program(box: Box, sizes: list[Size]) -> Program:
    """A program whose one launch has these sizes, so that they are its slots."""
    step = Site("nothing", (), tuple(sizes), as_size(0))
    inputs = [spec(name, name) for name in box.names]
    return program(box, inputs, [], [step])


class Native:
    """Evaluates sizes with the native `bind` of a program."""

    def __init__(self, box: Box, sizes: list[Size]) -> None:
        self.program = slots_program(box, sizes)
        self.executable = executable(self.program)
        self.slots = self.program.straight.slots
        self.layout = Layout.of(self.program.signature, self.program.straight.words)

    def __call__(self, *values: int) -> tuple[str, dict[Size, int]]:
        block = (ctypes.c_int64 * self.layout.words)()
        first = self.layout.input_shapes
        block[first : first + len(values)] = values
        code = self.executable._bind(ctypes.addressof(block))
        slots = block[self.layout.first_slot :]
        kind = self.executable.interface.failures[code - 1].check.kind if code else ""
        return kind, dict(zip(self.slots, slots))


@pytest.mark.parametrize("high", [20, None], ids=["bounded", "unbounded"])
def test_values_are_those_of_evaluate(high: int | None) -> None:
    box = Box.of(Dim("a", 0, high), Dim("b", 0, high))
    sizes = [parse(text) for text in EXPRESSIONS]
    native = Native(box, sizes)
    for a in range(21):
        for b in range(21):
            env = {"a": a, "b": b}
            try:
                wanted = {s: s.evaluate(env) for s in sizes if s.constant is None}
            except DimError:
                assert native(a, b)[0] == "large"
                continue
            kind, came = native(a, b)
            assert kind == ""
            assert {size: came[size] for size in wanted} == wanted


def test_a_value_outside_64_bits_is_refused() -> None:
    a, b = Size.symbol("a"), Size.symbol("b")
    native = Native(Box.of(Dim("a"), Dim("b")), [a * b + 1, minimum(a, b), maximum(a, b)])
    assert native(2**31, 2**31)[0] == ""
    assert native(2**32, 2**31)[0] == "large"
    assert native(2**62, 2**62)[0] == "large"
    assert native(2**63 - 1, 1)[0] == "large"
    assert native(2**63 - 1, 0)[0] == ""


def test_a_size_outside_the_box_cannot_trap() -> None:
    """The divisor is positive in the box only; bounds are checked before anything divides."""
    native = Native(Box.of(Dim("a", 1, 9), Dim("b", 0, 9)), [parse("b//a"), parse("b % a")])
    assert native(0, 5)[0] == "low"
    assert native(2, 10)[0] == "high"
    assert native(3, 7)[1] == {parse("b//a"): 2, parse("b % a"): 1}


def test_what_the_box_does_not_prove_is_checked() -> None:
    a, b = Size.symbol("a"), Size.symbol("b")
    box = Box.of(Dim("a", 0, 9), Dim("b", 0, 9), constraints=(a - b,))
    guards = (Guard(a, "!=", as_size(5), "five"), Guard(a, "<=", as_size(9), "proved"))
    inputs = [spec("x", "a"), spec("y", "b")]
    host = emit(program(box, inputs, [], [], guards=guards).straight)
    kinds = [check.kind for check in host.checks]
    assert kinds == ["high", "high", "constraint", "guard", "large"]
