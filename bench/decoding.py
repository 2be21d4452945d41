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
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import onnxruntime

import anydim as ad
from anydim.cached_model import Cached
from bench.networks.narrow import narrowed
from bench.networks.sequences import decoder

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


def main() -> None:
    """Print a line for each past, and one for the stream."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    for name, value in (("layers", 4), ("heads", 6), ("words", 8192), ("batch", 1), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--past", type=int, nargs="*", default=[0, 64, 512, 2048, 8192])
    parser.add_argument("--stream", type=int, default=200)
    parser.add_argument("--bits", type=int, default=32, choices=(4, 8, 32))
    given = parser.parse_args()
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
