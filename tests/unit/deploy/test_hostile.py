"""Promise: a bad file is an error or the model that was saved, never a crash or another model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import anydim as ad
from tests.unit.deploy.kinds import KINDS

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "seed, count", [(0, 450), pytest.param(450, 20_000, marks=pytest.mark.slow)]
)
def test_damage_and_lies(seed: int, count: int, tmp_path: Path) -> None:
    for name, kind in KINDS.items():
        ad.compile(kind.build()).save(tmp_path / f"{name}.anydim", ["aarch64", "native"])
    command = [sys.executable, "-m", "tests.unit.deploy.hostile", str(tmp_path)]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [*command, str(seed), str(count)], cwd=ROOT, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "refused" in done.stdout
    assert "equal" in done.stdout  # bytes between the members, and the directory of the archive
