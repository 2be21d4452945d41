"""Promise: an image is what it says, or is refused before anything of it is mapped to run."""

from __future__ import annotations

import pytest

from anydim.base.errors import ArtefactError, InternalError
from anydim.runtime.image import head, head_bytes, map_bytes, read_head

BODY = bytes(100)
LENGTH = head_bytes(2) + len(BODY)
ENTRIES = (head_bytes(2), LENGTH - 1)
GOOD = head("x86_64", LENGTH, ENTRIES, bytes(range(32))) + BODY


def test_a_head_reads_back() -> None:
    found = read_head(GOOD)
    assert (found.platform, found.length, found.entries) == ("x86_64", LENGTH, ENTRIES)
    assert found.stamp == bytes(range(32))


@pytest.mark.parametrize(
    "data",
    [
        b"", GOOD[:10], GOOD[:-1], GOOD + b"x", b"x" + GOOD[1:], GOOD[:16] + b"\7" + GOOD[17:],
        GOOD[:20] + b"\xff\xff\xff\xff" + GOOD[24:],
        head("x86_64", LENGTH, (0, LENGTH - 1), bytes(32)) + BODY,
        head("x86_64", LENGTH, (head_bytes(2), LENGTH), bytes(32)) + BODY,
        head("x86_64", LENGTH, (head_bytes(2), 2**63), bytes(32)) + BODY,
    ],
    ids=["empty", "short", "cut", "longer", "magic", "architecture", "entries", "in the head",
         "behind the end", "far"],
)  # fmt: skip
def test_what_is_no_image(data: bytes) -> None:
    with pytest.raises(ArtefactError, match="the code"):
        map_bytes(data)


def test_a_stamp_has_32_bytes() -> None:
    with pytest.raises(InternalError):
        head("x86_64", 100, (), b"short")
