"""Promise: records print and parse back equal, and a text that says no record is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anydim.base.dtypes import float32
from anydim.base.errors import ArtefactError, InternalError
from anydim.deploy.records import parse_json, parse_record, print_record
from anydim.deploy.saved import SavedArray
from anydim.runtime.cpu import Level
from anydim.runtime.lists import Listed, StructurePort
from anydim.runtime.program.program_reports import ProgramReports
from anydim.runtime.program.region import CallStep, FindStep, Region
from anydim.runtime.signature import Signature, TensorSpec
from anydim.sizes import Box, Dim, Guard, parse
from tests.unit.deploy.kinds import KINDS
from tests.unit.runtime.forests import BUSH, PARITY, TREE

N = parse("n")
SIGNATURE = Signature(
    "made", Box.of(Dim("n", 1, 9), Dim("m"), constraints=(parse("n - m"),)),
    (TensorSpec("x", float32, (N, parse("3*n + (m + 1)//2"))),), (TensorSpec("y", float32, (N,)),),
    (Guard(N, "==", parse("m"), "because"),),
)  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_programs_come_back_equal(name: str) -> None:
    import anydim as ad

    model = ad.compile(KINDS[name].build())
    story = model.story
    text = print_record(story)
    again = parse_record(ProgramReports, text)
    assert again == story
    assert print_record(again) == text
    assert again.explain(details=True) == model.explain(details=True)


def test_a_signature_comes_back_equal() -> None:
    assert parse_record(Signature, print_record(SIGNATURE)) == SIGNATURE


def test_sets_and_mappings_are_in_order() -> None:
    level = Level("x", "x86_64", frozenset("fedcba"))
    assert b'["a","b","c","d","e","f"]' in print_record(level)
    assert parse_record(Level, print_record(level)) == level
    assert parse_record(Listed, print_record(Listed("a", "b", True))) == Listed("a", "b", True)


@pytest.mark.parametrize("port", [TREE, BUSH, PARITY])
def test_structure_inputs_come_back_equal(port: StructurePort) -> None:
    assert parse_record(StructurePort, print_record(port)) == port


def changed(path: str, value: Any) -> bytes:
    """The signature's text with another value at a place."""
    whole = json.loads(print_record(SIGNATURE))
    at = whole
    path = path.replace("record/", "signatures/0/") if path != "record" else path
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    for part in parents:
        at = at[part]
    if value is DROPPED:
        del at[last]
    else:
        at[last] = value
    return json.dumps(whole).encode()


DROPPED = object()


@pytest.mark.parametrize(
    "path, value, expected",
    [
        ("record/name", 5, "Signature.name: expected a text, got 5"),
        ("record/name", None, "expected a text"),
        ("record/name", DROPPED, "lacks 'name'"),
        ("record/other", 1, "has no 'other'"),
        ("record/box/dims/0/lo", "1", "Box.dims: Dim.lo: expected an integer"),
        ("record/box/dims/0/lo", True, "expected an integer"),
        ("record/box/dims/0/lo", 2**70, "64 bits"),
        ("record/box/dims/0/lo", -1, "is negative"),
        ("record/box/dims/0/lo", 10, "below the lower bound"),
        ("record/box/dims/0/name", "a b", "a b"),
        ("record/box/dims", [], "not a dim"),
        ("record/box", [], "expected a Box"),
        ("record/inputs", {}, "expected a list"),
        ("record/inputs/0/dtype", "float99", "element type"),
        ("record/inputs/0/shape/0", 99, "number of a size"),
        ("record/inputs/0/shape/0", -1, "number of a size"),
        ("record/inputs/0/shape/0", "n", "number of a size"),
        ("record/guards/0/relation", 1, "expected a text"),
        ("sizes/0", "n +", "size expression"),
        ("sizes/0", "(" * 100 + "n" + ")" * 100, "nested too deeply"),
        ("sizes/0", "n" * 70000, "too long"),
        ("sizes/0", 7, "no texts"),
        ("sizes", {}, "no texts"),
        ("signatures", {}, "no list"),
        ("record", 1, "number of a signature"),
        ("more", {}, "not what this version"),
    ],
)  # fmt: skip
def test_what_is_no_record(path: str, value: Any, expected: str) -> None:
    with pytest.raises(ArtefactError) as caught:
        parse_record(Signature, changed(path, value))
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[" * 100_000, b"\xff", b"nan", b"[NaN]", b"[1.5]", b"[" + b"9" * 10_000 + b"]"],
)
def test_what_is_no_text(text: bytes) -> None:
    with pytest.raises(ArtefactError):
        parse_json(text)


def test_a_union_says_which_it_is() -> None:
    region = Region(SIGNATURE, frozenset(), {}, {}, (FindStep("a", ("n",)), CallStep(0, (), ())))
    text = print_record(region)
    assert parse_record(Region, text) == region
    expected = r"Region\.steps: expected one of SegmentStep, FindStep"
    with pytest.raises(ArtefactError, match=expected):
        parse_record(Region, text.replace(b'"is":"FindStep"', b'"is":"Region"'))
    made = SavedArray("a", float32, (2, 3), "d")
    assert parse_record(SavedArray, print_record(made)) == made
    assert made.bytes == 24


def test_what_has_no_text_is_our_bug() -> None:
    with pytest.raises(InternalError, match="complex"):
        print_record(SavedArray("a", float32, (1j,), "d"))  # type: ignore[arg-type]
