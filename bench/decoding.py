"""W6, a step of a decoder with a cache, beside onnxruntime: python -m bench.decoding

    python -m bench.decoding [--layers 4] [--heads 6] [--words 8192] [--batch 1] [--threads 1]
                             [--past 0 64 200 500 1000] [--stream 200] [--bits 4]

gpt2-like layers of `heads` x 64 with random weights, one new word a call, caches [batch, heads,
past, 64] as inputs and outputs. `cold` is the time from the file to the first result, in this
process. `stream` is the sum over calls that each take the caches of the call before, from an empty
one on. At single pasts both engines are called in turns, and the least of their times counts.
Results are compared first. With `--bits` 8 or 4 weights are those of MatMulNBits in blocks of 32,
and the last line is the stream beside that of the float32 model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import onnxruntime

import anydim as ad
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
    parser.add_argument("--past", type=int, nargs="*", default=[0, 64, 200, 500, 1000])
    parser.add_argument("--stream", type=int, default=200)
    parser.add_argument("--bits", type=int, default=32, choices=(4, 8, 32))
    given = parser.parse_args()
    shape = (given.layers, given.heads)
    network = decoder(*shape, WIDTH, given.words, places=2048)
    plain = network.SerializeToString()
    source = plain if given.bits == 32 else narrowed(network, given.bits).SerializeToString()
    loaded = engines(source, given.threads)
    own, peer = (step for step, _ in loaded.values())
    one = feeds(*shape, given.batch, 3)
    for left, right in zip(own(one), peer(one), strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=3e-5 * max(1, np.abs(right).max()))
    cold = [seconds + timed(partial(step, one)) for step, seconds in loaded.values()]
    print(f"cold           anydim {cold[0]:8.2f} s   onnxruntime {cold[1]:8.2f} s")
    for past in given.past:
        at = feeds(*shape, given.batch, past)
        mine, other = in_turns([partial(own, at), partial(peer, at)])
        show(f"past {past}", mine, other)
    first = feeds(*shape, given.batch, 0)
    turns = [[streamed(s, given.layers, first, given.stream) for s in (own, peer)] for _ in "123"]
    show(f"stream {given.stream}", *(min(turn) for turn in zip(*turns)))
    if given.bits < 32:
        wide = engines(plain, given.threads)["anydim"][0]
        both = [
            [streamed(s, given.layers, first, given.stream) for s in (own, wide)] for _ in "123"
        ]
        show(f"stream {given.stream}", *(min(turn) for turn in zip(*both)), "its float32")


def show(name: str, mine: float, other: float, of: str = "onnxruntime") -> None:
    """A line of both times."""
    ratio = f"ratio {mine / other:.2f}"
    print(f"{name:13}  anydim {mine * 1e3:8.2f} ms  {of} {other * 1e3:8.2f} ms  {ratio}")


if __name__ == "__main__":
    main()
