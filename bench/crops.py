"""A recogniser of text on crops of different widths: ragged, one by one and in padded groups.

    python -m bench.crops ch_PP-OCRv4_rec_infer.onnx      # of rapidocr-onnxruntime 1.4.4

64 crops of height 48 with lognormal widths from 48 to 424. Groups of 8 are sorted by width and
padded to the widest; padding is part of their time. Medians of rounds in turns, one thread; the
last column is a share of anydim's calls one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import click
import numpy
import onnxruntime

import anydim as ad
from bench.isolated import pinned

HEIGHT, GROUP = 48, 8


def crops(count: int) -> list[numpy.ndarray]:
    """Random images [3, 48, width], the narrowest first."""
    chance = numpy.random.default_rng(0)
    drawn = numpy.round(chance.lognormal(numpy.log(160), 0.6, count) / 8) * 8
    widths = sorted(int(width) for width in drawn.clip(48, 424))
    return [chance.standard_normal((3, HEIGHT, width), numpy.float32) for width in widths]


def groups(rows: list[numpy.ndarray]) -> list[numpy.ndarray]:
    made = []
    for first in range(0, len(rows), GROUP):
        part = rows[first : first + GROUP]
        made.append(numpy.zeros((len(part), 3, HEIGHT, part[-1].shape[2]), numpy.float32))
        for image, row in zip(made[-1], part):
            image[:, :, : row.shape[2]] = row
    return made


@click.command()
@click.argument("file", type=click.Path(exists=True))
@click.option("--count", default=64, show_default=True, help="Crops of a call.")
@click.option("--rounds", default=9, show_default=True)
@click.option("--threads", default=1, show_default=True)
def main(file: str, count: int, rounds: int, threads: int) -> None:
    pinned(threads)
    rows = crops(count)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    peer = onnxruntime.InferenceSession(file, options, ["CPUExecutionProvider"])
    name = peer.get_inputs()[0].name
    plain = ad.compile(file, threads=threads)
    ragged = ad.compile(file, ragged="auto", threads=threads)
    calls: dict[str, Callable[[], Any]] = {
        "one by one": lambda: [plain(**{name: row[None]}) for row in rows],
        "ragged": lambda: ragged(**{name: rows}),
        "padded": lambda: [plain(**{name: group}) for group in groups(rows)],
        "onnxruntime one by one": lambda: [peer.run(None, {name: row[None]}) for row in rows],
        "onnxruntime padded": lambda: [peer.run(None, {name: group}) for group in groups(rows)],
    }
    times: dict[str, list[float]] = {each: [] for each in calls}
    for number in range(rounds + 2):
        for each, call in calls.items():
            start = perf_counter()
            call()
            if number > 1:
                times[each].append(perf_counter() - start)
    for each, spent in times.items():
        share = median(map(float.__truediv__, spent, times["one by one"]))
        print(f"{each:24} {1e3 * median(spent):8.1f} ms  {share:.2f}")


if __name__ == "__main__":
    main()
