"""Every test here runs for each target."""

from typing import NoReturn

import pytest

from anydim.compiler import pipeline as compiler
from anydim.compiler.kernels.matmul import work_partition
from tests.kernel_targets import kernel_target as kernel_target
from tests.tile_emulator import tiles_if_possible as tiles_if_possible


@pytest.fixture(autouse=True)
def _each_target(kernel_target: str) -> None:
    """Kernels are compiled by the target that the settings name."""


@pytest.fixture(autouse=True)
def _programs_have_a_host(kernel_target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of whole programs have host code, which OpenCL has not."""

    def build(*given: object) -> NoReturn:
        pytest.skip("no host code of OpenCL")

    if kernel_target == "opencl":
        monkeypatch.setattr(compiler, "build", build)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are small here: were a step no less work, threads would have nothing to share."""
    monkeypatch.setattr(work_partition, "STEP", 50)


@pytest.fixture(autouse=True)
def _machines_with_tiles(request: pytest.FixtureRequest) -> None:
    """Code for a machine with tiles runs, by emulation."""
    known = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    machine = known.get("machine")
    if machine is not None and (machine.tiles or machine.pair_tiles):
        request.getfixturevalue("tiles_if_possible")
