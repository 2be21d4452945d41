"""Promise: every public method does on every kind of model what it says, or says why it cannot.

A method or attribute without a row fails `test_every_name_has_a_row`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

import anydim as ad
from anydim.api.model import Model
from anydim.serving import AsyncBatcher, Batcher
from tests.unit.model_kinds.kinds import KINDS
from tests.unit.model_kinds.rows import BATCHER, ONLY_COMPILED, ROWS, Case

_STATE, _STRINGS, _NONE = "writes to '", "works on strings", "no native part"
_BATCHERS = ("batcher", "async batcher")
REFUSED: Mapping[tuple[str, str], str] = {
    **{
        (row, kind): _STATE
        for kind in ("stateful", "stateful complex", "writes")
        for row in ("map", *_BATCHERS)
    },
    **{
        (row, kind): _STRINGS
        for kind in ("strings", "strings alone")
        for row in ("out", "map", "export")
    },
    **{
        (row, kind): "lists"
        for kind in ("lists in", "lists out")
        for row in ("out", "map", "profile", "trace", *_BATCHERS)
    },
    **{
        (row, "strings alone"): _NONE
        for row in (
            "save",
            "session",
            "plan",
            "memory, memory_limit, limit_memory, largest",
            "explain",
            "check",
            "profile",
            "trace",
            "record",
            "limit_time",
            "keep_on_device",
            "set_sizes",
            "devices",
            "program, story, index_ranges",
            "graph, report, show",
            "serve_by, prepare",
            "tune, gains, prepare_recorded",
            "dims, input_dims",
        )
    },
    ("check", "ragged"): "ragged batches",
    ("check", "lists in"): "draws arrays",
    ("export", "device"): "has parts on 'a'",
    ("serve_by, prepare", "device"): "on devices",
    ("tune, gains, prepare_recorded", "device"): "on devices",
}


def _slow(row: str, kind: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if row in SLOW and kind != "complex" else []


def test_every_name_has_a_row() -> None:
    rows = {name for row in ROWS for name in row.split(", ")}
    for kind in (Model, ad.LoadedModel):
        assert {name for name in dir(kind) if not name.startswith("_")} <= rows
    extra = {"level", "levels", "about", "container"}  # of a file, which instances have
    assert not extra & rows
    assert {n for n in dir(Batcher) if not n.startswith("_")} == BATCHER
    asynchronous = {n for n in dir(AsyncBatcher) if not n.startswith("_")}
    assert asynchronous == BATCHER | {"outcome", "release"}


SLOW = {"serve_by, prepare", "tune, gains, prepare_recorded"}  # they compile variants
CASES = [
    pytest.param(row, kind, form, marks=_slow(row, kind))
    for row in ROWS for kind in KINDS for form in ("compiled", "loaded")
    if form == "compiled" or (row not in ONLY_COMPILED and kind != "strings alone")
]  # fmt: skip


@pytest.mark.parametrize("row, kind, form", CASES)
def test_a_method_of_a_kind(row: str, kind: str, form: str, tmp_path: Path) -> None:
    case = Case(kind, form, tmp_path)
    text = REFUSED.get((row, kind))
    if text is None:
        ROWS[row](case)
        return
    with pytest.raises(ad.OptionError, match=text) as caught:
        ROWS[row](case)
    assert caught.value.hint, "an error says what to do"
