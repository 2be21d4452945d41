"""Random functions of torch beside eager torch: `python -m tests.torch.functions --count 200`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tests.fuzz.__main__ import _failures
from tests.torch.functions import runner


@click.command(help=__doc__)
@click.option("--count", default=200, show_default=True, help="How many functions.")
@click.option("--seed", default=0, show_default=True, help="The seed of the first function.")
@click.option("--shrink/--no-shrink", default=True, help="Make failing functions small.")
@click.option("--refused", is_flag=True, help="Print what runs in torch, and why; compare nothing.")
@click.option("--split", is_flag=True, help="Compile graphs in sections: refuse operators by lot.")
@click.option("--out", type=click.Path(path_type=Path), help="A file that failures go to as well.")
def main(count: int, seed: int, shrink: bool, refused: bool, split: bool, out: Path | None) -> None:
    """Compile random functions, call each at several sizes and compare with eager torch."""
    outcomes = runner.run(range(seed, seed + count), shrink, refused, split)
    sys.exit(bool(_failures(outcomes, count, out)))


if __name__ == "__main__":
    main()
