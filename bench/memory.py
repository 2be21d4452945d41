"""Arena bytes beside the lower bound, and the time of planning: python -m bench.memory MODEL...

Models are ONNX files; all their dims stay open. At 50 random sizes (batch 1 to 16, other dims
multiples of 32 up to 640) the arena's values are compared with the most bytes that live at once.
"""

from __future__ import annotations

import sys
import time
from random import Random
from statistics import geometric_mean

import anydim as ad
from anydim.passes.memory import STACKED, Lifetime
from anydim.program.segment import ALIGNMENT, Segment
from anydim.sizes import align_up


def lifetimes(segment: Segment) -> list[Lifetime]:
    """The values in the arena of a segment."""
    spans: dict[str, tuple[int, int]] = {}
    for number, site in enumerate(segment.sites):
        for name in site.operands:
            spans[name] = (spans.get(name, (number, number))[0], number)
    held = [buffer for buffer in segment.buffers if buffer.kind == "arena"]
    return [Lifetime(b.name, align_up(b.bytes, ALIGNMENT), *spans[b.name]) for b in held]


def main(paths: list[str]) -> None:
    for path in paths:
        start = time.perf_counter()
        model = ad.compile(path)
        compiled = time.perf_counter() - start
        segment = max(model.program.segments, key=lambda each: len(each.buffers))
        values, box = lifetimes(segment), segment.signature.box
        start = time.perf_counter()
        STACKED.run(values, box, segment.signature.guards)
        planned, random, ratios = time.perf_counter() - start, Random(7), []
        for _ in range(50):
            point = {
                name: random.randint(1, 16) if "batch" in name else 32 * random.randint(1, 20)
                for name in box.names
            }
            live = [
                sum(v.bytes.evaluate(point) for v in values if v.first <= step <= v.last)
                for step in range(len(segment.sites))
            ]
            ratios.append(segment.arena_bytes.evaluate(point) / max(live))
        print(
            f"{path.rsplit('/', 1)[-1]}: {len(values)} values, planned in {planned:.3f} s of"
            f" {compiled:.2f}; to the lower bound {geometric_mean(ratios):.3f}, worst"
            f" {max(ratios):.3f}; a formula of {len(str(segment.arena_bytes))} characters"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
