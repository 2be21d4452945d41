"""What choosing a body costs: nanoseconds a launch, in native code, of a kernel that does nothing.

python -m bench.dispatch
"""

from __future__ import annotations

import ctypes
import time
from statistics import median

import numpy

from anydim.compiler.kernels import ir
from anydim.compiler.native.body import Body, parameter
from anydim.compiler.native.threads import LAUNCH, threads_code
from anydim.compiler.targets.targets import target
from anydim.runtime import variant_tables
from anydim.runtime.variant_tables import Choice, Site
from bench.arguments import no_words

TIMES, ROUNDS = 200_000, 15
SIZES = (1, 2, 4, 12)  # of a launch
BODIES = (1, 8, 64)


def code() -> ir.Library:
    """`again(entry, arguments, size, times)`: launches with the last size in turns, and `empty`."""
    body, names = Body(), ("entry", "arguments", "place", "bodies", "times")
    entry, arguments, place, bodies, times = map(parameter, names)
    with body.range(0, times) as number:
        body.store(arguments, place, number - number / bodies * bodies)
        body.call(LAUNCH, 0, entry, arguments, 1, 1, 0, 0, 0)
    again = body.function("again", names, public=True, result=False)
    empty = Body().function("empty", ("a", "b", "c", "d"), public=True, result=False)
    return ir.Library("dispatch", lambda: (*threads_code().functions, again, empty), "of a bench")


def main() -> None:
    """Print a table."""
    made = target("llvm")
    assert made.load is not None
    objects = made.compile(made.sources([code()], made.processor))
    loaded = made.load(objects.code.values(), ["again", "empty"])
    again = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 5)(loaded.address("again"))
    empty = loaded.address("empty")

    def nanoseconds(entry: int, sizes: int, bodies: int) -> float:
        arguments = numpy.zeros(2 + sizes + variant_tables.MORE, numpy.int64)
        found = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            again(entry, arguments.ctypes.data, 1 + sizes, bodies, TIMES)
            found.append((time.perf_counter() - start) / TIMES)
        return median(found) * 1e9

    print("nanoseconds a launch; sizes of it   " + "".join(f"{n:>8}" for n in SIZES))
    print(f"{'one body, no table':36}" + "".join(f"{nanoseconds(empty, n, 1):8.1f}" for n in SIZES))
    for bodies in BODIES:
        row = []
        for sizes in SIZES:
            choice = Choice(Site(empty, 2, sizes + 1))
            choice.change(
                variant_tables.VariantEntry((*[0] * (sizes - 1), number, 1), empty, 1, 1, 0)
                for number in range(bodies)
            )
            row.append(nanoseconds(choice.entry, sizes, bodies))
        print(f"{f'a table of {bodies}, all hits':36}" + "".join(f"{ns:8.1f}" for ns in row))
    for bodies in BODIES[:2]:
        row = []
        for sizes in SIZES:
            choice = Choice(Site(empty, 2, sizes + 1))
            spans = (
                variant_tables.Span(
                    (*[0] * (sizes - 1), number, 1), (*[9] * (sizes - 1), number, 1)
                )
                for number in range(bodies)
            )
            choice.change(
                variant_tables.VariantEntry(s, empty, variant_tables.AS_LAUNCHED, 1, 0)
                for s in spans
            )
            row.append(nanoseconds(choice.entry, sizes, bodies))
        print(f"{f'{bodies} for spans, all hits':36}" + "".join(f"{ns:8.1f}" for ns in row))
    for watching, name in ((False, "a miss"), (True, "a miss that is counted")):
        row = []
        for sizes in SIZES:
            choice = Choice(Site(empty, 2, sizes + 1), None, watching)
            row.append(nanoseconds(choice.entry, sizes, 8))
        print(f"{name:36}" + "".join(f"{ns:8.1f}" for ns in row))


if __name__ == "__main__":
    no_words(__doc__)
    main()
