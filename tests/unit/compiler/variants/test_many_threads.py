"""Promise: 8 threads at random sizes get right bits while bodies come and go; memory is flat."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from pathlib import Path

import numpy
import pytest

from tests.unit.compiler.variants.models import depthwise, image

SECONDS, LIMIT, MOST_MORE = 60.0, 8, 24 << 20  # bytes


def resident() -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_eight_threads_at_random_sizes() -> None:
    generic, heights = depthwise("generic"), range(3, 40)
    wanted = {height: generic(x=image(height))["y"].tobytes() for height in heights}
    given = {height: image(height) for height in heights}
    model = depthwise(f"adaptive(limit={LIMIT}, after=2, most=1)")
    failed: list[int] = []
    memory: list[int] = []
    end = time.monotonic() + SECONDS

    def call(seed: int) -> None:
        chance = random.Random(seed)
        while time.monotonic() < end and not failed:
            height = chance.choice(heights)
            result: numpy.ndarray = model(x=given[height])["y"]
            if result.tobytes() != wanted[height]:
                failed.append(height)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(1)
        memory.append(resident())
        places = model._serving.call_sites if model._serving is not None else ()
        assert all(len(place.made) <= LIMIT for place in places)
    assert not failed
    third = len(memory) // 3
    assert max(memory[2 * third :]) - max(memory[: third + 1]) < MOST_MORE
    model.serve_by("generic")
