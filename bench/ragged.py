"""MiniLM on batches of different lengths: ragged, padded and one by one, beside onnxruntime.

    python -m bench.ragged                  # one thread: 32 and 8 sentences, 64 queries
    python -m bench.ragged --threads 2 --rounds 9

Every engine gets the same texts of `examples/minilm`, as arrays of tokens; padding and stacking are
part of its time. `uniform` is the padded model on as many tokens in rows of one length: what a
ragged call would take if different lengths cost nothing. Medians of alternating rounds; the first
column is a share of onnxruntime's padded time. Rows are compared with batch 1 of the model without
ragged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import click
import numpy
import onnxruntime
from rich.console import Console
from rich.table import Table

import anydim as ad
from bench.isolated import pinned
from bench.workloads import SENTENCES
from examples.minilm.model import model_path
from examples.minilm.tokenizer import Tokenizer

QUERIES = SENTENCES.with_name("queries.txt")
NAMES = ("input_ids", "attention_mask")
Rows = list[numpy.ndarray]


def rows_of(path: Path, count: int) -> Rows:
    """The tokens of texts drawn from a file; always the same ones."""
    texts = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
    order = numpy.random.default_rng(0).permutation(len(texts) * (1 + count // len(texts)))[:count]
    tokenizer = Tokenizer()
    return [tokenizer.one(texts[i % len(texts)])["input_ids"][0] for i in order]


def padded(rows: Rows) -> dict[str, numpy.ndarray]:
    """The rows as one batch, with a mask."""
    ids = ad.Ragged.of(rows).padded()
    mask = (numpy.arange(ids.shape[1]) < [[len(row)] for row in rows]).astype(numpy.int64)
    return dict(zip(NAMES, (ids, mask)))


def alone(row: numpy.ndarray) -> dict[str, numpy.ndarray]:
    return dict(zip(NAMES, (row[None], numpy.ones((1, len(row)), numpy.int64))))


def uniform(rows: Rows) -> dict[str, numpy.ndarray]:
    """About as many tokens in rows of one length."""
    total = sum(map(len, rows))
    length = max(1, round(total / len(rows)))
    ids = numpy.resize(numpy.concatenate(rows), (max(1, round(total / length)), length))
    return dict(zip(NAMES, (ids, numpy.ones_like(ids))))


class Engines:
    """The models, compiled once."""

    def __init__(self, threads: int) -> None:
        path = str(model_path())
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.peer = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
        self.plain = ad.compile(path, threads=threads)
        self.ragged = ad.compile(path, threads=threads, ragged="auto")

    def ways(self, rows: Rows) -> dict[str, Callable[[], Any]]:
        same = uniform(rows)
        run = partial(self.peer.run, None)
        return {
            "onnxruntime padded": lambda: run(padded(rows)),
            "onnxruntime one by one": lambda: [run(alone(row)) for row in rows],
            "padded": lambda: self.plain(**padded(rows)),
            "one by one": lambda: [self.plain(**alone(row)) for row in rows],
            "ragged": lambda: self.ragged(input_ids=rows),
            "uniform": lambda: self.plain(**same),
        }

    def same_bits(self, rows: Rows) -> bool:
        found = self.ragged(input_ids=rows)
        expected = [self.plain(**alone(row)) for row in rows]
        return all(
            numpy.array_equal(found[name][number], each[name][0])
            for number, each in enumerate(expected) for name in each
        )  # fmt: skip


def times(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """The median milliseconds of each way, called in turns."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, call in ways.items():
            begin = perf_counter()
            call()
            if number:  # the first round prepares
                found[name].append(1e3 * (perf_counter() - begin))
    return {name: median(each) for name, each in found.items()}


def table(engines: Engines, batches: Sequence[tuple[str, Rows]], rounds: int) -> Table:
    made = Table(title="Shares of onnxruntime's padded time")
    measured = [(title, rows, times(engines.ways(rows), rounds)) for title, rows in batches]
    made.add_column("texts")
    for name in list(measured[0][2])[1:]:
        made.add_column(name, justify="right")
    for name in ("tokens, padded", "ragged / uniform", "bits of batch 1"):
        made.add_column(name, justify="right")
    for title, rows, found in measured:
        whole = found["onnxruntime padded"]
        shares = [f"{found[name] / whole:.3f}" for name in list(found)[1:]]
        total = sum(map(len, rows))
        spread = f"{total}, {len(rows) * max(map(len, rows))}"
        beside = f"{found['ragged'] / found['uniform']:.3f}"
        same = "same" if engines.same_bits(rows) else "OTHER"
        made.add_row(f"{title} ({whole:.1f} ms)", *shares, spread, beside, same)
    return made


@click.command(help=__doc__)
@click.option("--threads", default=1, show_default=True)
@click.option("--rounds", default=7, show_default=True)
def main(threads: int, rounds: int) -> None:
    pinned(threads)
    batches = [
        ("32 sentences", rows_of(SENTENCES, 32)),
        ("8 sentences", rows_of(SENTENCES, 8)),
        ("64 queries", rows_of(QUERIES, 64)),
    ]
    Console(width=160).print(table(Engines(threads), batches, rounds))


if __name__ == "__main__":
    main()
