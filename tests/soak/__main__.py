"""An hour of calls, compiles and releases in one process: `make soak`, or

    python -m tests.soak --minutes 60 --out out/soak

writes the samples (`samples.csv`) and their picture (`soak.svg`), and fails where something grows.
Python's objects come from malloc (`PYTHONMALLOC`): its own allocator gives memory back by the MiB,
and a MiB stays while one small object lives in it, which says nothing of who holds what.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from anydim.base import settings
from tests.soak.picture import svg
from tests.soak.samples import Sample, table, verdicts
from tests.soak.work import Soak


def soaked(
    soak: Soak, seconds: float, told: Callable[[Sample], None], least: int = 1
) -> list[Sample]:
    """Work for so long, and for `least` rounds, with a sample after every round."""
    start = time.monotonic()
    samples: list[Sample] = []
    soak.begin()
    while soak.rounds < least or samples[-1].seconds < seconds:
        soak.round()
        soak.trim()
        spent = time.monotonic() - start
        samples.append(Sample.now(spent, soak.rounds, soak.calls, soak.compiles))
        told(samples[-1])
    return samples


@click.command(help=__doc__)
@click.option("--minutes", default=60.0, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/soak"), show_default=True)
def main(minutes: float, out: Path) -> None:
    if os.environ.get("PYTHONMALLOC") != "malloc":
        arguments = [sys.executable, "-m", "tests.soak", *sys.argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, "PYTHONMALLOC": "malloc"})
    out.mkdir(parents=True, exist_ok=True)

    def told(sample: Sample) -> None:
        line = (
            f"\r{sample.seconds / 60:.1f} of {minutes:g} minutes, {sample.calls} calls, "
            f"{sample.compiles} compiles, {sample.anonymous / 2**20:.1f} MiB"
        )
        click.echo(line, nl=False, err=True)
        with (out / "samples.csv").open("a", encoding="utf-8") as file:
            file.write(table([sample]).split("\n", 1)[1])

    with tempfile.TemporaryDirectory() as folder, settings.override(cache_dir=folder):
        (out / "samples.csv").write_text(table([]), "utf-8")
        samples = soaked(Soak(Path(folder)), minutes * 60, told)
    last = samples[-1]
    title = f"{last.calls:,} calls, {last.compiles:,} compiles in {last.seconds / 60:.0f} minutes"
    (out / "soak.svg").write_text(svg(samples, title), "utf-8")
    found = verdicts(samples)
    click.echo("\n" + "\n".join([title, *map(str, found)]))
    sys.exit(not all(verdict.flat for verdict in found))


if __name__ == "__main__":
    main()
