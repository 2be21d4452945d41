"""Random graphs against their meaning: `python -m tests.fuzz --count 500 --seed 0`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from tests.fuzz import onnx_peers, runner


@click.command()
@click.option("--count", default=500, show_default=True, help="How many graphs.")
@click.option("--seed", default=0, show_default=True, help="The seed of the first graph.")
@click.option("--shrink/--no-shrink", default=True, help="Make failing graphs small.")
@click.option("--onnx", is_flag=True, help="ONNX models, which other engines run as well.")
@click.option("--out", type=click.Path(path_type=Path), help="A file that failures go to as well.")
def main(count: int, seed: int, shrink: bool, onnx: bool, out: Path | None) -> None:
    """Compile random graphs, call each at several sizes and compare with what they mean."""
    run = onnx_peers.run if onnx else runner.run
    failures, start = 0, time.perf_counter()
    for number, outcome in enumerate(run(range(seed, seed + count), shrink), start=1):
        if outcome.failure:
            failures += 1
            report = f"\n=== seed {outcome.seed}: {outcome.failure}\n{outcome.text}\n"
            click.echo(report)
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.write(report)
        pace = number / (time.perf_counter() - start)
        line = f"\r{number} of {count} graphs, {failures} failed, {pace:.1f} a second"
        click.echo(line, nl=number == count, err=True)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
