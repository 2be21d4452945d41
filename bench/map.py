"""Many texts of different lengths: `model.map` beside anydim's and a peer's fixed batch sizes.

    python -m bench.map                     # 5,000 texts, one thread: most of an hour
    python -m bench.map --count 400         # fewer texts
    python -m bench.map --memory "32 MiB" --threads 2

MiniLM encodes texts in random order; kept are the embeddings. Lengths are lognormal with the
quantiles of `examples/minilm/sentences.txt`, tokens are a run of its. `map` gets all of them with a
limit, once padded and once as ragged rows. The others take batches of a fixed size, padded to the
longest, as the texts come or sorted by length. They run in turn: while `map` reports what is done,
each one catches up, so a slow minute of the machine meets all. Times have everything in them:
padding, stacking, choosing groups.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy
from rich.console import Console
from rich.table import Table

import anydim as ad
from anydim.runtime.program.batches.mapping import Mapper
from bench.isolated import pinned
from bench.workloads import SENTENCES, Feeds
from examples.minilm.model import model_path
from examples.minilm.tokenizer import Tokenizer

MEDIAN, SPREAD, LONGEST = 22, 0.68, 512  # of the lognormal distribution, and what the model takes
OUTPUT = "sentence_embedding"
PAD = {"input_ids": 0, "attention_mask": 0}
WINDOW = 500  # texts of a ragged map
SIZES = (1, 8, 16, 32, 64)
ORDERS = ("as they come", "sorted")


def texts(count: int) -> list[Feeds]:
    """Inputs of texts [1, tokens], in random order; always the same ones."""
    chance = numpy.random.default_rng(0)
    lines = [line for line in SENTENCES.read_text("utf-8").splitlines() if line.strip()]
    tokenizer = Tokenizer()
    stream = numpy.concatenate([tokenizer.one(line)["input_ids"][0, 1:-1] for line in lines])
    first, last = tokenizer.one(lines[0])["input_ids"][0, [0, -1]]
    lengths = numpy.exp(chance.normal(numpy.log(MEDIAN), SPREAD, count)).round().astype(int)
    made = []
    for length in lengths.clip(3, LONGEST):
        begin = chance.integers(0, len(stream) - length)
        ids = numpy.concatenate([[first], stream[begin : begin + length - 2], [last]])[None]
        made.append({"input_ids": ids, "attention_mask": numpy.ones_like(ids)})
    return made


def padded(items: Sequence[Feeds]) -> Feeds:
    """One batch, filled up with zeros to the longest."""
    longest = max(item["input_ids"].shape[1] for item in items)
    whole = {name: numpy.zeros((len(items), longest), numpy.int64) for name in PAD}
    for number, item in enumerate(items):
        for name, array in item.items():
            whole[name][number, : array.shape[1]] = array
    return whole


class Fixed:
    """An engine that takes batches of one size, and its seconds so far."""

    def __init__(
        self, call: Callable[[Feeds], numpy.ndarray], items: Sequence[Feeds], size: int,
        sort: bool,
    ) -> None:  # fmt: skip
        self._call, self._items, self._size, self._sort = call, items, size, sort
        self.results: dict[int, numpy.ndarray] = {}
        self.seconds, self.tokens = 0.0, 0
        self._steps = self._run()

    def _run(self) -> Iterator[None]:
        order = list(range(len(self._items)))
        if self._sort:
            order.sort(key=lambda number: self._items[number]["input_ids"].shape[1])
        for at in range(0, len(order), self._size):
            part = order[at : at + self._size]
            feeds = padded([self._items[number] for number in part])
            self.tokens += feeds["input_ids"].size
            self.results.update(zip(part, self._call(feeds)))
            yield

    def until(self, share: float) -> None:
        """Go on until this share of the texts is done."""
        start = perf_counter()
        while len(self.results) < share * len(self._items):
            next(self._steps)
        self.seconds += perf_counter() - start


class RaggedRows(Fixed):
    """`map` of the model with ragged rows, a window at a time."""

    def __init__(self, model: ad.Model, items: Sequence[Feeds], memory: str) -> None:
        super().__init__(lambda feeds: feeds["input_ids"], items, WINDOW, False)
        self._map = lambda rows: model.map(rows, memory, outputs=[OUTPUT])

    def _run(self) -> Iterator[None]:
        for at in range(0, len(self._items), WINDOW):
            rows = [{"input_ids": each["input_ids"][0]} for each in self._items[at : at + WINDOW]]
            self.tokens += sum(len(row["input_ids"]) for row in rows)
            found = (each[OUTPUT] for each in self._map(rows))
            self.results.update(zip(range(at, at + WINDOW), found))
            yield


class Recorder:
    """An executable that notes the bytes of its calls: what arenas hold, inputs, outputs."""

    def __init__(self, executable: Any) -> None:
        self._executable, self.calls = executable, list[tuple[int, tuple[int, ...]]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executable, name)

    def __call__(self, given: Mapping[str, numpy.ndarray]) -> dict[str, Any]:
        found: dict[str, numpy.ndarray] = self._executable(given)
        arrays = [*given.values(), *found.values()]
        taken = self._executable.arena_bytes + sum(array.nbytes for array in arrays)
        self.calls.append((taken, arrays[0].shape))
        return found


def peers(
    path: Path, items: Sequence[Feeds], threads: int, sizes: Sequence[int], orders: Sequence[str]
) -> dict[str, Fixed]:
    """onnxruntime with batches of each size in each order."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])

    def call(feeds: Feeds) -> numpy.ndarray:
        found: list[numpy.ndarray] = session.run([OUTPUT], feeds)
        return found[0]

    return {
        f"onnxruntime, {size}, {order}": Fixed(call, items, size, order == "sorted")
        for order in orders for size in sizes
    }  # fmt: skip


@click.command(help=__doc__)
@click.option("--count", default=5000, show_default=True)
@click.option("--memory", default="64 MiB", show_default=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--size", "sizes", multiple=True, default=SIZES, help="Of the peer's batches.")
@click.option("--order", "orders", multiple=True, type=click.Choice(ORDERS), default=ORDERS)
@click.option("--out", default="out/map.json", show_default=True, type=click.Path(path_type=Path))
def main(
    count: int, memory: str, threads: int, sizes: Sequence[int], orders: Sequence[str], out: Path
) -> None:
    pinned(threads)
    items, console = texts(count), Console()
    dims = {"batch": ad.Dim("batch"), "seq": ad.Dim("seq", 1, LONGEST)}
    model = ad.compile(model_path(), dims=dims, threads=threads)
    rows = ad.compile(model_path(), dims=dims, threads=threads, ragged="auto")
    others = {
        "anydim, ragged map": RaggedRows(rows, items, memory),
        "anydim, 32, as they come": Fixed(lambda feeds: model(**feeds)[OUTPUT], items, 32, False),
        **peers(Path(model_path()), items, threads, sizes, orders),
    }
    recorder = Recorder(model.executable)
    model.__dict__["_mapper"] = Mapper(recorder, model.program, model.story.mixing)
    waited = 0.0

    def progress(done: int, total: int | None, detail: str) -> None:
        nonlocal waited
        start = perf_counter()
        for each in others.values():
            each.until(done / count)
        waited += perf_counter() - start

    start = perf_counter()
    found = model.map(items, memory, pad=PAD, outputs=[OUTPUT], progress=progress)
    seconds = perf_counter() - start - waited
    report = _report(items, list(found), seconds, recorder, others)
    _show(console, report, memory)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1), "utf-8")


def _report(
    items: Sequence[Feeds], found: Sequence[Mapping[str, numpy.ndarray]], seconds: float,
    recorder: Recorder, others: Mapping[str, Fixed],
) -> dict[str, Any]:  # fmt: skip
    rows = {
        "anydim, map": {"seconds": seconds, "tokens": sum(b * s for _, (b, s) in recorder.calls)}
    }
    for name, each in others.items():
        rows[name] = {"seconds": each.seconds, "tokens": each.tokens}
    differs = max(
        float(numpy.abs(one[OUTPUT][0] - each.results[number]).max())
        for each in others.values() for number, one in enumerate(found)
    )  # fmt: skip
    return {
        "texts": len(items),
        "tokens": sum(item["input_ids"].size for item in items),
        "rows": rows,
        "calls": len(recorder.calls),
        "largest_bytes": max(taken for taken, _ in recorder.calls),
        "differs": differs,
    }


def _show(console: Console, report: Mapping[str, Any], memory: str) -> None:
    rows, base = report["rows"], report["rows"]["anydim, map"]["seconds"]
    table = Table(title=f"{report['texts']} texts, {report['tokens']} tokens")
    for column in ("", "seconds", "map / this", "tokens"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, row in rows.items():
        ratio = f"{base / row['seconds']:.2f}"
        table.add_row(name, f"{row['seconds']:.1f}", ratio, str(row["tokens"]))
    console.print(table)
    most = report["largest_bytes"] / 2**20
    console.print(
        f"map: {report['calls']} calls; arena, inputs and outputs at most {most:.1f} MiB (limit "
        f"{memory}); embeddings differ by at most {report['differs']:.1e}"
    )


if __name__ == "__main__":
    main()
