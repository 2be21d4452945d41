"""Engines in processes of their own, and this process on cores of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def pinned(threads: int) -> None:
    """Keep this process, and those it starts, on `threads` cores where the system can."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, set(cores[:threads]))


def cold_runs(names: list[str], threads: int, sentences: int) -> dict[str, dict[str, Any]]:
    """`bench.cold` for each engine, one process after the other."""
    runs = {}
    for name in names:
        command = [sys.executable, "-m", "bench.cold", name, "--threads", str(threads)]
        command += ["--sentences", str(sentences)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{name} failed in its own process:\n{done.stderr[-2000:]}")
        runs[name] = json.loads(done.stdout.splitlines()[-1])
    return runs
