"""MiniLM compiled once, then run at every length that real sentences have: `make demo`.

It shows the nearest sentences for some queries, latency by length and whole request streams beside
onnxruntime on the same file with the same number of threads, and memory as a formula, predicted
and measured.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import click
import numpy as np

import anydim as ad
from anydim.base.amounts import bytes_text
from anydim.base.text import table
from anydim.cli.report.console import Console
from anydim.cli.report.measure import largest_difference, median_ratio, time_stream
from anydim.cli.report.peers import onnxruntime_engine
from anydim.cli.report.text import duration, sizes_text
from examples.minilm.model import model_path
from examples.minilm.tokenizer import Feeds, Tokenizer

FOLDER = Path(__file__).parent
DIMS = {"batch": ad.Dim(0, 64), "seq": ad.Dim(1, 512)}
OURS, PEER = "anydim", "onnxruntime"
BUCKETS = ((1, 8), (9, 16), (17, 32), (33, 64), (65, 128), (129, 512))
MEMORY_SIZES = ((0, 16), (1, 22), (8, 77), (8, 128), (32, 128))
NEAREST = 2  # sentences shown for a query
WIDTH = 78

Run = Callable[[Feeds], Mapping[str, np.ndarray]]


@dataclass(frozen=True)
class Scale:
    """How much of the demonstration runs: which sentences, rounds of single ones, queries."""

    first: int
    every: int
    rounds: int
    queries: int


FULL = Scale(first=0, every=1, rounds=2, queries=12)
FAST = Scale(first=7, every=10, rounds=1, queries=2)


@dataclass(frozen=True)
class Stream:
    """Requests in the order they come; each is encoded by every engine in turn."""

    title: str
    requests: Sequence[Feeds]
    rounds: int = 1

    @property
    def sizes(self) -> set[tuple[int, ...]]:
        """All (batch, seq) in it."""
        return {request["input_ids"].shape for request in self.requests}


@dataclass(frozen=True)
class Encoded:
    """Seconds of each request by engine and round, and the embeddings by engine."""

    stream: Stream
    seconds: Mapping[str, list[list[float]]]
    embeddings: Mapping[str, np.ndarray]

    def total(self, engine: str) -> float:
        """Seconds of the whole stream."""
        return median(map(sum, self.seconds[engine]))

    def each(self, engine: str) -> list[float]:
        """Seconds of each request."""
        return [median(times) for times in zip(*self.seconds[engine])]


class Engine:
    """An engine that keeps the embeddings it makes."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.embeddings: list[np.ndarray] = []

    def __call__(self, request: Feeds) -> None:
        self.embeddings.append(self.run(request)["sentence_embedding"])

    def taken(self, count: int) -> np.ndarray:
        """The embeddings of the first `count` requests, one row a sentence; forgets all."""
        rows, self.embeddings = np.concatenate(self.embeddings[:count]), []
        return rows


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--fast", is_flag=True, help="A tenth of the sentences, once.")
@click.option("--threads", default=1, show_default=True, metavar="N", help="Cores for each engine.")
def main(fast: bool, threads: int) -> None:
    """Encode a few hundred sentences with MiniLM, compiled once for every size."""
    console = Console()
    try:
        demonstrate(console, FAST if fast else FULL, threads)
    except ad.UserError as error:
        console.error(error.problem, error.hint)
        sys.exit(2)
    except FileNotFoundError as error:
        console.error(str(error), "`make demo` installs what the demonstration needs")
        sys.exit(2)


def demonstrate(console: Console, scale: Scale, threads: int) -> None:
    """Everything in turn; results go to standard output, progress to standard error."""
    sentences = _lines("sentences.txt")[scale.first :: scale.every]
    queries = _lines("queries.txt")[: scale.queries]
    tokenizer = Tokenizer()
    console.title("MiniLM-L6-v2, a sentence encoder, compiled once and run at every size")
    path = _file(console)
    model = _compile(console, path, threads)
    with console.task(f"loading {path.name} with {PEER}"):
        peer = onnxruntime_engine(str(path), threads)
    engines = {OURS: Engine(lambda feeds: model(**feeds)), PEER: Engine(peer)}

    singles = Stream("one at a time", [tokenizer.one(text) for text in sentences], scale.rounds)
    streams = [singles, *(_batches(tokenizer, sentences, size) for size in (8, 32))]
    encoded = [_encode(console, engines, stream) for stream in streams]
    asked = np.concatenate([model(**tokenizer.one(text))["sentence_embedding"] for text in queries])

    _show_nearest(console, queries, asked, sentences, encoded[0].embeddings[OURS])
    _show_lengths(console, encoded[0], threads)
    _show_streams(console, encoded)
    measured = _show_memory(console, model)
    served = set().union(*(stream.sizes for stream in streams), measured)
    served |= {(1, tokenizer.length(text)) for text in queries}
    console.result()
    console.title(f"1 compile served {len(served)} sizes")


def _lines(name: str) -> list[str]:
    return (FOLDER / name).read_text(encoding="utf-8").splitlines()


def _file(console: Console) -> Path:
    with console.task("preparing the ONNX file"):
        path = model_path()
    console.result(f"  file      {path.name}, {bytes_text(path.stat().st_size)}")
    return path


def _compile(console: Console, path: Path, threads: int) -> ad.Model:
    start = perf_counter()
    with console.task(f"compiling {path.name}") as advance:
        model = ad.compile(
            path,
            DIMS,
            threads=threads,
            progress=lambda stage, done, total: advance(done, total, stage),
        )
    console.result(f"  compiled  once for {model.dims} in {duration(perf_counter() - start)}")
    return model


def _batches(tokenizer: Tokenizer, sentences: Sequence[str], size: int) -> Stream:
    """The sentences `size` at a time, in order, padded to the longest of each batch."""
    starts = range(0, len(sentences), size)
    return Stream(
        f"batches of {size}", [tokenizer.batch(sentences[at : at + size]) for at in starts]
    )


def _encode(console: Console, engines: Mapping[str, Engine], stream: Stream) -> Encoded:
    count = len(stream.requests)
    seconds: dict[str, list[list[float]]] = {name: [] for name in engines}
    with console.task(f"encoding {stream.title}") as advance:
        for number in range(stream.rounds):
            base, total = number * count, stream.rounds * count
            advance(base, total)
            times = time_stream(
                engines,
                stream.requests,
                block=max(1, min(16, count // 8)),
                advance=lambda done, _, base=base, total=total: advance(base + done, total),
            )
            for name in engines:
                seconds[name].append(times[name])
    embeddings = {name: engine.taken(count) for name, engine in engines.items()}
    return Encoded(stream, seconds, embeddings)


def _show_nearest(
    console: Console, queries: Sequence[str], asked: np.ndarray, sentences: Sequence[str],
    known: np.ndarray,
) -> None:  # fmt: skip
    console.result()
    console.title("Nearest sentences (cosine similarity)")
    for query, row in zip(queries, asked @ known.T):
        console.result(f"  {query}")
        for index in np.argsort(-row, kind="stable")[:NEAREST]:
            text = textwrap.shorten(sentences[index], WIDTH - 10, placeholder=" ...")
            console.result(f"    {row[index]:.2f}  {text}")


def _show_lengths(console: Console, singles: Encoded, threads: int) -> None:
    lengths = [request["input_ids"].shape[1] for request in singles.stream.requests]
    ours, theirs = singles.each(OURS), singles.each(PEER)
    rows = []
    for low, high in BUCKETS:
        inside = [at for at, length in enumerate(lengths) if low <= length <= high]
        if inside:
            a, b = [ours[at] for at in inside], [theirs[at] for at in inside]
            figures = duration(median(a)), duration(median(b)), f"{median_ratio(a, b):.2f}"
            rows.append((f"{low}..{high}", str(len(inside)), *figures))
    cores = "1 thread" if threads == 1 else f"{threads} threads"
    console.result()
    console.title(f"One sentence at a time: median time by length, {cores}")
    console.table(table(("tokens", "sentences", OURS, PEER, "ratio"), rows))


def _show_streams(console: Console, encoded: Sequence[Encoded]) -> None:
    rows = []
    for item in encoded:
        ours, theirs, stream = item.total(OURS), item.total(PEER), item.stream
        figures = duration(ours), duration(theirs), f"{ours / theirs:.2f}"
        rows.append((stream.title, str(len(stream.requests)), str(len(stream.sizes)), *figures))
    worst = max(largest_difference(i.embeddings[OURS], i.embeddings[PEER]) for i in encoded)
    console.result()
    console.title("The same sentences as streams of requests: time of the whole stream")
    console.table(table(("stream", "calls", "sizes", OURS, PEER, "ratio"), rows))
    console.result(f"  largest difference between the embeddings of the two: {worst:.1e}")


def _show_memory(console: Console, model: ad.Model) -> set[tuple[int, ...]]:
    rows = []
    with console.task("measuring memory") as advance:
        for number, (batch, seq) in enumerate(MEMORY_SIZES):
            sizes = {"batch": batch, "seq": seq}
            advance(number, len(MEMORY_SIZES), sizes_text(sizes))
            ones = np.ones((batch, seq), np.int64)
            model.trim()
            model(input_ids=ones, attention_mask=ones)
            taken = model.executable.arena_bytes
            rows.append((sizes_text(sizes), str(model.plan(**sizes).bytes), str(taken)))
    bound = model.memory.bound
    formula = textwrap.fill(
        f"{model.memory.bytes}", WIDTH, initial_indent="  ", subsequent_indent="    "
    )
    console.result()
    console.title("Memory for intermediate values, in bytes, known before anything runs")
    console.result(formula)
    if bound is not None:
        console.result(f"  at most {bound} ({bytes_text(bound)}) for {model.dims}")
    console.table(table(("sizes", "predicted", "measured"), rows))
    return set(MEMORY_SIZES)


if __name__ == "__main__":
    main()
