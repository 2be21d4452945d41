"""Promise: where a process has no more memory than a model says, every size of its box runs; where
it has less, that is an error and the next call works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import anydim as ad

WIDTH = 256
PROCESS = Path(__file__).with_name("limited_process.py")


def straight() -> ad.Builder:
    """Two products with something between: 6000 rows take 6 MB each time."""
    g = ad.Builder("straight")
    x = g.input("x", ad.float32, (g.dim("n", 0, 6_000), WIDTH))
    weights = np.full((WIDTH, WIDTH), 1 / WIDTH, np.float32)
    row = g.softmax(g.matmul(x, g.constant(weights)), axis=1)
    g.output("y", g.add(x, g.softmax(g.matmul(row, g.constant(weights)), axis=1)))
    return g


def looping() -> ad.Builder:
    """A state of 6 MB that a loop makes anew three times."""
    g = ad.Builder("looping")
    x = g.input("x", ad.float32, (g.dim("n", 0, 6_000), WIDTH))
    weights = np.full((WIDTH, WIDTH), 1 / WIDTH, np.float32)

    def body(b: ad.Builder, t: object, state: object) -> object:
        return b.softmax(b.matmul(state, b.constant(weights)), axis=1)

    g.output("y", g.loop(body, x, trips=3))
    return g


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are Linux's")
def test_calls_in_a_process_that_has_just_what_they_need(tmp_path: Path) -> None:
    made = (straight, looping)
    files = [tmp_path / f"{write.__name__}.anydim" for write in made]
    for write, file in zip(made, files):
        ad.compile(write()).save(file)
    done = subprocess.run(
        [sys.executable, str(PROCESS), *map(str, files)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    for write, line in zip(made, done.stdout.splitlines(), strict=True):
        found = json.loads(line)
        assert found["well"] == found["calls"], found
        assert found["error"].startswith(write.__name__), found
        assert "not enough memory at n = 6000" in found["error"]
        assert found["bytes"] and found["after"], found
