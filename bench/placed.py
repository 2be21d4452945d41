"""A program whose sizes choose its device, beside the host and the device alone.

    python -m bench.placed opencl:0        the host with one thread; what is measured is kept

prints microseconds at sizes from 1 to 4096, the least of rounds in which the three take turns.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy

import anydim as ad

SIZES = (1, 4, 16, 64, 128, 256, 384, 512, 640, 768, 1024, 1536, 2048, 4096)
_SECONDS = 0.3  # at a size
_COLUMNS = 256


def net() -> ad.Builder:
    """Two rounds of elementary functions and a softmax, then a product; rows free."""
    g = ad.Builder("net")
    x = g.input("x", ad.float32, (g.dim("n", 1, max(SIZES)), _COLUMNS))
    drawn = numpy.random.default_rng(0).normal(size=(_COLUMNS, _COLUMNS))
    for _ in range(2):
        x = g.softmax(g.tanh(g.erf(g.tanh(g.sin(x)))), axis=-1)
    x = g.matmul(x, g.constant((drawn / 16).astype(numpy.float32)))
    g.output("y", g.softmax(x, axis=-1))
    return g


def times(models: list[ad.Model], given: numpy.ndarray) -> list[float]:
    """The least seconds of each; it is called twice in a turn, and the second call counts."""
    best = [float("inf")] * len(models)
    end = perf_counter() + _SECONDS
    turn = 0
    while perf_counter() < end or turn < 3:
        turn += 1
        for number in sorted(range(len(models)), key=lambda n: (n + turn) % len(models)):
            models[number](x=given)
            begin = perf_counter()
            models[number](x=given)
            best[number] = min(best[number], perf_counter() - begin)
    return best


def main(device: str) -> None:
    """Print the table."""
    host = ad.compile(net(), threads=1, strategy="generic")
    there = ad.compile(net(), threads=1, devices={"accel": device}, placement={"*": "accel"})
    chosen = ad.compile(
        net(), threads=1, devices={"accel": device}, placement="auto", strategy="generic"
    )
    print(
        "\n".join(line for line in chosen.explain(details=True).splitlines() if "placement" in line)
    )
    print(f"{'n':>6}{'host':>10}{'device':>10}{'by size':>10}{'/ best':>8}")
    for rows in SIZES:
        given = numpy.random.default_rng(rows).normal(size=(rows, _COLUMNS)).astype(numpy.float32)
        found = times([host, there, chosen], given)
        row = "".join(f"{1e6 * seconds:10.1f}" for seconds in found)
        print(f"{rows:6}{row}{found[2] / min(found[:2]):8.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device", nargs="?", default="opencl:0")
    main(parser.parse_args().device)
