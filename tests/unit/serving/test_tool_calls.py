"""Promise: calls in answers are the same however the answer comes in pieces."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import pytest

from anydim.serving.tool_calls import ToolCall, ToolFormat, ToolReader

TAGGED, WHOLE = ToolFormat("<tool_call>", "</tool_call>"), ToolFormat()
FIRST = '{"name": "f", "arguments": {"a": "}<\\"", "b": {"c": [1, {}]}}}'
SECOND = '{\n "name" : "g.h", "parameters":{}}'
ANSWERS = {
    "text": "no call <tool_cal", "call": f"<tool_call>{FIRST}</tool_call>",
    "calls": f"so: <tool_call>\n{FIRST}\n</tool_call>\n<tool_call>{SECOND}</tool_call>.",
    "none": "<tool_call>{}</tool_call> text", "other order":
    '<tool_call>{"arguments": {"x": 1}, "name": "f"}</tool_call>', "empty": "",
    "unknown": '<tool_call>{"name": 3}</tool_call>',
}  # fmt: skip


def merged(parts: list[ToolCall]) -> list[tuple[str, object]]:
    found: list[list[str]] = []
    for part in parts:
        if part.name:
            found.append([part.name, ""])
        found[-1][1] += part.arguments
    return [(name, json.loads(arguments)) for name, arguments in found]


def read(form: ToolFormat, text: str, cuts: list[int], in_pieces: bool) -> tuple[str, list]:
    reader, found, calls = ToolReader(form, in_pieces), "", list[ToolCall]()
    bounds = [0, *sorted(cuts), len(text)]
    for begin, end in pairwise(bounds):
        more, parts = reader.read(text[begin:end], False)
        found, calls = found + more, calls + parts
    more, parts = reader.read("", True)
    return found + more, merged(calls + parts)


@pytest.mark.parametrize("name", ANSWERS)
def test_pieces_of_any_sizes_are_the_whole(name: str) -> None:
    text, chance = ANSWERS[name], random.Random(0)
    expected = ToolReader(TAGGED).read(text, True)
    for turn in range(60):
        count = min(turn, len(text))
        cuts = chance.sample(range(len(text)), count) if turn else list(range(len(text)))
        for in_pieces in (False, True):
            found, calls = read(TAGGED, text, cuts, in_pieces)
            assert calls == merged(expected[1])
            assert found.split() == expected[0].split()


@pytest.mark.parametrize("text", (FIRST, f"[{FIRST}, {SECOND}]", f" {SECOND}\n", "text", "[1]", "{",
                                  '{"name": "f"}', "[]", "", f"{FIRST}; {SECOND}"))  # fmt: skip
def test_answers_that_are_calls_as_a_whole(text: str) -> None:
    chance = random.Random(0)
    expected = ToolReader(WHOLE).read(text, True)
    for turn in range(60):
        cuts = chance.sample(range(len(text)), min(turn, len(text)))
        found, calls = read(WHOLE, text, cuts, True)
        if ";" not in text:  # no list of JSON; calls came before this was known
            assert (found, calls) == (expected[0], merged(expected[1]))
        else:
            assert [name for name, _ in calls] == ["f", "g.h"]


def test_arguments_come_before_the_call_is_complete() -> None:
    reader = ToolReader(TAGGED, in_pieces=True)
    assert reader.read('a <tool_call>{"name": "f"', False) == ("a ", [])
    assert reader.read(', "arguments": {"ci', False) == (
        "",
        [ToolCall("f", ""), ToolCall("", '{"ci')],
    )
    assert reader.read('ty": "P', False) == ("", [ToolCall("", 'ty": "P')])
    assert reader.read('aris"}', False) == ("", [ToolCall("", 'aris"}')])
    assert reader.read("}</tool_", False) == ("", [])
    assert reader.read("call> b", True) == (" b", [])


def test_without_a_format_all_is_text() -> None:
    assert ToolReader(None, True).read(ANSWERS["call"], True) == (ANSWERS["call"], [])
