"""The largest of the bytes at each moment: proofs leave out what others reach, of short sizes."""

from __future__ import annotations

import pytest

from anydim.runtime.program import region_plan
from anydim.runtime.program.region_plan import largest
from anydim.sizes import Box, Dim, Size, as_size

BOX = Box.of(Dim("n", 1), Dim("m", 1))


def long(factor: int) -> Size:
    """A size of some thousand characters."""
    n, m = as_size("n"), as_size("m")
    size = as_size(0)
    for number in range(60):
        size = size + factor * ((n + number) // (7 + number)) * ((m + number) // 3)
    return size


def test_what_another_size_reaches_is_left_out() -> None:
    n, m = as_size("n"), as_size("m")
    assert largest([n * m, n * m + (n + 1) // 2], BOX) == n * m + (n + 1) // 2


def test_long_sizes_are_not_compared_by_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan of a file with twelve such sizes took 20 s."""

    def prove(*asked: object) -> None:
        raise AssertionError("a proof of long sizes")

    monkeypatch.setattr(region_plan, "prove", prove)
    n, m = as_size("n"), as_size("m")
    sizes = [long(2), 3 * ((n + 5) // 3) * ((m * n + 4) // 9)]
    found = largest(sizes, BOX)
    at = {"n": 20, "m": 31}
    assert len(str(sizes[0])) > 2000
    assert found.evaluate(at) == max(size.evaluate(at) for size in sizes)
