"""anydim on aarch64, emulated: a part of the suite, and five models from compile to result.

    make aarch64                          # python -m tests.aarch64
    python -m tests.aarch64 --only models

Debian's Python for arm64 and the wheels for aarch64 are unpacked in out/aarch64 (`emulated.py`) and
run by qemu's user emulation; nothing is installed on this machine. Emulation shows whether code is
right. It says nothing of speed, of how cores see each other's writes, and of processors' errata.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import click

from tests.aarch64.emulated import Emulated, Missing

# What runs code made for the machine, or reads its features. Left out: tests that kill, fork or
# count memory, and long ones.
ROOMS: dict[str, list[str]] = {
    "sizes": [f"tests/unit/sizes/test_{name}.py" for name in ("box", "expression", "text")],
    "language": ["tests/unit/lang/test_evaluate.py", "tests/unit/lang/test_programs.py"],
    "targets": [
        f"tests/unit/compiler/targets/test_{name}.py"
        for name in ("bits", "elementary", "functions", "image", "processors", "programs", "while")
    ],
    "native": ["tests/unit/compiler/native"],
    "ranks": ["tests/unit/compiler/frontends/test_onnx_ranks_by_size.py"],
    "positions": ["tests/ops/test_resize_positions.py"],
}
PROGRAMS = ("operators", "models")  # of this folder, which print what they find
MINUTES = 15  # of wall time for a room on an idle machine; emulation may hang


@click.command()
@click.option("--only", help=f"One of {', '.join([*ROOMS, *PROGRAMS])}.")
@click.option("--fresh", is_flag=True, help="Fetch and unpack everything again.")
@click.option("--minutes", default=MINUTES, show_default=True, help="Time limit of each room.")
def main(only: str | None, fresh: bool, minutes: int) -> None:
    """Run the tests and print what passed, and how long it took."""
    try:
        emulated = Emulated.made(Path("out/aarch64"), fresh)
    except Missing as problem:
        click.echo(f"aarch64: {problem}", err=True)
        sys.exit(2)
    click.echo(emulated.run(["-c", _WHAT], 120).stdout.strip())
    failed = False
    for name, chosen in ROOMS.items():
        if only in (None, name):
            failed |= not _room(emulated, name, chosen, minutes)
    for name in PROGRAMS:
        if only in (None, name):
            click.echo(f"{name}:")
            failed |= not _program(emulated, name, minutes)
    sys.exit(failed)


_WHAT = """
import platform, numpy, llvmlite
print(platform.machine(), "python", platform.python_version(), "numpy", numpy.__version__,
      "llvmlite", llvmlite.__version__)
"""


def _program(emulated: Emulated, name: str, minutes: int) -> bool:
    try:
        done = emulated.run(["-m", f"tests.aarch64.{name}"], minutes * 60, shown=True)
    except subprocess.TimeoutExpired:
        click.echo(f"no end after {minutes} minutes")
        return False
    return done.returncode == 0


def _room(emulated: Emulated, name: str, chosen: list[str], minutes: int) -> bool:
    start = time.perf_counter()
    options = ["-m", "not slow", "-p", "no:cacheprovider", "--tb=short"]
    try:
        done = emulated.run(["-m", "pytest", *options, *chosen], minutes * 60)
    except subprocess.TimeoutExpired:
        click.echo(f"{name}: no end after {minutes} minutes")
        return False
    lines = done.stdout.strip().splitlines() or [done.stderr.strip()]
    last = next((line for line in reversed(lines) if re.search(r"\d+ (passed|failed)", line)), "")
    click.echo(f"{name}: {last or lines[-1]}, {time.perf_counter() - start:.0f} s in all")
    if done.returncode:
        click.echo(done.stdout[-6000:] + done.stderr[-2000:])
    return done.returncode == 0


if __name__ == "__main__":
    main()
