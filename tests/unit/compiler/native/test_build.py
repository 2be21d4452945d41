"""Promise: a program of loop-IR kernels compiles, links with its libraries and runs."""

from __future__ import annotations

import numpy
import pytest

from anydim.base.dtypes import float32, uint8
from anydim.compiler.kernels.ir import (
    INDEX,
    Address,
    Call,
    Const,
    For,
    Function,
    Kernel,
    Library,
    Load,
    Op,
    Operand,
    Pointer,
    Scalar,
    Store,
    Type,
    Var,
)  # fmt: skip
from anydim.compiler.native.build import Assembled, build, module_texts
from anydim.compiler.targets.targets import target
from anydim.runtime.executable import Executable
from anydim.runtime.program.segment import Site
from anydim.sizes import Box, Dim, Size
from tests.unit.runtime.program.tiny import program, spec

F32 = Type(float32)
N, M = Size.symbol("n"), Size.symbol("m")


def index(name: str) -> Var:
    return Var(INDEX, name)


def arithmetic(function: str, *arguments: object) -> Op:
    return Op(INDEX, function, arguments)  # type: ignore[arg-type]


SCRATCH = Pointer("scratch", uint8)
SPAN = (Scalar("start"), Scalar("stop"))

# a row of doubled values, called from another object
DOUBLED = Function(
    "tiny.doubled",
    (Pointer("x", float32), Pointer("y", float32), Scalar("count")),
    (
        For("i", Const(INDEX, 0), index("count"), Const(INDEX, 1), (
            Store("y", index("i"), Op(F32, "add", (Load(F32, "x", index("i")),) * 2)),
        )),
    ),
    public=True,
)  # fmt: skip

# y(r, :) = 2 * x(r, :) for the rows of the part
DOUBLE_ROWS = Kernel(
    "double rows",
    (Operand("x", float32), Operand("y", float32, written=True)),
    ("width",),
    (
        Function(
            "main",
            (Pointer("x", float32), Pointer("y", float32), Scalar("width"), *SPAN, SCRATCH),
            (
                For("r", index("start"), index("stop"), Const(INDEX, 1), (
                    Call("tiny.doubled", (
                        Address("x", arithmetic("mul", index("r"), index("width"))),
                        Address("y", arithmetic("mul", index("r"), index("width"))),
                        index("width"),
                    )),
                )),
            ),
        ),
    ),
    libraries=(Library("tiny", (DOUBLED,)),),
)  # fmt: skip


def doubler(threads: int) -> Assembled:
    """y = 4 * x, twice the same kernel."""
    sites = [
        Site("double rows", ("x", "t"), (M,), N, source="once"),
        Site("double rows", ("t", "y"), (M,), N, source="twice"),
    ]
    made = program(
        Box.of(Dim("n", 0, 500), Dim("m", 0, 50)), [spec("x", "n", "m")], [spec("y", "n", "m")],
        sites, arena={"t": N * M}, threads=threads,
    )  # fmt: skip
    return Assembled(made, {"double rows": DOUBLE_ROWS}, {})


@pytest.fixture(scope="module", params=[1, 3], ids=["1-thread", "3-threads"])
def run(request: pytest.FixtureRequest) -> Executable:
    code = target("llvm")
    return build(doubler(request.param), code, code.compiling(code.processor, 1)).executable


@pytest.mark.parametrize("n", [0, 1, 2, 5, 499, 500])
@pytest.mark.parametrize("m", [0, 1, 7, 50])
def test_it_runs_at_every_size(run: Executable, n: int, m: int) -> None:
    x = numpy.random.default_rng(n).standard_normal((n, m)).astype(numpy.float32)
    assert numpy.array_equal(run({"x": x})["y"], 4 * x)


def test_modules_are_distinct() -> None:
    texts = module_texts(doubler(1), target("llvm"))
    assert list(texts) == ["tiny", "double rows", "host", "invoke", "threads"]
