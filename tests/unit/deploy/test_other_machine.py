"""Promise: code for other machines and systems gives what this machine gives, at every size.

Code for macOS is made with its conventions, which are Linux's where these programs call something,
and runs under qemu; nothing here runs macOS itself.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import anydim as ad
from anydim.runtime.systems import this_architecture
from tests.unit.deploy.kinds import KINDS
from tests.unit.deploy.other_machine import OtherMachine, can_run

LEVEL_HERE = "x86-64-v2" if this_architecture() == "x86_64" else "aarch64"
STRAIGHT = ["encoder", "halves", "wide"]
LEVELS = [
    "aarch64", "aarch64+dotprod", "x86-64-v2", "macos-aarch64", "macos-x86-64-v2",
    "riscv64", "windows-x86-64-v2", "windows-x86-64-v3",
]  # fmt: skip


def saved(name: str, here: str, other: str, folder: Path) -> ad.LoadedModel:
    """A model of a kind for a level of this machine, and in a file beside it for another one."""
    model = ad.compile(KINDS[name].build())
    for file, level in (("here", here), ("saved", other)):
        model.save(folder / file, level)
    return ad.load(folder / "here")


def check_sizes(name: str, level: str, here: ad.LoadedModel, folder: Path, unit: float) -> None:
    other, random = OtherMachine(folder / "saved", level), np.random.default_rng(1)
    for size in (0, 1, 3, 4, 5, 17, 100):
        inputs = KINDS[name].draw(random, size)
        expected = here(**inputs)
        shapes = {key: array.shape for key, array in expected.items()}
        bound, ran, got = other(inputs, shapes, 1 << 18)
        assert (bound, ran) == (0, 0)
        for key, array in expected.items():
            np.testing.assert_allclose(got[key], array, unit, unit)


@pytest.mark.sampled("halves-riscv64", "halves-windows-x86-64-v2")  # conversions differ
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", STRAIGHT)
def test_results_at_every_size(name: str, level: str, tmp_path: Path) -> None:
    if not can_run(level):
        pytest.skip(f"no emulator of {level} (Debian: qemu-user; wine64 and mingw-w64)")
    here = saved(name, LEVEL_HERE, level, tmp_path)
    check_sizes(name, level, here, tmp_path, 2e-3 if name == "halves" else 1e-5)


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("name", STRAIGHT)
def test_windows_has_the_bits_of_linux(name: str, level: str, tmp_path: Path) -> None:
    if not can_run("windows-x86-64-v2"):
        pytest.skip("no MinGW or no Wine")
    here = saved(name, level, f"windows-{level}", tmp_path)
    check_sizes(name, f"windows-{level}", here, tmp_path, 0.0)


@pytest.mark.parametrize("level", ["aarch64", "windows-x86-64-v3"])
def test_failures(level: str, tmp_path: Path) -> None:
    if not can_run(level):
        pytest.skip(f"no emulator of {level}")
    model = ad.compile(KINDS["encoder"].build())
    model.save(tmp_path / "saved", level)
    other = OtherMachine(tmp_path / "saved", level)
    failures, bound = other.saved.interface.failures, other.saved.interface.bound
    code, _, _ = other({"ids": np.zeros(101, np.int64)}, {"y": (101, 33)}, 1 << 16)
    assert failures[code - 1].check is not None and failures[code - 1].check.kind == "high"
    code, ran, _ = other({"ids": np.array([1, 31])}, {"y": (2, 33)}, 1 << 16)
    assert code == 0
    assert failures[bound + ran - 1].position is not None
