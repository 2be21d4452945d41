"""W6, a step of a decoder with a cache, beside onnxruntime: python -m bench.decoding

    python -m bench.decoding [--layers 4] [--heads 6] [--words 8192] [--batch 1] [--threads 1]
                             [--past 0 64 512 2048 8192] [--stream 200] [--bits 4]

gpt2-like layers of `heads` x 64 with random weights, one new word a call, caches [batch, heads,
past, 64] as inputs and outputs. `cold` is the time from the file to the first result, in this
process. `stream` is the sum over calls that each take the caches of the call before, from an empty
one on. `kept` is anydim with caches that stay in the model (`ad.cached`). At single pasts all are
called in turns, and the least of their times counts. Results are compared first. With `--bits` 8
or 4 weights are those of MatMulNBits in blocks of 32, and the last line is the stream with caches
that stay beside that of the float32 model.

    python -m bench.decoding --ragged [--rows 16] [--shortest 10] [--longest 1000] [--prompt 200]
                             [--tokens last]

Continuous batching: one token for each of `rows` rows with caches from `shortest` to `longest`, in
one step of `ad.cached(..., ragged=)`, beside the same number of tokens at equal lengths of the same
sum, of this model and of `ad.cached` without ragged, beside all rows padded to the longest, and
beside onnxruntime: row by row, at equal lengths and padded, with the caches as inputs and results.
Row by row is also anydim's own: no step is slower than its rows in steps of their own. `--tokens`
are those that have logits: all, the last or the first one (before the product or behind it, cut out
or gathered), or the mean or maximum of all (`bench/networks/sequences.py`).
A line has the median time, and the median of the ratios to the ragged step, in turns. The last
lines are steps with a prompt of `prompt` tokens for one more row, and the same in two calls.

    python -m bench.decoding --check decoder.onnx ...

Exported decoders (inputs `input_ids`, caches, and perhaps `position_ids` and `attention_mask`) in
random sessions of rows that join and leave, beside onnxruntime at batch 1: the largest difference,
of the largest logit of its row.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import onnxruntime

import anydim as ad
from anydim.api.cached_model import Cached
from anydim.api.cached_rows import CachedRows
from bench.networks.narrow import narrowed
from bench.networks.sequences import TOKENS, decoder

WIDTH = 64
Feeds = dict[str, np.ndarray]
Step = Callable[[Feeds], list[np.ndarray]]


def feeds(layers: int, heads: int, batch: int, past: int, seed: int = 0) -> Feeds:
    """One word and caches of `past` words for each row of the batch."""
    random = np.random.default_rng((seed, past))
    made: Feeds = {"ids": random.integers(0, 1000, (batch, 1))}
    for layer in range(layers):
        for name in ("keys", "values"):
            shape = (batch, heads, past, WIDTH)
            made[f"{name}_{layer}"] = random.standard_normal(shape, np.float32)
    return made


def kept_at(step: Cached, given: Feeds, past: int) -> Callable[[], object]:
    """A step of a model that has caches of `past` words."""
    step.hold({name: array for name, array in given.items() if name != "ids"})

    def call() -> object:
        step.forget(past)
        return step(ids=given["ids"])

    return call


def kept_stream(step: Cached, first: Feeds, count: int) -> float:
    """Seconds of `count` steps from empty caches on."""
    step.forget()
    return sum(timed(partial(step, ids=first["ids"])) for _ in range(count))


def engines(source: bytes, threads: int) -> dict[str, tuple[Step, float]]:
    """A step of each engine, and the seconds it took to load."""
    start = time.perf_counter()
    model = ad.compile(source, threads=threads)
    middle = time.perf_counter()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(source, options, ["CPUExecutionProvider"])
    end = time.perf_counter()
    return {
        "anydim": (lambda given: list(model(**given).values()), middle - start),
        "onnxruntime": (lambda given: session.run(None, given), end - middle),
    }


def timed(call: Callable[[], object]) -> float:
    """Seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def streamed(step: Step, layers: int, first: Feeds, count: int) -> float:
    """Seconds of `count` steps, each with the caches that the one before gave."""
    given, total = dict(first), 0.0
    names = [f"{name}_{layer}" for layer in range(layers) for name in ("keys", "values")]
    for _ in range(count):
        start = time.perf_counter()
        results = step(given)
        total += time.perf_counter() - start
        given |= dict(zip(names, results[1:]))
    return total


def in_turns(calls: list[Callable[[], object]], seconds: float = 2.0) -> list[float]:
    """The least time of each of some calls."""
    end, least = time.perf_counter() + seconds, [float("inf")] * len(calls)
    while time.perf_counter() < end:
        least = [min(best, timed(call)) for best, call in zip(least, calls)]
    return least


# ---- rows with caches of their own lengths -------------------------------------------------------


def continuous(given: argparse.Namespace) -> None:
    """Print a line for each way to step rows with caches of different lengths."""
    shape, count = (given.layers, given.heads), given.rows
    places = given.longest + given.prompt + 8
    source = decoder(
        *shape, WIDTH, given.words, places=places, tokens=given.tokens
    ).SerializeToString()
    pasts = np.linspace(given.shortest, given.longest, count).round().astype(int).tolist()
    equal, longest = [sum(pasts) // count] * count, [given.longest] * count
    model = ad.cached(source, ragged={"s": "b"}, threads=given.threads)
    plain = [ad.cached(source, threads=given.threads) for _ in "12"]
    peer = engines(source, given.threads)["onnxruntime"][0]
    apart, same = (_Rows(model, shape, each) for each in (pasts, equal))
    one_by_one = [feeds(*shape, 1, past) for past in pasts]
    wide = [feeds(*shape, count, each[0]) for each in (equal, longest)]
    compare(apart, peer, one_by_one)
    calls: dict[str, Callable[[], object]] = {
        "ragged": apart.step,
        "ragged, row by row": apart.one_by_one,
        "ragged, equal lengths": same.step,
        "ad.cached, equal lengths": kept_at(plain[0], wide[0], equal[0]),
        "ad.cached, padded": kept_at(plain[1], wide[1], longest[0]),
        "onnxruntime, row by row": lambda: [peer(each) for each in one_by_one],
        "onnxruntime, equal lengths": partial(peer, wide[0]),
        "onnxruntime, padded": partial(peer, wide[1]),
        "ragged, with a prompt": partial(apart.step, given.prompt),
        "ragged, and the prompt": lambda: (apart.step(), apart.only(given.prompt)),
    }
    times: dict[str, list[float]] = {name: [timed(call)] for name, call in calls.items()}
    end = time.perf_counter() + given.seconds
    while time.perf_counter() < end:
        for name, call in calls.items():
            times[name].append(timed(call))
    print(f"{count} rows, caches of {pasts[0]} to {pasts[-1]}, {given.threads} threads")
    for name, own in times.items():
        ratio = median(mine / other for mine, other in zip(times["ragged"][1:], own[1:]))
        print(f"{name:28} {median(own[1:]) * 1e3:8.2f} ms   ragged / this {ratio:.2f}")


def checked(path: str, steps: int = 60) -> str:
    """What a random session of rows says of an exported decoder."""
    peer = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    shapes = {each.name: each.shape for each in peer.get_inputs()}
    model = ad.cached(path, ragged="auto", threads=1, room=4)
    results = {each.input: each.result for each in model.caches}
    empty = {name: np.zeros([size if isinstance(size, int) else int(number == 0)
                             for number, size in enumerate(shapes[name])], np.float32)
             for name in results}  # fmt: skip
    random, carried = np.random.default_rng(0), dict[int, Feeds]()
    worst, compared = 0.0, 0
    for _ in range(steps):
        if random.random() < 0.4 or not carried:
            carried[model.join()] = empty
        if random.random() < 0.2 and len(carried) > 1:
            row = int(random.choice(list(carried)))
            model.leave(row)
            del carried[row]
        chosen = [row for row in carried if random.random() < 0.8]
        before = {row: model.length(row) for row in chosen}
        given = {row: {"input_ids": random.integers(0, 50, int(random.choice((1, 1, 1, 2, 5, 17))))}
                 for row in chosen}  # fmt: skip
        for row, own in given.items():
            if "position_ids" in shapes:
                own["position_ids"] = np.arange(len(own["input_ids"])) + before[row]
        made = model.step(given)["logits"]
        for row, logits in zip(chosen, made):
            alone = {name: array[None] for name, array in given[row].items()}
            if "attention_mask" in shapes:
                alone["attention_mask"] = np.ones((1, model.length(row)), np.int64)
            names = [each.name for each in peer.get_outputs()]
            expected = dict(zip(names, peer.run(None, {**alone, **carried[row]})))
            carried[row] = {name: expected[result] for name, result in results.items()}
            right = expected["logits"][0]
            worst = max(worst, float(np.abs(logits - right).max() / np.abs(right).max()))
            compared += 1
    copied = "" if model.in_place else ", caches copied"
    return f"{path}: {compared} results of rows, difference {worst:.1e}{copied}"


class _Rows:
    """Rows of a model with caches of these lengths, and one token for each."""

    def __init__(self, model: CachedRows, shape: tuple[int, int], pasts: list[int]) -> None:
        self.model, self.tokens = model, dict[int, np.ndarray]()
        self.lengths = dict[int, int]()
        for past in pasts:
            given, row = feeds(*shape, 1, past), model.join()
            self.tokens[row], self.lengths[row] = given.pop("ids")[0], past
            model.hold(row, {name: array[0] for name, array in given.items()})
        self.prompt = model.join()

    def step(self, prompt: int = 0) -> dict[str, Any]:
        """A step of all rows at their first lengths; with `prompt` tokens of another row."""
        for row, length in self.lengths.items():
            self.model.forget(row, length)
        return self.model.step({**self.tokens, **self.more(prompt)})

    def one_by_one(self) -> None:
        """The step of all rows in a step for each."""
        for row, length in self.lengths.items():
            self.model.forget(row, length)
            self.model.step({row: self.tokens[row]})

    def only(self, prompt: int) -> object:
        """The step of the other row alone."""
        return self.model.step(self.more(prompt))

    def more(self, prompt: int) -> dict[int, np.ndarray]:
        """The tokens of the other row, from its beginning on."""
        self.model.forget(self.prompt)
        return {self.prompt: np.arange(prompt) % 1000} if prompt else {}


def compare(rows: _Rows, peer: Step, one_by_one: list[Feeds]) -> None:
    """Raise AssertionError for a row whose result is not that of onnxruntime."""
    for own, given in zip(rows.step()["logits"], one_by_one, strict=True):
        right = peer(given)[0][0]
        np.testing.assert_allclose(own, right, rtol=0, atol=3e-5 * max(1, np.abs(right).max()))


def main() -> None:
    """Print a line for each past, and one for the stream."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    for name, value in (("layers", 4), ("heads", 6), ("words", 8192), ("batch", 1), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--past", type=int, nargs="*", default=[0, 64, 512, 2048, 8192])
    parser.add_argument("--stream", type=int, default=200)
    parser.add_argument("--bits", type=int, default=32, choices=(4, 8, 32))
    parser.add_argument("--ragged", action="store_true")
    parser.add_argument("--check", nargs="*", default=[])
    for name, value in (("rows", 16), ("shortest", 10), ("longest", 1000), ("prompt", 200)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--tokens", default="all", choices=TOKENS)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    if given.ragged:
        continuous(given)
    for path in given.check:
        print(checked(path))
    if given.ragged or given.check:
        return
    shape = (given.layers, given.heads)
    network = decoder(*shape, WIDTH, given.words, places=max(given.past, default=0) + 2048)
    plain = network.SerializeToString()
    source = plain if given.bits == 32 else narrowed(network, given.bits).SerializeToString()
    loaded = engines(source, given.threads)
    own, peer = (step for step, _ in loaded.values())
    one = feeds(*shape, given.batch, 3)
    for left, right in zip(own(one), peer(one), strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=3e-5 * max(1, np.abs(right).max()))
    cold = [seconds + timed(partial(step, one)) for step, seconds in loaded.values()]
    print(f"cold           anydim {cold[0]:8.2f} s   onnxruntime {cold[1]:8.2f} s")
    step = ad.cached(source, threads=given.threads)
    for past in given.past:
        at = feeds(*shape, given.batch, past)
        calls = [partial(own, at), partial(peer, at), kept_at(step, at, past)]
        mine, other, kept = in_turns(calls)
        show(f"past {past}", mine, other, kept=kept)
    first = feeds(*shape, given.batch, 0)
    streams = [partial(streamed, each, given.layers, first, given.stream) for each in (own, peer)]
    streams.append(partial(kept_stream, step, first, given.stream))
    step.hold({name: array for name, array in first.items() if name != "ids"})
    mine, other, kept = (min(each) for each in zip(*([call() for call in streams] for _ in "1234")))
    show(f"stream {given.stream}", mine, other, kept=kept)
    if given.bits < 32:
        wide = ad.cached(plain, threads=given.threads)
        pairs = [partial(kept_stream, each, first, given.stream) for each in (step, wide)]
        few, many = (min(each) for each in zip(*([call() for call in pairs] for _ in "1234")))
        show(f"stream {given.stream}", few, many, "its float32")


def show(
    name: str, mine: float, other: float, of: str = "onnxruntime", kept: float | None = None
) -> None:
    """A line of all times; `kept` of caches that stay."""
    ratio = f"ratio {mine / other:.2f}"
    more = "" if kept is None else f"  kept {kept * 1e3:8.2f} ms  ratio {kept / other:.2f}"
    print(f"{name:13}  anydim {mine * 1e3:8.2f} ms  {of} {other * 1e3:8.2f} ms  {ratio}{more}")


if __name__ == "__main__":
    main()
