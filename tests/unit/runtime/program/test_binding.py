"""Promise: dims follow from shapes where they can, and a dim that nothing tells is an error."""

from __future__ import annotations

from itertools import pairwise

import numpy
import pytest

from anydim.base.errors import DimError, GraphError
from anydim.compiler.native.emit import emit
from anydim.runtime.program.binding import solve
from anydim.runtime.program.segment import Site
from anydim.sizes import Box, Dim, Size, parse
from tests.unit.runtime.program.tiny import executable, program, spec

N, M = Size.symbol("n"), Size.symbol("m")


def sizes_out(box, inputs, shape, guards=()):
    """A program that computes nothing; its output's shape shows the dims."""
    return executable(program(box, inputs, [spec("y", *shape)], [], guards=guards))


def zeros(*shape: int) -> numpy.ndarray:
    return numpy.zeros(shape, numpy.float32)


def test_a_plain_axis_is_preferred() -> None:
    box = Box.of(Dim("n", 0, 9))
    made = program(box, [spec("x", parse("2*n")), spec("z", "n")], [spec("y", "n")], [])
    (source,) = solve(made.signature, frozenset({"n"}))
    assert (source.input, source.axis, source.direct) == (1, 0, True)


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_a_linear_axis_is_solved(n: int) -> None:
    run = sizes_out(Box.of(Dim("n", 0, 9)), [spec("x", parse("3*n + 2"))], ["n"])
    assert run({"x": zeros(3 * n + 2)})["y"].shape == (n,)


@pytest.mark.parametrize("length", [0, 1, 3, 4, 30])
def test_no_whole_solution_is_refused(length: int) -> None:
    run = sizes_out(Box.of(Dim("n", 0, 9)), [spec("x", parse("3*n + 2"))], ["n"])
    with pytest.raises(DimError, match=r"input 'x' of tiny: .*(cannot be determined|below|above)"):
        run({"x": zeros(length)})


def test_a_product_is_solved_when_one_factor_is_known() -> None:
    run = sizes_out(Box.of(Dim("n", 0, 9), Dim("m", 0, 9)), [spec("x", N * M), spec("z", N)], ["m"])
    assert run({"x": zeros(12), "z": zeros(4)})["y"].shape == (3,)
    with pytest.raises(DimError, match=r"dim 'm' in m\*n cannot be determined"):
        run({"x": zeros(0), "z": zeros(0)})
    with pytest.raises(DimError, match=r"dim 'm' in m\*n cannot be determined"):
        run({"x": zeros(13), "z": zeros(4)})


def test_a_dim_that_no_input_tells_waits_for_its_size() -> None:
    made = program(Box.of(Dim("n"), Dim("m")), [spec("x", "n")], [spec("y", "m")], [])
    host = emit(made.straight)
    assert host.requested_dims == (("m", host.layout.first_dim + 1),)
    with pytest.raises(GraphError, match="no input determines the size of dim 'm'"):
        solve(made.signature, frozenset({"m"}))


def test_a_dim_that_nothing_needs_may_stay_unknown() -> None:
    run = sizes_out(Box.of(Dim("n"), Dim("unused", 3, 4)), [spec("x", "n")], ["n"])
    assert run({"x": zeros(5)})["y"].shape == (5,)


def test_long_programs_run_whole() -> None:
    """More launches than one native function holds."""
    n = Size.symbol("n")
    values = {f"t{number}": n for number in range(40)}
    names = ["x", *values, "y"]
    steps = [Site("add", (a, "x", b), (n,), n) for a, b in pairwise(names)]
    box = Box.of(Dim("n", 0, 100))
    run = executable(program(box, [spec("x", "n")], [spec("y", "n")], steps, arena=values))
    x = numpy.arange(17, dtype=numpy.float32)
    assert numpy.array_equal(run({"x": x})["y"], x * 42)
