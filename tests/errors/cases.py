"""A fault, what is promised of it, and the script that shows it in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Python silently truncates the bytecode that it writes beside sources under a limit of file sizes.
NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}

BEGIN = """
import os, resource, signal, sys, threading
import numpy as np
import anydim as ad
from anydim.base import dtypes

def graph(layers=1, name="g"):
    g = ad.Builder(name)
    x = g.input("x", dtypes.float32, (g.dim("n", 0, 1 << 40), 64))
    for number in range(layers):
        x = g.softmax(g.matmul(x, g.constant(np.eye(64, dtype=np.float32))) + float(number), axis=1)
    g.output("y", x)
    return g

def endless():
    g = ad.Builder("endless")
    m, x = g.input("m", dtypes.int64, ()), g.input("x", dtypes.float32, (g.dim("n"),))
    g.output("y", g.loop(lambda b, t, s: s + x, x, trips=g.find(m, "trips")))
    return g

def works(model, rows=3):
    y = model(x=np.ones((rows, 64), np.float32))["y"]
    assert y.shape == (rows, 64) and np.allclose(y.sum(axis=1), 1), y
"""


@dataclass(frozen=True)
class Case:
    """A fault, what is promised, and the script that shows it; it prints `outcome` at its end.

    `run` prepares the cache folder and runs the script; the usual one does nothing else.
    """

    name: str
    fault: str
    promise: str
    script: str
    run: Callable[[Case, Path], str] | None = None


def outcome(case: Case) -> str:
    """'as promised', or what came instead."""
    with tempfile.TemporaryDirectory(prefix="anydim-fault-") as folder:
        found = (case.run or plain)(case, Path(folder))
    return "as promised" if found == "ok" else found


def script(
    text: str, folder: Path, through: tuple[str, ...] = (), **more: str
) -> subprocess.Popen[str]:
    """A process that runs a script with a cache in the folder, `through` another command."""
    environment = {**os.environ, **NO_BYTECODE, "ANYDIM_CACHE_DIR": str(folder / "cache"), **more}
    code = BEGIN + textwrap.dedent(text)
    return subprocess.Popen(
        [*through, sys.executable, "-W", "ignore", "-c", code], cwd=folder, env=environment,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def ended(process: subprocess.Popen[str], seconds: float = 300) -> str:
    """'ok' when it printed that, else its code and last words."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"still running after {seconds:g} s"
    if process.returncode == 0 and out.strip().endswith("ok"):
        return "ok"
    return f"code {process.returncode}: {(out + err).strip()[-500:]}"


def plain(case: Case, folder: Path) -> str:
    return ended(script(case.script, folder))
