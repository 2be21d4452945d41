"""Promise: long JSON is read as short JSON is, and holds up no other thread."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from anydim.base.errors import InputError
from anydim.server import json_bodies
from anydim.server.json_bodies import Numbers, parsed, parsed_long
from anydim.server.tensors import asked

NOTHING = memoryview(b"")
VALUES: dict[str, list[Any]] = {
    "INT64": [0, -1, 2**63 - 1, -(2**63), 7], "UINT8": [0, 255, 3], "UINT64": [2**64 - 1, 0],
    "FP32": [0.1, -1e30, 1e300, 3, float("nan"), float("inf"), -0.0], "FP64": [0.1, 1e-310, 5],
    "BOOL": [True, False], "BF16": [0.1, 3],
}  # fmt: skip


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that short JSON passes."""
    for name, value in (("_PIECE", 96), ("_LEAST", 48), ("_WINDOW", 16)):
        monkeypatch.setattr(json_bodies, name, value)


def outcome(read: Any, text: bytes) -> Any:
    """The arrays of a request, or None for an error."""
    try:
        found = asked(read(memoryview(text)), NOTHING)
    except InputError:
        return None
    return found.id, found.outputs, found.parameters, {
        name: (array.dtype, array.shape, array.tobytes()) for name, array in found.inputs.items()
    }  # fmt: skip


def nested(values: list[Any], shape: tuple[int, ...]) -> Any:
    return np.array(values, object).reshape(shape).tolist()


def request(random: np.random.Generator) -> Any:
    """A request with some arrays, flat or nested, and texts that look like structure."""
    rows = []
    for number in range(random.integers(1, 4)):
        shape = tuple(map(int, random.integers(1, 9, random.integers(0, 4))))
        kind = str(random.choice(list(VALUES)))
        values = [VALUES[kind][n] for n in random.integers(0, len(VALUES[kind]), math.prod(shape))]
        data = values if random.random() < 0.5 or not shape else nested(values, shape)
        row = {"name": f'x{number}[1,2]"\\{{:', "datatype": kind, "shape": shape, "data": data}
        rows.append(dict(sorted(row.items(), reverse=random.random() < 0.5)))
    return {"id": "[1, 2, 3]" * 9, "inputs": rows, "parameters": {"x": "\\\\"}}


def test_long_json_is_read_as_short_json() -> None:
    random, done = np.random.default_rng(0), 0
    for _ in range(400):
        indent, between = random.choice([None, 1]), random.choice([",", " ,\n"])
        text = json.dumps(request(random), indent=indent, separators=(between, " : ")).encode()
        expected = outcome(parsed, text)
        assert outcome(parsed_long, text) == expected, text
        done += expected is not None
    assert done > 300


def test_malformed_long_json_is_refused_as_short_json_is() -> None:
    random, refused = np.random.default_rng(1), 0
    for _ in range(2000):
        data = bytearray(json.dumps(request(random)).encode())
        place = int(random.integers(0, len(data)))
        kind = random.integers(0, 3)
        if kind == 0:
            del data[place : place + int(random.integers(1, 5))]
        elif kind == 1:
            data[place] = int(random.choice(np.frombuffer(b'[],:{}"0 -n', np.uint8)))
        else:
            data[place:place] = data[place : place + 5]
        expected, found = outcome(parsed, bytes(data)), outcome(parsed_long, bytes(data))
        if expected is None:
            assert found is None, bytes(data)
        elif found is not None:  # nested as another shape, or true among integers: refused if long
            assert found == expected, bytes(data)
        refused += found is None
    assert 500 < refused < 1900


@pytest.mark.parametrize(("data", "why"), (
    ("[1,2,3,4,5]", "got 5"), ("[1,2,3,]", "got 3"), ("[1,2,3,4,]", "no flat list"),
    ("[1 [,2,3,4]]", "comma"), ("[[1],[2],[3],[4]]", "no flat list"), ("[[1,2],[3,4]", "no"),
    ("[1,2,null,4]", "object"), ("[1,2,3.5,4]", "float64"), ("[1,2,3,9223372036854775808]", "type"),
    ("[" + "1" * 200 + ",2,3,4]", "element of"), ("[]", "got 0"), ("[,1,2,3,4]", "no list"),
))  # fmt: skip
def test_a_wrong_long_list(data: str, why: str) -> None:
    data = data.replace("[", "[" + " " * 48, 1)
    text = '{"inputs":[{"name":"x","datatype":"INT64","shape":[2,2],"data":DATA}]}'
    text = text.replace("DATA", data)
    with pytest.raises(InputError, match=why):
        asked(parsed_long(memoryview(text.encode())), NOTHING)


def test_a_list_is_kept_for_later_only_as_a_value_of_an_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_bodies, "_LEAST", 2)
    text = b'{"a": [1, 2, 3], "b": [["x", 1]], "c": "[1,2,3]", "d": [{"e": [4]}]}'
    found = parsed_long(memoryview(text))
    assert isinstance(found["a"], Numbers) and isinstance(found["d"][0]["e"], Numbers)
    assert found["b"] == [["x", 1]] and found["c"] == "[1,2,3]"


@pytest.mark.parametrize("part", ('"",', '[],"",', '{"":0},', '"a",'))
def test_long_json_of_other_things_is_refused(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_MOST_MARKS", "_MOST_REST", "_MOST_STRINGS"):
        monkeypatch.setattr(json_bodies, name, 1 << 12)
    text = '{"inputs":[%s0]}' % (part * (1 << 13))
    with pytest.raises(InputError, match="most of it is no list of numbers"):
        parsed_long(memoryview(text.encode()))


def test_reading_long_json_leaves_the_interpreter_to_other_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    values = np.random.default_rng(0).standard_normal(1 << 18)
    text = json.dumps({"inputs": [
        {"name": "x", "datatype": "FP64", "shape": values.shape, "data": values.tolist()}
    ]}).encode()  # fmt: skip
    found: list[Any] = []
    thread = threading.Thread(
        target=lambda: found.append(asked(parsed_long(memoryview(text)), NOTHING))
    )
    before, turns = sys.getswitchinterval(), 0
    sys.setswitchinterval(5e-4)
    try:
        thread.start()
        while thread.is_alive():
            time.sleep(1e-4)
            turns += 1
    finally:
        sys.setswitchinterval(before)
    assert turns > 9
    assert found[0].inputs["x"].tobytes() == values.tobytes()
