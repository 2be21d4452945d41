"""Packages that are written against onnxruntime, on it and on anydim.ort: results and seconds.

    python -m bench.packages [ocr voice file_types] [--rounds 5]

Needs the packages: rapidocr-onnxruntime, silero-vad, magika. Each runs in a process of its own,
the least seconds of all rounds count, as threads that spin disturb each other. anydim runs twice:
the first finds an empty cache, the second what the first has compiled.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

import click

from anydim.base.text import table

PROGRAMS = ("ocr", "voice", "file_types")


def ran(program: str, rounds: int, on_anydim: bool, cache: str = "") -> dict[str, Any]:
    """The answer of a program, its InferenceSession onnxruntime's or anydim's.

    `cache` is the folder of compiled code, the user's own without one.
    """
    words = [sys.executable, *(("-m", "anydim.ort") if on_anydim else ())]
    words += ["-m", f"bench.packages.{program}", str(rounds)]
    given = {**os.environ, "ANYDIM_CACHE_DIR": cache} if cache else None
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=given)
    if done.returncode:
        raise RuntimeError(f"{program}: {done.stderr.strip()[-2000:]}")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def difference(left: Any, right: Any) -> float:
    """The largest difference of numbers; infinite where anything else differs."""
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return max((difference(*pair) for pair in zip(left, right)), default=0.0)
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        return max((difference(left[key], right[key]) for key in left), default=0.0)
    if isinstance(left, float) and isinstance(right, float):
        return abs(left - right)
    return 0.0 if left == right else float("inf")


@click.command()
@click.argument("programs", nargs=-1)
@click.option("--rounds", default=5, show_default=True)
def main(programs: tuple[str, ...], rounds: int) -> None:
    """Run the programs on both, and print a table."""
    rows = []
    for program in programs or PROGRAMS:
        with tempfile.TemporaryDirectory() as cache:
            ours = ran(program, 1, True, cache)
            again = ran(program, rounds, True, cache)
        theirs = ran(program, rounds, False)
        own, other = min(again["later"]), min(theirs["later"])
        rows.append((
            program, f"{difference(ours['results'], theirs['results']):.1e}",
            *(f"{each['made']:.2f}" for each in (ours, again, theirs)),
            f"{own:.3f}", f"{other:.3f}", f"{own / other:.2f}",
        ))  # fmt: skip
    headers = (
        "package",
        "difference",
        "made, s",
        "again, s",
        "theirs, s",
        "use, s",
        "theirs, s",
        "ratio",
    )
    print(table(headers, rows))


if __name__ == "__main__":
    main()
