"""Quantised light architectures of onnx beside onnxruntime, images of 224 x 224, one thread.

    python -m bench.quantised                                 # all, in every form
    python -m bench.quantised --name shufflenet --form operators

Every file is compiled once for all batches from 1 to 16. `extended` is the file that onnxruntime
saves of the quantised one; `its` is its time beside that of the quantised file, both in anydim. A
ratio is the median of the ratios of neighbours, below 1 where anydim is faster. Weights and
calibration data are random.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import click
import onnxruntime
from rich.console import Console
from rich.table import Table

import anydim as ad
from anydim.cli.report.measure import largest_difference, time_interleaved
from bench.isolated import pinned
from bench.light import NAMES, light_model
from bench.quantising import FORMS, optimised, quantised, random_images, session_options


@click.command(help=__doc__)
@click.option("--name", "names", multiple=True, type=click.Choice(NAMES))
@click.option("--form", "forms", multiple=True, type=click.Choice(FORMS))
@click.option("--seconds", default=6.0, show_default=True, help="For a row of the table.")
def main(names: tuple[str, ...], forms: tuple[str, ...], seconds: float) -> None:
    pinned(1)
    onnxruntime.set_default_logger_severity(4)
    console = Console()
    table = Table(title="milliseconds of a call on one thread, batch 1")
    columns = ("", "form", "anydim", "onnxruntime", "ratio", "extended", "ratio", "its")
    for column in (*columns, "difference"):
        table.add_column(column, justify="left" if column in ("", "form") else "right")
    ratios = []
    for name in names or NAMES:
        source = light_model(name)
        constants = {tensor.name for tensor in source.graph.initializer}
        entry = next(v.name for v in source.graph.input if v.name not in constants)
        for form in forms or FORMS:
            with tempfile.TemporaryDirectory() as folder:
                path = quantised(source, form, Path(folder), random_images(entry, 2))
                row, found = measured(path, optimised(path), entry, seconds)
            table.add_row(name, form, *row)
            ratios += found
    console.print(table)
    console.print(f"geometric mean of the ratios {geometric_mean(ratios):.2f}")


def measured(
    path: Path, saved: Path, entry: str, seconds: float
) -> tuple[list[str], tuple[float, float]]:
    """The cells of a row, and both ratios."""
    (feed,) = random_images(entry, 1)
    calls: dict[str, Callable[[], Any]] = {}
    for title, file in (("plain", path), ("saved", saved)):
        model = ad.compile(str(file), dims={"batch": ad.Dim(1, 16)}, threads=1)
        peer = onnxruntime.InferenceSession(str(file), session_options(), ["CPUExecutionProvider"])
        calls[title] = lambda model=model: next(iter(model(**feed).values()))
        calls[f"{title} peer"] = lambda peer=peer: peer.run(None, feed)[0]
    found, expected = calls["plain"](), calls["plain peer"]()
    apart = largest_difference(found, expected) / abs(expected).max()
    timings = time_interleaved(calls, rounds=7, seconds=seconds)
    ratios = tuple(timings.ratio(title, f"{title} peer") for title in ("plain", "saved"))
    own = [f"{1e3 * timings.median(title):.2f}" for title in calls]
    cells = [own[0], own[1], f"{ratios[0]:.2f}", own[2], f"{ratios[1]:.2f}",
             f"{timings.ratio('saved', 'plain'):.2f}", f"{apart:.0e}"]  # fmt: skip
    return cells, (ratios[0], ratios[1])


if __name__ == "__main__":
    main()
