"""What a program with parts on devices costs beyond its work: microseconds a launch and a copy.

python -m bench.devices

A chain of launches on one device, of 1 to 64, of arrays of one row, on the null device (by way of
Python), the processor as a device and an OpenCL device where there is one (by native verbs), beside
the same chain on the host. Medians of calls.
"""

from __future__ import annotations

import time
from statistics import median

import numpy

import anydim as ad
from anydim.base.errors import DeviceError
from anydim.runtime.devices.table import open_device
from bench.arguments import no_words

LENGTHS = (1, 8, 64)
CALLS = 400
NAME = "accel"  # of the device in programs


def chain(length: int, device: str) -> ad.Builder:
    """So many launches: a reduction after each product, which no kernel takes together."""
    g = ad.Builder(f"chain{length}")
    n = g.dim("n", 0, 64)
    x = g.input("x", ad.float32, (n, 16))
    weights = numpy.eye(16, dtype=numpy.float32)
    with g.on(NAME if device else ""):
        for _ in range((length + 1) // 2):
            x = g.softmax(g.matmul(x, weights))
    g.output("y", x)
    return g


def microseconds(model: ad.Model) -> float:
    """The median of calls at one row, by the least of three rounds."""
    given = {"x": numpy.ones((1, 16), numpy.float32)}
    rounds = []
    for _ in range(3):
        times = []
        for _ in range(CALLS):
            start = time.perf_counter_ns()
            model(**given)
            times.append(time.perf_counter_ns() - start)
        rounds.append(median(times) / 1000)
    return min(rounds)


def present() -> tuple[str, ...]:
    """The devices that are measured; '' is the host."""
    try:
        open_device("opencl")
    except DeviceError:
        return "", "null", "cpu"
    return "", "null", "cpu", "opencl"


def main() -> None:
    """Print a table."""
    devices = present()
    heads = "".join(f"{each or 'host':>10}" for each in devices)
    print(f"{'launches':>10}{heads}   us a call")
    found: dict[tuple[str, int], float] = {}
    counted = []
    for length in LENGTHS:
        for device in devices:
            model = ad.compile(chain(length, device), devices={NAME: device} if device else None)
            found[device, length] = microseconds(model)
            launches = len(model.program.sites)
        counted.append(launches)
        row = "".join(f"{found[device, length]:10.1f}" for device in devices)
        print(f"{launches:>10}{row}")
    first, last = LENGTHS[0], LENGTHS[-1]
    for device in devices[1:]:
        more = found[device, last] - found[device, first]
        print(f"{device}: {more / (counted[-1] - counted[0]):.2f} us a launch")


if __name__ == "__main__":
    no_words(__doc__)
    main()
