"""The command `sizes`: what recorded sizes say."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import click

from anydim.base.errors import OptionError
from anydim.program.recording import Recorded, read_recorded
from anydim.report.text import duration

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
