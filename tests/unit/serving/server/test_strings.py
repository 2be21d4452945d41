"""Promise: tensors of strings, BYTES in the protocol, are read, computed with, and written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import anydim as ad
from anydim.serving import Batcher
from anydim.serving.server.tensors import MOST_STRINGS, parse_request, raw
from tests.unit.compiler.frontends.test_strings import WORDS, model
from tests.unit.deploy.test_saved_strings import MODELS
from tests.unit.serving.server.test_hostile import changed

TEXTS = ["no", "YES", "what", "", "über"]
HEAD = "inference-header-content-length"


def only_strings() -> Any:
    """A model without a native part: strings in upper case, and their numbers."""
    value, kinds = helper.make_tensor_value_info, TensorProto
    nodes = [
        helper.make_node("StringNormalizer", ["x"], ["upper"], case_change_action="UPPER"),
        helper.make_node("LabelEncoder", ["x"], ["id"], domain="ai.onnx.ml", keys_strings=WORDS,
                         values_int64s=[*range(len(WORDS))]),
    ]  # fmt: skip
    results = [value("upper", kinds.STRING, ["n"]), value("id", kinds.INT64, ["n"])]
    return model(nodes, [value("x", kinds.STRING, ["n"])], results)


def framed(texts: list[bytes]) -> bytes:
    """The bytes of a tensor, written from the protocol's text: lengths in 4 bytes, and bytes."""
    return b"".join(len(each).to_bytes(4, "little") + each for each in texts)


def read(data: bytes, shape: list[int]) -> Any:
    row = {"name": "x", "datatype": "BYTES", "shape": shape,
           "parameters": {"binary_data_size": len(data)}}  # fmt: skip
    return parse_request({"inputs": [row]}, memoryview(data)).inputs["x"]


def test_bytes_of_strings_and_back() -> None:
    array = read(framed([each.encode() for each in TEXTS]), [5])
    assert array.tolist() == TEXTS and array.dtype == object
    assert bytes(raw(array)) == framed([each.encode() for each in TEXTS])
    assert read(framed([b"a", b"b"]), [1, 2]).tolist() == [["a", "b"]]
    assert read(b"", [0, 3]).shape == (0, 3) and bytes(raw(read(b"", [0]))) == b""
    assert bytes(raw(np.array(["a", "ü"]))) == framed([b"a", "ü".encode()])


@pytest.mark.parametrize("data, shape, said", [
    (framed([b"a"]) + b"\0", [1], "1 bytes stand behind"), (framed([b"a"])[:-1], [1], "cut off"),
    (b"\xff\xff\xff\xff", [1], "cut off"), (b"", [1], "cut off"), (b"\1\0", [1], "cut off"),
    (framed([b"\xff"]), [1], "no UTF-8"), (b"", [MOST_STRINGS + 1], "at most"),
    (b"", [2**30, 2**30], "at most"),
])  # fmt: skip
def test_wrong_bytes(data: bytes, shape: list[int], said: str) -> None:
    with pytest.raises(ad.InputError, match=said):
        read(data, shape)


@pytest.mark.parametrize("data, shape, said", [
    (["a"], [2], "has 2 elements, got 1"), (["a", 3], [2], "has an integer"),
    (["a", ["b"]], [1, 2], "has a list"), ([["a"], ["b", "c"]], [2, 1], "not nested"),
    ("ab", [2], "expected a list"), ([[["a"]]], [1, 1], "has a list"),
])  # fmt: skip
def test_wrong_json(data: Any, shape: list[int], said: str) -> None:
    row = {"name": "x", "datatype": "BYTES", "shape": shape, "data": data}
    with pytest.raises(ad.InputError, match=said):
        parse_request({"inputs": [row]}, memoryview(b""))


def test_a_batcher_serves_a_model_with_strings() -> None:
    for name in ("classifier", "labels", "joined"):
        build, inputs = MODELS[name]
        model = ad.compile(build())
        with Batcher(model, memory="64 MiB") as batcher:
            for count in (0, 1, 9):
                given, expected = inputs(count), None
                try:
                    expected = model(**given)
                except ad.UserError as error:
                    with pytest.raises(type(error)):
                        batcher(given)
                    continue
                for found in (batcher(given), batcher.submit(given).result()):
                    assert found.keys() == expected.keys()
                    for key, value in expected.items():
                        assert np.array_equal(found[key], value)
            with pytest.raises(ad.InputError, match="has no result 'nothing'"):
                batcher(inputs(1), outputs=["nothing"])
            with pytest.raises(ad.InputError):
                batcher({})
        assert batcher.engine.budget.is_clear
    with pytest.raises(ad.OptionError, match="is no tensor"):
        Batcher(ad.compile(MODELS["maps"][0]()))


def test_a_batcher_serves_a_model_of_strings_alone() -> None:
    model = ad.compile(only_strings())
    expected = model(x=TEXTS)
    with Batcher({"only": model}, memory="8 MiB") as batcher:
        for found in (batcher({"x": TEXTS}), batcher(TEXTS), batcher.submit({"x": TEXTS}).result()):
            assert {name: array.tolist() for name, array in found.items()} == {
                name: array.tolist() for name, array in expected.items()
            }
        assert list(batcher({"x": TEXTS}, outputs=["id"])) == ["id"]
        with pytest.raises(ad.InputError, match="has no input 'y'"):
            batcher({"y": TEXTS})
        with pytest.raises(ad.MemoryLimitError):
            batcher({"x": ["a" * 3_000_000]})  # and its result
        found = batcher.metrics()["models"]["only"]
        assert found["done"] == 4 and found["latency_by_size"][0]["up_to"] == 16
    assert batcher.engine.budget.is_clear


def test_requests_that_wait_count_their_strings() -> None:
    model = ad.compile(MODELS["classifier"][0]())
    with Batcher(model, memory="8 MiB") as batcher, pytest.raises(ad.MemoryLimitError):
        batcher({"flat": ["a" * 10_000_000]})


@pytest.fixture(scope="module")
def strings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    for package in ("starlette", "uvicorn", "httptools", "grpc", "google.protobuf"):
        pytest.importorskip(package)
    from tests.unit.serving.server.running import running

    folder: Path = tmp_path_factory.mktemp("strings")
    ad.compile(MODELS["classifier"][0]()).save(folder / "classifier.anydim")
    for name, build in (("only", only_strings), ("labels", MODELS["labels"][0])):
        (folder / f"{name}.onnx").write_bytes(build().SerializeToString())
    with running(str(folder), "--memory", "600MiB") as made:
        yield made


def test_the_server_reads_and_writes_strings(strings: Any) -> None:
    expected = ad.compile(MODELS["classifier"][0]())(flat=TEXTS)
    about = strings.json("GET", "/v2/models/classifier")[1]
    assert about["inputs"] == [{"name": "flat", "datatype": "BYTES", "shape": [-1]}]
    kinds = {row["name"]: row["datatype"] for row in about["outputs"]}
    assert kinds["name"] == "BYTES" and set(kinds) == set(expected)
    row = {"name": "flat", "datatype": "BYTES", "shape": [5], "data": TEXTS}
    status, found = strings.json("POST", "/v2/models/classifier/infer", {"inputs": [row]})
    assert status == 200, found
    for each in found["outputs"]:
        assert each["datatype"] == kinds[each["name"]]
        assert np.array_equal(np.array(each["data"]).reshape(each["shape"]).astype(object),
                              np.asarray(expected[each["name"]]).astype(object))  # fmt: skip
    data = framed([each.encode() for each in TEXTS])
    row = {**row, "parameters": {"binary_data_size": len(data)}}
    del row["data"]
    outputs = [{"name": "name", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": [row], "outputs": outputs}).encode()
    status, answered, body = strings.request(
        "POST", "/v2/models/classifier/infer", head + data, {HEAD: str(len(head))}
    )
    assert status == 200
    names = [str(each).encode() for each in np.asarray(expected["name"]).reshape(-1)]
    assert body[int(answered[HEAD]) :] == framed(names)


def test_the_server_serves_a_model_of_strings_alone(strings: Any) -> None:
    expected, path = ad.compile(only_strings())(x=TEXTS), "/v2/models/only"
    about = strings.json("GET", path)[1]
    assert [(row["name"], row["datatype"]) for row in (*about["inputs"], *about["outputs"])] == [
        ("x", "BYTES"), ("upper", "BYTES"), ("id", "INT64")
    ]  # fmt: skip
    assert strings.json("GET", "/v2/models/labels")[1]["inputs"][0]["shape"] == [-1, -1]
    data = framed([each.encode() for each in TEXTS])
    row = {"name": "x", "datatype": "BYTES", "shape": [5]}
    status, found = strings.json("POST", f"{path}/infer", {"inputs": [{**row, "data": TEXTS}]})
    assert status == 200, found
    assert [each["data"] for each in found["outputs"]] == [
        expected[name].tolist() for name in ("upper", "id")
    ]
    head = json.dumps({
        "inputs": [{**row, "parameters": {"binary_data_size": len(data)}}],
        "parameters": {"binary_data_output": True},
    }).encode()  # fmt: skip
    status, answered, body = strings.request(
        "POST", f"{path}/infer", head + data, {HEAD: str(len(head))}
    )
    upper = framed([each.encode() for each in expected["upper"]])
    assert status == 200 and body[int(answered[HEAD]) :] == upper + expected["id"].tobytes()


def test_mutated_strings_have_an_answer_with_a_reason(strings: Any) -> None:
    random, statuses = np.random.default_rng(0), set[int]()
    data = framed([each.encode() for each in TEXTS])
    row = {"name": "flat", "datatype": "BYTES", "shape": [5],
           "parameters": {"binary_data_size": len(data)}}  # fmt: skip
    head = json.dumps({"inputs": [row]}).encode()
    for number in range(120):
        body = changed(head + data, random) if number % 2 else head + changed(data, random)
        path = "/v2/models/classifier/infer"
        status, _, text = strings.request("POST", path, body, {HEAD: str(len(head))})
        statuses.add(status)
        assert status == 200 or (400 <= status < 500 and json.loads(text)["error"]), text
    assert 400 in statuses
    whole = strings.request("POST", path, head + data, {HEAD: str(len(head))})
    assert whole[0] == 200, whole[2]


def test_grpc_reads_and_writes_strings(strings: Any) -> None:
    import grpc

    from anydim.serving.server.messages import SERVICE, message

    expected = ad.compile(MODELS["classifier"][0]())(flat=TEXTS)["name"]
    names = framed([str(each).encode() for each in np.asarray(expected).reshape(-1)])
    row: dict[str, Any] = {"name": "flat", "datatype": "BYTES", "shape": [5]}
    texts = [each.encode() for each in TEXTS]
    requests = [
        {"inputs": [row], "raw_input_contents": [framed(texts)]},
        {"inputs": [{**row, "contents": {"bytes_contents": texts}}]},
    ]
    with grpc.insecure_channel(f"127.0.0.1:{strings.grpc_port}") as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/ModelInfer", lambda made: made.SerializeToString(),
            message("ModelInferResponse").FromString,
        )  # fmt: skip
        for each in requests:
            found = call(message("ModelInferRequest")(
                model_name="classifier", outputs=[{"name": "name"}], **each
            ))  # fmt: skip
            assert found.outputs[0].datatype == "BYTES" and found.raw_output_contents[0] == names
            given = {**each["inputs"][0], "name": "x"}
            found = call(message("ModelInferRequest")(
                model_name="only", **{**each, "inputs": [given]}
            ))  # fmt: skip
            assert found.raw_output_contents[0] == framed([each.upper().encode() for each in TEXTS])
        row["contents"] = {"bytes_contents": [b"\xff"]}
        wrong = message("ModelInferRequest")(
            model_name="classifier", inputs=[{**row, "shape": [1]}]
        )
        with pytest.raises(grpc.RpcError, match="no UTF-8"):
            call(wrong)
