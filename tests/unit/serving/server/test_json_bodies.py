"""Promise: long JSON is read as short JSON is, and holds up no other thread."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest

from anydim.base.errors import InputError
from anydim.serving.server import json_bodies
from anydim.serving.server.json_bodies import Numbers, parse_object, parsed_long
from anydim.serving.server.tensors import parse_request

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
        found = parse_request(read(memoryview(text)), NOTHING)
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
        expected = outcome(parse_object, text)
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
        expected, found = outcome(parse_object, bytes(data)), outcome(parsed_long, bytes(data))
        assert found == expected, bytes(data)
        refused += found is None
    assert 500 < refused < 1900


@pytest.mark.parametrize(("data", "why"), (
    ("[1,2,3,4,5]", "got 5"), ("[1,2,3,]", "got 3"), ("[1,2,3,4,]", "no flat list"),
    ("[1 [,2,3,4]]", "comma"), ("[[1],[2],[3],[4]]", "no flat list"), ("[[1,2],[3,4]", "no"),
    ("[1,2,null,4]", "null"), ("[1,2,3.5,4]", "floating"), ("[1,2,3,9223372036854775808]", "fit"),
    ("[1,2,true,4]", "true or false"),
    ("[" + "1" * 200 + ",2,3,4]", "element of"), ("[]", "got 0"), ("[,1,2,3,4]", "no list"),
))  # fmt: skip
def test_a_wrong_long_list(data: str, why: str) -> None:
    data = data.replace("[", "[" + " " * 48, 1)
    text = '{"inputs":[{"name":"x","datatype":"INT64","shape":[2,2],"data":DATA}]}'
    text = text.replace("DATA", data)
    with pytest.raises(InputError, match=why):
        parse_request(parsed_long(memoryview(text.encode())), NOTHING)


def of(datatype: str, shape: Any, data: str) -> bytes:
    """A request with a list that is long."""
    return (f'{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":{json.dumps(shape)},'
            f'"data":{data}}}]}}').encode()  # fmt: skip


@pytest.mark.parametrize(("datatype", "shape", "data", "expected"), (
    ("UINT64", [2], "[1, 9223372036854775808]", [1, 2**63]), ("UINT64", [1], "[-1]", None),
    ("UINT64", [1], "[18446744073709551616]", None), ("FP32", [2], f"[1, {10**20}]", [1, 1e20]),
    ("FP32", [1], "[1" + "0" * 400 + "]", None), ("INT8", [2], "[127, 128]", None),
    ("INT64", [2], "[1, true]", None), ("BOOL", [2], "[true, 1]", None),
    ("FP32", [50, 0], "[" + ",".join(["[]"] * 50) + "]", np.zeros((50, 0))),
    ("FP32", [50, 0], "[" + ",".join(["[]"] * 49) + "]", None),
    ("FP32", [0], "[" + " " * 900 + "]", []), ("FP32", [2, 0, 9], "[[],[]]", np.zeros((2, 0, 9))),
    ("FP32", [2], "[1," + " \n" * 900 + "2]", [1, 2]), ("FP32", [1], "[1" + " " * 900 + "2]", None),
    ("FP32", [0, 2**31 - 1, 0], "[]", np.zeros((0, 2**31 - 1, 0))),
    ("FP32", [0, *[2**31 - 1] * 9], "[]", None),
    ("FP32", [4], "[[1,2],[3,4]]", None), ("FP32", [2, 2], "[[1,2],3,4]", None),
    ("INT64", [1], '"a"', None), ("INT64", [1], "{}", None), ("INT64", [], "[3]", 3),
))  # fmt: skip
def test_short_and_long_lists_have_the_same_elements(
    datatype: str, shape: Any, data: str, expected: Any
) -> None:
    for padding in ("", " " * 60):
        text = of(datatype, shape, data.replace("[", "[" + padding, 1))
        found = [outcome(read, text) for read in (parse_object, parsed_long)]
        assert found[0] == found[1]
        assert (found[0] is None) == (expected is None)
        if expected is not None:
            dtype, found_shape, raw = found[0][3]["x"]
            array = np.array(expected).astype(dtype).reshape(shape)
            assert (found_shape, raw) == (array.shape, array.tobytes())


@pytest.mark.parametrize("element", ('""', "[]", "null", "0", "{}"))
def test_elements_of_unlike_types_take_no_memory_for_the_longest(element: str) -> None:
    data = '["' + "a" * 5000 + '",' + ",".join([element] * 5000) + "]"
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"a string, INT64|nested"):
            parse_request(parse_object(of("INT64", [5001], data)), NOTHING)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


def test_the_structure_of_a_long_shape_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    count = 1 << 17
    text = memoryview(of("INT64", [count, *[1] * 31], "[[" + "0," * (count - 1) + "0]]"))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="not nested"):
            parse_request(parsed_long(text), NOTHING)
        assert tracemalloc.get_traced_memory()[1] < 8 * len(text)  # `JSON_FACTOR`
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("key", "said"), (
    ("id", "'id' is a list.*, expected a string"), ("parameters", "'parameters' is a list"),
    ("outputs", "an output has no name|'outputs' is a list of numbers, expected"),
))  # fmt: skip
def test_a_long_list_in_another_field_is_a_list(key: str, said: str) -> None:
    row = {"name": "x", "datatype": "INT64", "shape": [1], "data": [1]}
    text = json.dumps({key: [1] * 60, "inputs": [row]}).encode()
    for read in (parse_object, parsed_long):
        with pytest.raises(InputError, match=said):
            parse_request(read(memoryview(text)), NOTHING)


@pytest.mark.parametrize("read", (parse_object, parsed_long))
def test_a_long_integer_has_too_many_digits(monkeypatch: pytest.MonkeyPatch, read: Any) -> None:
    monkeypatch.setattr(json_bodies, "_PIECE", 1 << 13)
    text = of("INT64", [2], "[1," + "1" * 5000 + "]")
    with pytest.raises(InputError, match="an integer has too many digits"):
        parse_request(read(memoryview(text)), NOTHING)


@pytest.mark.parametrize(("given", "expected"), (
    ("a", "a"), (7, "7"), (0, "0"), (None, ""), ({}, None), (True, None), ([], None),
))  # fmt: skip
def test_an_id_is_a_string_or_a_number(given: Any, expected: str | None) -> None:
    text = json.dumps({"id": given, "inputs": []}).encode()
    if expected is None:
        with pytest.raises(InputError, match="'id' is"):
            parse_request(parse_object(text), NOTHING)
    else:
        assert parse_request(parse_object(text), NOTHING).id == expected


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
        target=lambda: found.append(parse_request(parsed_long(memoryview(text)), NOTHING))
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
