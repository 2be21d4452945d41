"""Promise: bounds and steps of a Slice may be any 64-bit numbers; they are clamped to the axis."""

from __future__ import annotations

from itertools import product

import numpy
import pytest

import anydim as ad
from tests.unit.compiler.frontends.models import model, node

BOUNDS = (0, 1, -2, 7, 2**31 - 1, 2**62, 2**63 - 1, -(2**31), -(2**63) + 1, -(2**63))
STEPS = (1, 2, -1, -3, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63))


def sliced(x: numpy.ndarray, start: int, end: int, step: int) -> numpy.ndarray:
    """The standard's text: positions in turn, after both bounds are clamped."""
    n = len(x)
    first, last = (bound + n if bound < 0 else bound for bound in (start, end))
    if step > 0:
        return x[list(range(min(max(first, 0), n), min(max(last, 0), n), step))]
    return x[list(range(min(max(first, 0), n - 1), min(max(last, -1), n - 1), step))]


@pytest.mark.parametrize("step", STEPS)
def test_any_numbers(step: int) -> None:
    pairs = list(product(BOUNDS, BOUNDS))[::3]
    nodes = [node(f"y{k} = Slice(x, s{k}, e{k}, axis, step)") for k in range(len(pairs))]
    bounds = {
        f"{name}{k}": [bound] for k, pair in enumerate(pairs) for name, bound in zip("se", pair)
    }
    made = model(
        nodes, ["x f[n]"], [f"y{k}" for k in range(len(pairs))], axis=[0], step=[step], **bounds
    )
    compiled = ad.compile(made)
    for n in (0, 1, 2, 7, 8):
        x = numpy.arange(n, dtype=numpy.float32)
        found = compiled(x)
        for k, (start, end) in enumerate(pairs):
            expected = sliced(x, start, end, step)
            numpy.testing.assert_array_equal(found[f"y{k}"], expected, f"{n}: {start, end, step}")
