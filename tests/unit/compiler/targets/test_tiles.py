"""Promise: tiles hold what is put into them, and multiply bytes exactly; elsewhere they are not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy
import pytest

from anydim.base import settings
from anydim.base.dtypes import int32
from anydim.base.errors import InternalError
from anydim.compiler.kernels import ir
from anydim.compiler.targets.c.compilers import writes_tiles
from anydim.compiler.targets.evaluated.evaluator import run
from anydim.compiler.targets.llvm.host import _describe_host, this_machine
from anydim.compiler.targets.run import launch
from anydim.compiler.targets.targets import target
from anydim.runtime import cpu
from tests.kernel_targets import HOST_TARGETS
from tests.unit.compiler.targets.programs import kernel

ZERO = ir.Const(ir.INDEX, 0)
ROW = ir.Const(ir.INDEX, 18)  # int32s from one row to the next


def program(unsigned: bool, *before: ir.Step, twice: int = 2) -> ir.Kernel:
    """y = twice * left . right, as tiles."""
    operands = [ir.Operand(name, int32, name == "y") for name in "aby"]
    dots = [ir.TileDots(3, 0, 7, unsigned)] * twice
    steps = [
        *before, ir.TileZero(3), ir.TileMemory(0, "a", ZERO, ROW), ir.TileMemory(7, "b", ZERO, ROW),
        *dots, ir.TileMemory(3, "y", ZERO, ROW, store=True), ir.Tiles(False),
    ]  # fmt: skip
    return kernel(operands, steps, name=f"tiles_{unsigned}")


def arrays() -> list[numpy.ndarray]:
    bytes_ = numpy.random.default_rng(3).integers(0, 256, (2, 16, 72)).astype(numpy.uint8)
    bytes_[0, 0], bytes_[1, 0] = 255, 128  # the extremes
    return [*bytes_.view(numpy.int32), numpy.full((16, 18), 5, numpy.int32)]


@pytest.mark.parametrize("unsigned", [True, False])
@pytest.mark.parametrize("by", ["evaluator", *HOST_TARGETS])
def test_products(unsigned: bool, by: str, request: pytest.FixtureRequest) -> None:
    a, b, y = arrays()
    made = program(unsigned, ir.Tiles(True))
    if by == "evaluator":
        run(made, [a, b, y], [], 0, 1)
    else:
        emulator = request.getfixturevalue("tiles")
        with settings.override(target=by):
            launch(made, [a, b, y], [], 0, 1)
        assert emulator.in_use == 0
    kinds = (numpy.uint8, numpy.int8) if unsigned else (numpy.int8, numpy.uint8)
    left = numpy.ascontiguousarray(a[:, :16]).view(kinds[0]).astype(numpy.int64)
    words = numpy.ascontiguousarray(b[:, :16]).view(kinds[1]).reshape(16, 16, 4)
    right = words.transpose(0, 2, 1).reshape(64, 16).astype(numpy.int64)
    numpy.testing.assert_array_equal(y[:, :16], 2 * (left @ right))
    numpy.testing.assert_array_equal(y[:, 16:], 5)


@pytest.mark.parametrize("before, expected", [
    ((), "no tile"),
    ((ir.Tiles(True), ir.Tiles(True)), "configured twice"),
    ((ir.Tiles(True), ir.TileDots(0, 1, 2, True)), "before its assignment"),
    ((ir.Tiles(True), ir.TileZero(8)), "no tile 8"),
    ((ir.Tiles(True), ir.TileMemory(0, "a", ZERO, ir.Const(ir.INDEX, 19))), "is outside 'a'"),
    ((ir.Tiles(True), ir.TileZero(0), ir.TileMemory(0, "a", ZERO, ROW, True)), "read-only"),
])  # fmt: skip
def test_the_evaluator_refuses(before: tuple[ir.Step, ...], expected: str) -> None:
    a, b, y = arrays()
    flat = [numpy.ascontiguousarray(part.reshape(-1)[:286]) for part in (a, b)]
    with pytest.raises(InternalError, match=expected):
        run(program(True, *before), [*flat, y], [], 0, 1)


@pytest.fixture
def asked_again() -> Iterator[None]:
    """What is known of this machine is found out anew, in the test and after it."""
    known = (cpu.tiles_allowed, cpu.this_level, _describe_host)
    for each in known:
        each.cache_clear()
    yield
    for each in known:
        each.cache_clear()


@pytest.mark.usefixtures("asked_again")
def test_a_system_that_does_not_allow_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "tiles_allowed", lambda: False)
    monkeypatch.setattr("anydim.compiler.targets.llvm.host.tiles_allowed", lambda: False)
    assert not any(flag.startswith("amx") for flag in cpu.this_level().flags)
    assert not any(feature.startswith("amx") for feature in this_machine().has)
    assert not this_machine().machine.tiles


@pytest.mark.usefixtures("tiles")
def test_an_old_compiler_of_c_has_none(tmp_path: Path) -> None:
    """It knows no flags of tiles; without any compiler, files are for others."""
    old = tmp_path / "cc"
    old.write_text(
        "#!/bin/sh\ncase $* in *--version*) echo old;; *-mamx*) exit 1;; esac\n", "utf-8"
    )
    old.chmod(0o755)
    with settings.override(c_compiler=str(old)):
        assert not target("c").machine.tiles
    with settings.override(c_compiler="missing-cc"):
        assert target("c").machine.tiles


@pytest.mark.usefixtures("tiles")
def test_other_targets_do_without() -> None:
    assert target("llvm").machine.tiles and not target("opencl").machine.tiles
    assert target("c").machine.tiles == target("c").machine.pair_tiles == writes_tiles()
    assert not target("c").machine.pairs
    assert not replace(this_machine(), vector_bytes=32).machine.tiles
