"""The commands `sizes` and `tune`: what recorded sizes say, and code that is made for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import click

from anydim.base.errors import OptionError
from anydim.cli.opening import compiled
from anydim.cli.options import Asked, model_options
from anydim.program.recording import Recorded, read_recorded
from anydim.report.console import Console
from anydim.report.text import duration
from anydim.variants.fitted import TUNED

WIDTH = 30  # characters of a bar


@click.command(short_help="What sizes a model was called with, from files of model.record.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", metavar="FILE", help="Write all of them as one file, added up.")
@click.option("--top", default=20, show_default=True, help="How many sizes to show.")
def sizes(files: Sequence[str], output: str | None, top: int) -> None:
    """Show what sizes came, the costliest ones first, and where a second call took longer.

    \b
    Examples:
      anydim sizes sizes.jsonl
      anydim sizes monday.jsonl tuesday.jsonl -o both.jsonl
    """
    rows = read_recorded(files)
    if not rows:
        raise OptionError(f"{files[0]} has no sizes", "model.record(path) writes them")
    if output is not None:
        _write(output, rows)
    seconds, calls = sum(row.seconds for row in rows), sum(row.count for row in rows)
    click.echo(f"{len(rows)} sizes, {calls} calls, {duration(seconds)}")
    most = rows[0].seconds or 1.0
    for row in rows[: max(0, top)]:
        given = ", ".join(f"{name}={size}" for name, size in row.dims.items()) or "no dims"
        bar = "#" * ceil(WIDTH * row.seconds / most)
        mean = duration(row.seconds / row.count)
        click.echo(
            f"{bar:{WIDTH}} {100 * row.seconds / (seconds or 1):5.1f} %  {row.count:7} calls of "
            f"{mean:>8}, {duration(row.least):>8} at best  {row.model} {given}"
        )
    if len(rows) > top:
        click.echo(f"and {len(rows) - top} more: --top {len(rows)}")


def _write(path: str, rows: Sequence[Recorded]) -> None:
    try:
        with open(path, "w") as file:
            file.writelines(f"{row.line()}\n" for row in rows)
    except OSError as error:
        raise OptionError(f"{path} cannot be written: {error.strerror}") from None


@click.command(short_help="Search for faster code at recorded sizes, for every later process.")
@model_options
@click.option("--sizes", "recorded", required=True, metavar="FILE", help="What model.record wrote.")
@click.option(
    "--minutes", type=click.FloatRange(0), default=5.0, show_default=True,
    help="How long to search.",
)  # fmt: skip
def tune(asked: Asked, recorded: str, minutes: float) -> None:
    """Search schedules for the sizes that MODEL was called with, the costliest launches first.

    What is found is kept beside the cache of compiled code. Models with --strategy adaptive, and
    `model.prepare_recorded`, take it from there without measuring.

    \b
    Examples:
      anydim tune encoder.onnx --sizes sizes.jsonl --minutes 5
      anydim run encoder.onnx --strategy adaptive --input ids.npz
    """
    console = Console(asked.quiet)
    given = asked if asked.strategy else replace(asked, strategy=str(TUNED))
    model = compiled(console, given)
    with console.task(f"tuning {model.name}") as advance:
        found = model.tune(
            recorded, 60 * minutes,
            lambda done, launches, share: advance(done, launches, f"{100 * share:.1f} % saved"),
        )  # fmt: skip
    click.echo(str(found))
    for variant in model.variants():
        click.echo(f"  {variant}")
