"""Promise: code for aarch64 gives what this machine gives, at every size, and the same failures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import anydim as ad
from tests.unit.deploy.kinds import KINDS
from tests.unit.deploy.other_machine import QEMU, OtherMachine

pytestmark = pytest.mark.skipif(QEMU is None, reason="no qemu-aarch64 (Debian: qemu-user)")


@pytest.mark.parametrize("level", ["aarch64", "aarch64+dotprod"])
@pytest.mark.parametrize("name", ["encoder", "halves"])
def test_results_at_every_size(name: str, level: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    model = ad.compile(kind.build())
    model.save(tmp_path / "saved", level)
    other = OtherMachine(tmp_path / "saved", level)
    random = np.random.default_rng(1)
    for size in (0, 1, 3, 4, 5, 17, 100):
        inputs = kind.draw(random, size)
        expected = model(**inputs)
        shapes = {key: array.shape for key, array in expected.items()}
        bound, ran, got = other(inputs, shapes, 1 << 16)
        assert (bound, ran) == (0, 0)
        tolerance = 2e-3 if name == "halves" else 2e-6
        for key, array in expected.items():
            np.testing.assert_allclose(got[key], array, tolerance, tolerance)


def test_failures(tmp_path: Path) -> None:
    model = ad.compile(KINDS["encoder"].build())
    model.save(tmp_path / "saved", "aarch64")
    other = OtherMachine(tmp_path / "saved")
    failures, bound = other.saved.interface.failures, other.saved.interface.bound
    code, _, _ = other({"ids": np.zeros(101, np.int64)}, {"y": (101, 33)}, 1 << 16)
    assert failures[code - 1].check is not None and failures[code - 1].check.kind == "high"
    code, ran, _ = other({"ids": np.array([1, 31])}, {"y": (2, 33)}, 1 << 16)
    assert code == 0
    assert failures[bound + ran - 1].position is not None
