"""The commands `sizes` and `merge`: what recorded sizes say.

`anydim profile sizes.jsonl` and `anydim profile merge` lead here, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from anydim.base.errors import OptionError
from anydim.base.files import replace_file
from anydim.base.text import count_of, table
from anydim.cli.opening import compile_model
from anydim.cli.options import DIM, NamedDim, Request
from anydim.cli.report.bars import bar, bins
from anydim.cli.report.console import Console
from anydim.cli.report.text import duration
from anydim.runtime.program.recording import Recorded, read_recorded
from anydim.runtime.program.site_recording import RecordedSite, read_sites

BINS = 16  # of a dim
_NARROW = 20  # columns of a bar that words stand behind


@click.command
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", metavar="FILE", help="Write the sum of all files to this file.")
@click.option("--top", default=20, show_default=True, help="Number of sizes to show.")
@click.option(
    "--model",
    "source",
    metavar="MODEL",
    help="Also show how much time MODEL would save at these sizes with the results of tuning.",
)
@click.option(
    "--dim", "dims", type=DIM, multiple=True, help="Bounds of a dim of MODEL: seq=1..512."
)
@click.option("--threads", type=int, metavar="N", help="Number of cores for a call of MODEL.")
def sizes(
    files: Sequence[str], output: str | None, top: int, source: str | None,
    dims: Sequence[NamedDim], threads: int | None,
) -> None:  # fmt: skip
    """Show the recorded sizes: how often each came, how long it took, which code served it.

    `anydim profile FILE.jsonl` is the same.

    \b
    Examples:
      anydim sizes sizes.jsonl
      anydim sizes sizes.jsonl --model encoder.onnx
      anydim profile merge monday.jsonl tuesday.jsonl -o both.jsonl
    """
    rows, sites = _read(files)
    console = Console()
    if output is not None:
        _write(console, output, rows, sites)
    seconds, calls = sum(row.seconds for row in rows), sum(row.count for row in rows)
    console.title(f"{count_of(len(rows), 'size')}, {count_of(calls, 'call')}, {duration(seconds)}")
    least = sum(row.count * row.least for row in rows)
    console.prose(
        f"each as fast as the fastest of its size: {duration(least)}, "
        f"{100 * (1 - least / (seconds or 1.0)):.1f} % less"
    )
    for name in dict.fromkeys(name for row in rows for name in row.dims):
        console.title(f"\n{name}")
        console.result("\n".join(histogram(name, rows)))
    console.title("\nthe costliest sizes")
    for line in _costliest(rows, seconds, max(0, top)):
        console.prose(line)
    if sites:
        console.result()
        console.table(_sites(sites, max(0, top)))
    if source is not None:
        _gains(console, Request(source, dims, threads, False, {}, {}), files)


@click.command(short_help="Add up files of model.record.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-o", "--output", metavar="FILE", required=True, help="The file to write.")
def merge(files: Sequence[str], output: str) -> None:
    """Merge several files of model.record into one file with a line for each size.

    \b
    Examples:
      anydim profile merge monday.jsonl tuesday.jsonl -o both.jsonl
    """
    _write(Console(), output, *_read(files))


def _read(files: Sequence[str]) -> tuple[list[Recorded], list[RecordedSite]]:
    rows = read_recorded(files)
    if not rows:
        raise OptionError(f"{files[0]} has no recorded sizes", "model.record(path) writes them")
    return rows, read_sites(files)


def _write(
    console: Console, path: str, rows: Sequence[Recorded], sites: Sequence[RecordedSite]
) -> None:
    try:
        # it may be one of those that were read
        with replace_file(path) as new, open(new, "w", encoding="utf-8") as file:
            lines = [*(row.line() for row in rows), *(row.line() for row in sites)]
            file.writelines(f"{line}\n" for line in lines)
    except OSError as error:
        raise OptionError(f"{path} cannot be written: {error.strerror}") from None
    beside = f", {count_of(len(sites), 'line')} of launches" if sites else ""
    console.note(f"wrote {path}: {count_of(len(rows), 'size')}{beside}")


def histogram(name: str, rows: Sequence[Recorded]) -> Iterator[str]:
    """Lines for the sizes of a dim: a bar of calls for each, or for each of some ranges of them."""
    came = [row for row in rows if name in row.dims]
    seconds = sum(row.seconds for row in came) or 1.0
    ends = bins([row.dims[name] for row in came], BINS)
    parts = [[row for row in came if low <= row.dims[name] <= high] for low, high in ends]
    counts = [sum(row.count for row in part) for part in parts]
    for (low, high), part, count in zip(ends, parts, counts):
        title = f"{low}" if low == high else f"{low}..{high}"
        share = 100 * sum(row.seconds for row in part) / seconds
        calls = count_of(count, "call")
        yield f"{title:>11} {bar(count / max(counts))} {calls:>12} {share:6.1f} % of the time"


def _costliest(rows: Sequence[Recorded], seconds: float, top: int) -> Iterator[str]:
    most = rows[0].seconds or 1.0
    for row in rows[:top]:
        given = ", ".join(f"{name}={size}" for name, size in row.dims.items()) or "no dims"
        mean = duration(row.seconds / row.count)
        yield (
            f"{bar(row.seconds / most, _NARROW)} {100 * row.seconds / (seconds or 1):5.1f} %  "
            f"{row.count:7} calls of {mean:>8}, {duration(row.least):>8} at best  "
            f"{row.model} {given}"
        )
    if len(rows) > top:
        yield f"and {len(rows) - top} more: --top {len(rows)}"


def _sites(sites: Sequence[RecordedSite], top: int) -> str:
    """Kernels with the sizes of their launches, and which code served."""
    kernels: dict[str, list[RecordedSite]] = {}
    for row in sites:
        kernels.setdefault(row.kernel, []).append(row)
    whole = sum(row.seconds for row in sites) or 1.0
    lines = []
    for name, rows in list(kernels.items())[:top]:
        launches = Counter[str]()
        for row in rows:
            launches[row.body.partition(" ")[0]] += row.count
        total = sum(launches.values())
        served = ", ".join(
            f"{body} {100 * count / total:.0f} %" for body, count in launches.most_common()
        )
        share = 100 * sum(row.seconds for row in rows) / whole
        lines.append((name, str(len(rows)), str(total), f"{share:.1f} %", served))
    return table(("kernel", "sizes", "launches", "of the time", "served by"), lines)


def _gains(console: Console, request: Request, files: Sequence[str]) -> None:
    """What a run of a model at these sizes would gain."""
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "all.jsonl")
        _write(Console(quiet=True), path, *_read(files))
        model = compile_model(console, request)
        found = model.gains(path)
    whole = sum(gain.seconds for gain in found) or 1.0
    rows = [
        (
            gain.kernel, f"{100 * gain.seconds / whole:.1f} %", f"{gain.tried} of {gain.sizes}",
            "" if gain.whole is None else f"{gain.whole:.2f}", f"{100 * gain.saved / whole:.1f} %",
        )
        for gain in found
    ]  # fmt: skip
    headers = ("kernel", "of the time", "sizes tried", "tuned schedule", "saved by bodies")
    console.result()
    console.table(table(headers, rows))
    saved, left = (100 * sum(gain) / whole for gain in zip(*((g.saved, g.untried) for g in found)))
    console.prose(
        f"\nunder --strategy adaptive a second run takes {saved:.1f} % less by what is known\n"
        f"{left:.1f} % of the time is of sizes that were never tried; to try them:"
    )
    console.result(f"  anydim tune {request.model} --profile FILE")
