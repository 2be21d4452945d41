"""Promise: an interface that cannot be of a program with a signature is refused before a call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anydim.base.errors import ArtefactError
from anydim.compiler.native.host import host_of
from anydim.sizes import Box, Dim
from tests.unit.runtime.program.tiny import adder

PROGRAM = adder(Box.of(Dim("n", 0, 9), Dim("m", 1, 8)), "n", "m")
INTERFACE = host_of(PROGRAM).interface


def test_what_was_made_is_right() -> None:
    INTERFACE.verify(PROGRAM.signature)
    assert INTERFACE.symbols[-1] == "add" and INTERFACE.held == ()
    kinds = [failure.kind for failure in INTERFACE.failures]
    assert kinds[INTERFACE.bound :] == ["time", "interrupted", "memory"]


def with_failure(**changes: Any) -> dict[str, Any]:
    first, *others = INTERFACE.failures
    return {"failures": (replace(first, **changes), *others)}


@pytest.mark.parametrize("changes", [
    {"words": 0}, {"words": 1 << 40}, {"inputs": -1}, {"inputs": 10_000}, {"shapes": 10_000},
    {"results": ()}, {"results": ((0, 0, 10_000),)}, {"results": ((-8, 0, 0),)},
    {"tables": ((1 << 30, ()),)}, {"numbers": ((-1, 0),)}, {"bound": 999}, {"bound": -1},
    {"functions": {"run": "f"}},
    with_failure(kind="hope"), with_failure(dims={"n": 10_000}), with_failure(dims={"k": 0}),
    with_failure(shapes=()), with_failure(found=-1),
    with_failure(check=replace(INTERFACE.failures[0].check, input=0, axis=7)),
])  # fmt: skip
def test_what_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ArtefactError, match="the interface of tiny has wrong"):
        replace(INTERFACE, **changes).verify(PROGRAM.signature)
