"""A process that has no more memory than models say that they need.

    python tests/models/limited_process.py FILE...

Every file is a saved model with one dim `n` and one input `x` [n, WIDTH] of float32. Prints a line
of JSON for each: how many calls went well, what the error said, and a result after it.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from pathlib import Path

import numpy as np

import anydim as ad

WIDTH = 256
SLACK = 1 << 20  # bytes, for Python and whole pages
_UNLIMITED = resource.RLIM_INFINITY


def address_space() -> int:
    """Bytes of address space that this process takes."""
    return int(Path("/proc/self/statm").read_text("utf-8").split()[0]) * resource.getpagesize()


def needs(model: ad.LoadedModel, n: int) -> int:
    """What its formula says, and what goes in and comes out."""
    tensors = [*model.inputs, *model.outputs]
    return model.plan(n=n).bytes + sum(4 * spec.shape[1].evaluate({"n": n}) * n for spec in tensors)


def called(model: ad.LoadedModel, n: int) -> bool:
    """Whether a call gives numbers; what it looks at takes no memory."""
    x = np.empty((n, WIDTH), np.float32)
    x[:] = np.arange(n, dtype=np.float32)[:, None]
    (y,) = model(x=x).values()
    return bool(len(y) == n and np.isfinite(y[-1:]).all())


def outcome(path: str) -> dict[str, object]:
    model = ad.load(path, verify=True)
    bound = model.dims.dim("n").hi
    assert bound is not None
    sizes = [1, bound, *np.random.default_rng(0).integers(0, bound + 1, 12).tolist(), bound]
    most = max(needs(model, n) for n in {*sizes})
    called(model, 1)
    model.trim()
    before = address_space()
    resource.setrlimit(resource.RLIMIT_AS, (before + most + SLACK, _UNLIMITED))
    well = sum(called(model, n) for n in sizes)
    model.trim()
    x = np.ones((bound, WIDTH), np.float32)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + most // 3, _UNLIMITED))
    try:
        model(x=x)
        error = "none"
    except ad.OutOfMemoryError as caught:
        error = str(caught)
    right = called(model, bound // 20)
    resource.setrlimit(resource.RLIMIT_AS, (_UNLIMITED, _UNLIMITED))
    named = [int(number) for number in re.findall(r"(\d+) bytes", error)]
    return {"well": well, "calls": len(sizes), "error": error, "bytes": named, "after": right}


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(json.dumps(outcome(path)))
