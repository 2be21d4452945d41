"""`anydim bench --lengths`: a ragged call beside padded calls and single ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy

from anydim.base.text import count_of, table
from anydim.cli.lengths import Rows, RowSizes, packing_of, ragged_request, row_lengths
from anydim.cli.opening import open_model
from anydim.cli.options import Request
from anydim.cli.report.console import Console
from anydim.cli.report.measure import Timings, largest_difference, time_interleaved
from anydim.cli.report.peers import PEERS, Engine
from anydim.cli.report.text import duration
from anydim.runtime.program.inputs import Ranges
from anydim.runtime.ragged import Ragged

RAGGED, PADDED, SINGLE = "ragged", "padded", "one by one"
Ways = Mapping[str, Callable[[], Any]]


def bench_rows(
    console: Console, request: Request, source: str, others: Mapping[str, int],
    lengths: Sequence[RowSizes], against: Sequence[str], seed: int, integers: Ranges,
    timing: tuple[int, float],
) -> None:  # fmt: skip
    """Print a table with a line for each batch of rows."""
    made = open_model(console, ragged_request(request))
    packing = packing_of(made)
    batches = [(each.text, row_lengths(packing, each)) for each in lengths]
    plain = open_model(console, replace(request, model=source, ragged=None, level=None))
    threads = made.executable.threads
    engines: dict[str, Engine] = {"": lambda inputs: plain(**inputs)}
    for peer in against:
        with console.task(f"loading {Path(source).name} with {peer}"):
            engines[peer] = PEERS[peer](source, threads)
    lines: list[tuple[str, ...]] = []
    with console.task("measuring") as advance:
        for number, (text, sizes) in enumerate(batches):
            advance(number, len(batches), text)
            rows = Rows(plain, packing, sizes, others, seed, integers)
            ways = _ways(made, rows, engines)
            times = _times(time_interleaved(ways, *timing))
            worst = _worst(ways, rows)
            lines.append((text, RAGGED, *_spread(sizes), *times[RAGGED], ""))
            lines += [
                ("", name, "", "", "", *each, worst if name == SINGLE else "")
                for name, each in times.items() if name != RAGGED
            ]  # fmt: skip
    headers = ("lengths", "calls", "rows", "total", "of padded", "time", "ratio", "largest diff")
    console.table(table(headers, lines, left=2))
    console.note(
        f"{count_of(threads, 'thread')}, {timing[0]} rounds; total: the elements of all rows, of "
        "padded: their share of padded rows; ratio is the ragged call's time divided by the other's"
    )


def _ways(made: Callable[..., Any], rows: Rows, engines: Mapping[str, Engine]) -> Ways:
    """The calls that are timed: the ragged one, then padded and single ones of each engine."""
    own = rows.as_ragged()
    found: dict[str, Callable[[], Any]] = {RAGGED: lambda: made(**own)}
    for name, engine in engines.items():
        before = f"{name} " if name else ""
        found[f"{before}{PADDED}"] = partial(lambda run: run(rows.pad()), engine)
        found[f"{before}{SINGLE}"] = partial(lambda run: [run(row) for row in rows.alone], engine)
    return found


def _spread(sizes: Mapping[str, Sequence[int]]) -> tuple[str, str, str]:
    """The number of rows, their elements, and the share of these in padded rows."""
    columns = [numpy.array(column, numpy.int64) for column in sizes.values()]
    rows, total = len(columns[0]), int(numpy.prod(columns, axis=0).sum())
    whole = rows * int(numpy.prod([column.max(initial=0) for column in columns]))
    return str(rows), str(total), f"{total / whole:.2f}" if whole else "-"


def _times(times: Timings) -> dict[str, tuple[str, str]]:
    """The time of each way, and the ratio to it."""
    return {
        name: (duration(times.median(name)),
               "" if name == RAGGED else f"{times.ratio(RAGGED, name):.2f}")
        for name in times.rounds
    }  # fmt: skip


def _worst(ways: Ways, rows: Rows) -> str:
    """The largest difference between results of the ragged call and of single ones."""
    own, alone = ways[RAGGED](), ways[SINGLE]()
    worst = 0.0
    for name, axis in rows.results.items():
        for number, result in enumerate(alone):
            one = _row(own[name], number, axis)
            other = result[name] if axis is None else result[name].squeeze(axis)
            worst = max(worst, largest_difference(numpy.asarray(one), other))
    return f"{worst:.1e}"


def _row(result: Any, number: int, axis: int | None) -> Any:
    """A row of a result of the ragged call."""
    if isinstance(result, Ragged):
        return result[number]
    return result if axis is None else result.take(number, axis)
