"""Request streams through anydim and its peers, side by side: tables and a JSON file.

python -m bench                      # all installed engines, one thread, about five minutes
python -m bench --quick              # fewer sizes and sentences, under a minute
python -m bench --threads 2 --engine anydim --engine onnxruntime
"""

from __future__ import annotations

import json
import platform
from pathlib import Path
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from anydim.cli.report.measure import (
    largest_difference,
    median_ratio,
    time_interleaved,
    time_stream,
)
from bench.engines import ENGINES, Call
from bench.isolated import cold_runs, pinned
from bench.workloads import Stream, draw, streams, table_sizes
from examples.minilm.model import model_path

BASE = "onnxruntime"


@click.command(help=__doc__)
@click.option("--engine", "names", multiple=True, type=click.Choice(list(ENGINES)))
@click.option("--threads", default=1, show_default=True)
@click.option("--sentences", default=200, show_default=True, help="Single sentences in a stream.")
@click.option("--quick", is_flag=True, help="Fewer sizes and sentences.")
@click.option("--out", default="out/bench.json", show_default=True, type=click.Path(path_type=Path))
def main(names: tuple[str, ...], threads: int, sentences: int, quick: bool, out: Path) -> None:
    console = Console()
    wanted = names or tuple(ENGINES)
    chosen = [name for name in wanted if ENGINES[name].installed]
    for name in wanted:
        if name not in chosen:
            console.print(f"{name}: not installed, left out")
    pinned(threads)
    sentences = 60 if quick else sentences
    console.print(f"{platform.processor() or platform.machine()}, {threads} thread(s)")
    report: dict[str, Any] = {"threads": threads, "engines": chosen}
    report["cold"] = cold_runs(chosen, threads, sentences)
    _show_cold(console, report["cold"])
    path = Path(model_path())
    calls = {name: ENGINES[name].load(path, threads) for name in chosen}
    report["streams"] = [_stream(console, calls, stream) for stream in _streams(sentences, quick)]
    _show_streams(console, report["streams"], chosen)
    report["sizes"] = _sizes(console, calls, quick)
    _show_sizes(console, report["sizes"], chosen)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1), "utf-8")
    console.print(f"written: {out}")


def _streams(sentences: int, quick: bool) -> list[Stream]:
    made = list(streams(sentences))
    if not quick:
        return made
    return [made[0], *(Stream(s.name, s.requests[:5]) for s in made[1:])]


def _stream(console: Console, calls: dict[str, Call], stream: Stream) -> dict[str, Any]:
    """Each engine runs the stream twice, in blocks in turn; the second pass counts as warm."""
    with console.status(f"{stream.name}: {len(stream.requests)} requests"):
        time_stream(calls, stream.requests)
        seconds = time_stream(calls, stream.requests)
        worst = _worst_difference(calls, stream)
    base = seconds.get(BASE)
    return {
        "stream": stream.name,
        "requests": len(stream.requests),
        "padded_per_real": stream.tokens / max(1, stream.real_tokens),
        "seconds": {name: sum(times) for name, times in seconds.items()},
        "ratio": {n: sum(t) / sum(base) for n, t in seconds.items()} if base else {},
        "median_ratio": {n: median_ratio(t, base) for n, t in seconds.items()} if base else {},
        "difference": worst,
    }


def _worst_difference(calls: dict[str, Call], stream: Stream) -> dict[str, float]:
    """The largest difference from the first engine over some requests of a stream."""
    names = list(calls)
    worst = dict.fromkeys(names[1:], 0.0)
    for feeds in stream.requests[:: max(1, len(stream.requests) // 8)]:
        base = calls[names[0]](feeds)
        for name in names[1:]:
            pairs = zip(calls[name](feeds), base)
            worst[name] = max(worst[name], *(largest_difference(a, b) for a, b in pairs))
    return worst


def _sizes(console: Console, calls: dict[str, Call], quick: bool) -> list[dict[str, Any]]:
    rows = []
    for batch, seq in table_sizes(600 if quick else 64 * 128):
        feeds = draw(batch, seq)
        bound = {name: (lambda call=call, feeds=feeds: call(feeds)) for name, call in calls.items()}
        heavy = batch * seq > 2000
        with console.status(f"batch {batch}, seq {seq}"):
            timings = time_interleaved(
                bound, rounds=5 if heavy else 9, seconds=6.0 if heavy else 2.0
            )
        row: dict[str, Any] = {"batch": batch, "seq": seq}
        row["ms"] = {name: 1e3 * timings.median(name) for name in calls}
        if BASE in calls:
            row["ratio"] = {name: timings.ratio(name, BASE) for name in calls}
        rows.append(row)
    return rows


def _show_cold(console: Console, runs: dict[str, dict[str, Any]]) -> None:
    table = Table(title="a fresh process: load, then a stream of single sentences")
    for column in ("engine", "load s", "stream s", "peak MB", "first call / steady"):
        table.add_column(column, justify="left" if column == "engine" else "right")
    for name, run in runs.items():
        first = median(row["first"] / row["steady"] for row in run["first_calls"])
        table.add_row(
            name, f"{run['load_s']:.2f}", f"{run['stream_s']:.2f}", f"{run['peak_mb']:.0f}",
            f"{first:.3f}",
        )  # fmt: skip
    console.print(table)


def _show_streams(console: Console, rows: list[dict[str, Any]], names: list[str]) -> None:
    table = Table(title=f"warm streams: seconds (for one second of {BASE})")
    table.add_column("stream")
    for name in names:
        table.add_column(name, justify="right")
    table.add_column("differs by at most", justify="right")
    for row in rows:
        cells = [f"{row['seconds'][n]:.2f} ({row['ratio'].get(n, 1):.2f})" for n in names]
        worst = max(row["difference"].values(), default=0.0)
        table.add_row(row["stream"], *cells, f"{worst:.1e}")
    console.print(table)


def _show_sizes(console: Console, rows: list[dict[str, Any]], names: list[str]) -> None:
    table = Table(title=f"one size again and again: ms (for one ms of {BASE})")
    table.add_column("batch x seq")
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        ratio = row.get("ratio", {})
        cells = [f"{row['ms'][n]:.2f} ({ratio.get(n, 1):.2f})" for n in names]
        table.add_row(f"{row['batch']} x {row['seq']}", *cells)
    console.print(table)


if __name__ == "__main__":
    main()
