"""Promise: the server speaks the open inference protocol v2; answers have the bits of a call."""

from __future__ import annotations

import base64
import json
import socket
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.serving.models import encoder, images, tokens
from tests.unit.serving.server.running import running

INFER = "/v2/models/encoder/infer"
HEAD = "inference-header-content-length"


def described(name: str, array: np.ndarray, kind: str) -> dict[str, Any]:
    return {"name": name, "datatype": kind, "shape": list(array.shape)}


def binary(ids: np.ndarray, **more: Any) -> tuple[bytes, dict[str, str]]:
    """A request with binary tensors, and its headers."""
    row = {**described("input_ids", ids, "INT64"), "parameters": {"binary_data_size": ids.nbytes}}
    head = json.dumps({"inputs": [row], "parameters": {"binary_data_output": True}, **more})
    return head.encode() + ids.tobytes(), {HEAD: str(len(head))}


def arrays(headers: dict[str, str], body: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The head of an answer, and its arrays."""
    size = int(headers[HEAD]) if HEAD in headers else len(body)
    head, rest, found = json.loads(body[:size]), body[size:], {}
    for row in head["outputs"]:
        assert row["datatype"] == "FP32"
        if "data" in row:
            array = np.float32(row["data"])
        else:
            count = row["parameters"]["binary_data_size"]
            array, rest = np.frombuffer(rest[:count], np.float32), rest[count:]
        found[row["name"]] = array.reshape(row["shape"])
    assert not rest
    return head, found


def test_health_and_metadata(server: Any) -> None:
    assert server.json("GET", "/v2/health/live") == (200, {"live": True})
    assert server.json("GET", "/v2/health/ready") == (200, {"ready": True})
    status, found = server.json("GET", "/v2")
    assert status == 200 and found["name"] == "anydim"
    assert "binary_tensor_data" in found["extensions"]
    status, found = server.json("GET", "/v2/models/encoder")
    assert status == 200 and found["versions"] == ["1"]
    assert found["inputs"] == [
        {"name": "input_ids", "datatype": "INT64", "shape": [-1, -1]},
        {"name": "attention_mask", "datatype": "INT64", "shape": [-1, -1]},
    ]
    assert found["outputs"] == [
        {"name": "last_hidden_state", "datatype": "FP32", "shape": [-1, -1, 24]},
        {"name": "sentence_embedding", "datatype": "FP32", "shape": [-1, 24]},
    ]
    assert found["parameters"]["dims"]["seq"] == [1, 20]
    assert server.json("GET", "/v2/models/images")[1]["inputs"][0]["shape"] == [-1, 3, -1]
    assert server.json("GET", "/v2/models/encoder/versions/1/ready") == (200, {"ready": True})
    assert server.json("GET", "/v2/models/encoder/versions/7")[0] == 404
    assert server.json("GET", "/v2/models/enocder")[1]["error"].startswith("there is no model")
    assert server.json("GET", "/nothing") == (404, {"error": "there is nothing at /nothing"})


@pytest.mark.parametrize("is_binary", (True, False))
@pytest.mark.parametrize("count", (1, 3, 20))
def test_answers_have_the_bits_of_a_call(server: Any, count: int, is_binary: bool) -> None:
    ids = np.concatenate([tokens(count, 1), tokens(count, 2)])
    mask = np.ones_like(ids)
    if is_binary:
        body, headers = binary(ids, id="seven")
    else:
        inputs = [
            {**described("input_ids", ids, "INT64"), "data": ids.tolist()},
            {**described("attention_mask", mask, "INT64"), "data": mask.reshape(-1).tolist()},
        ]
        body, headers = json.dumps({"inputs": inputs, "id": "seven"}).encode(), {}
    status, answered, text = server.request("POST", INFER, body, headers)
    assert status == 200, text
    head, found = arrays(answered, text)
    assert head["model_name"] == "encoder" and head["id"] == "seven"
    expected = encoder()(input_ids=list(ids))
    assert np.array_equal(found["sentence_embedding"], expected["sentence_embedding"])
    assert np.array_equal(found["last_hidden_state"], np.stack(list(expected["last_hidden_state"])))


def test_requested_outputs_come_in_their_form(server: Any) -> None:
    ids = tokens(4)
    outputs = [{"name": "sentence_embedding", "parameters": {"binary_data": False}}]
    body, headers = binary(ids, outputs=outputs)
    _, answered, text = server.request("POST", INFER, body, headers)
    _, found = arrays(answered, text)
    assert HEAD not in answered and list(found) == ["sentence_embedding"]
    alone = encoder()(input_ids=list(ids))["sentence_embedding"]
    assert np.array_equal(found["sentence_embedding"], alone)


def test_a_model_without_ragged_dims(server: Any) -> None:
    random = np.random.default_rng(0)
    for shape in ((1, 3, 5), (2, 3, 9), (0, 3, 4)):
        x = random.standard_normal(shape).astype(np.float32)
        row = {**described("x", x, "FP32"), "data": x.tolist()}
        status, headers, text = server.request(
            "POST", "/v2/models/images/versions/1/infer", {"inputs": [row]}
        )
        assert status == 200, text
        assert np.array_equal(arrays(headers, text)[1]["y"], images()(x)["y"])


def test_many_clients_at_once(server: Any) -> None:
    alone = {n: encoder()(input_ids=[tokens(n)[0]])["sentence_embedding"] for n in range(1, 21)}
    wrong = list[int]()

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for n in random.integers(1, 21, 25).tolist():
            body, headers = binary(tokens(n))
            status, answered, text = server.request("POST", INFER, body, headers)
            found = arrays(answered, text)[1]["sentence_embedding"]
            if status != 200 or not np.array_equal(found, alone[n]):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_the_repository_unloads_and_loads(server: Any) -> None:
    rows = server.json("POST", "/v2/repository/index", {})[1]
    assert [(row["name"], row["state"]) for row in rows] == [("encoder", "READY"),
                                                              ("images", "READY")]  # fmt: skip
    assert server.json("POST", "/v2/repository/models/images/unload", {}) == (200, {})
    rows = server.json("POST", "/v2/repository/index", {})[1]
    assert rows[1]["state"] == "UNAVAILABLE" and rows[1]["reason"] == "unloaded"
    assert len(server.json("POST", "/v2/repository/index", {"ready": True})[1]) == 1
    assert server.json("GET", "/v2/models/images/ready")[0] == 404
    assert server.json("POST", "/v2/repository/models/images/load", {}) == (200, {})
    assert server.json("GET", "/v2/models/images/ready")[0] == 200
    assert server.json("POST", "/v2/repository/models/nothing/load", {})[0] == 404


CONFIGURATION = {
    "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 3, -1]}],
    "max_batch_size": 0, "platform": "anydim", "backend": "anydim", "name": "images",
}  # fmt: skip


def test_configuration_and_statistics_as_triton_has_them(server: Any) -> None:
    for path in ("/v2/models/images/config", "/v2/models/images/versions/1/config"):
        status, found = server.json("GET", path)
        assert status == 200 and {key: found[key] for key in CONFIGURATION} == CONFIGURATION
    before = server.json("GET", "/v2/models/encoder/stats")[1]["model_stats"][0]
    body, headers = binary(np.concatenate([tokens(4)] * 3))
    assert server.request("POST", INFER, body, headers)[0] == 200
    (found,) = server.json("GET", "/v2/models/encoder/versions/1/stats")[1]["model_stats"]
    assert (found["name"], found["version"]) == ("encoder", "1")
    assert found["inference_count"] == before["inference_count"] + 3
    assert found["execution_count"] == before["execution_count"] + 1
    parts = found["inference_stats"]
    assert parts["success"]["count"] == before["inference_stats"]["success"]["count"] + 1
    assert parts["success"]["ns"] >= parts["compute_infer"]["ns"] - 1 > 0
    assert abs(found["last_inference"] / 1000 - time.time()) < 60
    names = {each["name"] for each in server.json("GET", "/v2/models/stats")[1]["model_stats"]}
    assert names == {"encoder", "images"}
    for path in ("/v2/models/nothing/stats", "/v2/models/encoder/versions/7/config"):
        assert server.json("GET", path)[0] == 404


@pytest.mark.parametrize("codings", (b"gzip, chunked", b"gzip,chunked", b"identity, chunked"))
def test_other_codings_than_chunks_are_refused(server: Any, codings: bytes) -> None:
    for path in (INFER, "/v1/embeddings", "/v2/repository/index"):
        head = b"POST %s HTTP/1.1\r\nhost: x\r\ntransfer-encoding: %s\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
            client.sendall(head % (path.encode(), codings) + b"2\r\n{}\r\n0\r\n\r\n")
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 400"), path


def test_a_body_to_the_repository_that_is_too_long_is_413(server: Any) -> None:
    for body in (b" " * (1 << 20), iter([b" " * (1 << 18)] * 4)):  # with a length, and in chunks
        status, _, text = server.request("POST", "/v2/repository/index", body)
        assert status == 413 and b"the body has" in text


def test_errors_name_the_model_that_is_served(tmp_path: Path) -> None:
    """Not the graph in its file."""
    encoder().save(tmp_path / "first.anydim")
    images().save(tmp_path / "second.anydim")
    wrong = [
        ("first", {"name": "input_ids", "datatype": "INT64", "shape": [1, 21], "data": [1] * 21}),
        ("first", {"name": "input_ids", "datatype": "INT64", "shape": [1, 1], "data": [-99999]}),
        ("first", {"name": "ids", "datatype": "INT64", "shape": [1, 1], "data": [1]}),
        ("second", {"name": "x", "datatype": "INT64", "shape": [1, 1], "data": [1]}),
        ("second", {"name": "y", "datatype": "FP32", "shape": [1, 1], "data": [1]}),
        ("second", {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [1]}),
    ]
    with running(str(tmp_path), "--memory", "600MiB", "--no-grpc") as made:
        for name, row in wrong:
            status, found = made.json("POST", f"/v2/models/{name}/infer", {"inputs": [row]})
            assert status == 400 and name in found["error"], found
            assert "minilm" not in found["error"] and "images" not in found["error"], found


def test_metrics_and_the_page(server: Any) -> None:
    body, headers = binary(tokens(4))
    server.request("POST", INFER, body, headers)
    status, answered, text = server.request("GET", "/metrics")
    assert status == 200 and answered["content-type"].startswith("text/plain; version=0.0.4")
    lines = text.decode().splitlines()
    assert any(line.startswith('anydim_requests_total{model="encoder",outcome="done"}')
               for line in lines)  # fmt: skip
    for line in lines:
        assert line.startswith("# ") or float(line.rpartition(" ")[2]) >= 0
    last = next(
        line for line in lines if 'request_seconds_bucket{model="encoder",le="+Inf"}' in line
    )
    assert int(last.rpartition(" ")[2]) >= 1
    status, found = server.json("GET", "/status")
    assert status == 200 and found["limit"] == 600 << 20 and found["samples"]
    assert found["models"]["encoder"]["done"] >= 1 and found["recent"]["encoder"]
    status, answered, text = server.request("GET", "/")
    assert status == 200 and b"<svg" in text and answered["content-type"].startswith("text/html")


def test_embeddings_of_tokens(server: Any) -> None:
    rows = [tokens(3)[0].tolist(), tokens(7)[0].tolist()]
    status, found = server.json("POST", "/v1/embeddings", {"model": "encoder", "input": rows})
    assert status == 200 and found["object"] == "list" and found["usage"]["total_tokens"] == 10
    for row, each in zip(rows, found["data"]):
        alone = encoder()(input_ids=[np.int64(row)])["sentence_embedding"][0]
        assert np.array_equal(np.float32(each["embedding"]), alone)
    status, found = server.json("POST", "/v1/embeddings", {
        "model": "encoder", "input": rows[0], "encoding_format": "base64"
    })  # fmt: skip
    text = base64.b64decode(found["data"][0]["embedding"])
    alone = encoder()(input_ids=[np.int64(rows[0])])["sentence_embedding"][0]
    assert np.array_equal(np.frombuffer(text, "<f4"), alone)
    for wrong in ("a text", [], [1.5], {"a": 1}, [[]], [1, "a"], [2**70], None):
        given = {"model": "encoder", "input": wrong}
        status, found = server.json("POST", "/v1/embeddings", given)
        assert 400 <= status < 500 and found["error"]["message"], wrong


@pytest.mark.parametrize("version", (10, 11))
@pytest.mark.parametrize("count", (1, 200))
def test_only_long_answers_to_clients_of_http_1_1_are_chunked(
    server: Any, version: int, count: int
) -> None:
    client = HTTPConnection("127.0.0.1", server.port, timeout=30)
    client._http_vsn = version  # type: ignore[attr-defined]
    client._http_vsn_str = f"HTTP/1.{version - 10}"  # type: ignore[attr-defined]
    client.request(
        "POST", "/v1/embeddings", json.dumps({"model": "encoder", "input": [[1]] * count})
    )
    found = client.getresponse()
    text = found.read()
    client.close()
    is_chunked = version == 11 and count == 200
    assert found.getheader("transfer-encoding") == ("chunked" if is_chunked else None)
    assert found.getheader("content-length") == (None if is_chunked else str(len(text)))
    assert len(json.loads(text)["data"]) == count


def test_embeddings_have_the_first_elements_or_are_refused(server: Any) -> None:
    given = {"model": "encoder", "input": [1, 2]}
    status, found = server.json("POST", "/v1/embeddings", {**given, "dimensions": 24})
    whole = np.array(found["data"][0]["embedding"][:10])
    assert status == 200
    status, found = server.json("POST", "/v1/embeddings", {**given, "dimensions": 10})
    short = np.array(found["data"][0]["embedding"])
    assert status == 200 and np.allclose(short, whole / np.linalg.norm(whole), atol=1e-6)
    for wrong in (25, 0, -1, 1.0, "24", 2**70, True):
        status, found = server.json("POST", "/v1/embeddings", {**given, "dimensions": wrong})
        assert status == 400 and "have 24" in found["error"]["message"]


def test_the_openai_client_runs_unmodified(server: Any) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none")
    assert {each.id for each in client.models.list()} == {"encoder", "images"}
    assert client.models.retrieve("encoder").owned_by == "anydim"
    rows = [tokens(count)[0] for count in (3, 20, 1)]
    for form in ("float", "base64", openai.NOT_GIVEN):
        found = client.embeddings.create(
            model="encoder", input=[row.tolist() for row in rows], encoding_format=form
        )
        assert [each.index for each in found.data] == [0, 1, 2] and found.usage.total_tokens == 24
        for row, each in zip(rows, found.data):
            alone = encoder()(input_ids=[row])["sentence_embedding"][0]
            vector = np.float32(each.embedding) if isinstance(each.embedding, list) else (
                np.frombuffer(base64.b64decode(each.embedding), "<f4"))  # fmt: skip
            assert np.array_equal(vector, alone)
    for wrong, error in (
        ({"model": "nothing", "input": "a"}, openai.NotFoundError),
        ({"model": "encoder", "input": "a text"}, openai.BadRequestError),
        ({"model": "encoder", "input": [[1] * 600]}, openai.BadRequestError),
    ):
        with pytest.raises(error) as caught:
            client.embeddings.create(**wrong)
        assert caught.value.body["message"]
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nothing")


# ---- gRPC --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def call(server: Any) -> Any:
    """Calls a method over gRPC."""
    import grpc

    from anydim.serving.server.messages import SERVICE, message

    channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}")

    def made(method: str, answer: str = "", **fields: Any) -> Any:
        kind = message(answer or f"{method}Response")
        request = message("ModelInferRequest" if "Infer" in method else f"{method}Request")
        return channel.unary_unary(
            f"/{SERVICE}/{method}", request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=kind.FromString,
        )(request(**fields), timeout=30)  # fmt: skip

    return made


def test_grpc_health_metadata_and_repository(call: Any) -> None:
    assert call("ServerLive").live and call("ServerReady").ready
    assert call("ServerMetadata").name == "anydim"
    assert call("ModelReady", name="encoder").ready and not call("ModelReady", name="x").ready
    found = call("ModelMetadata", name="encoder")
    assert found.inputs[0].name == "input_ids" and list(found.outputs[0].shape) == [-1, -1, 24]
    found = call("ModelConfig", name="images").config
    assert (found.name, found.backend, found.max_batch_size) == ("images", "anydim", 0)
    assert [(each.name, each.data_type, list(each.dims)) for each in found.input] == [
        ("x", 11, [-1, 3, -1])
    ]
    assert {each.name for each in call("ModelStatistics").model_stats} == {"encoder", "images"}
    (found,) = call("ModelStatistics", name="encoder").model_stats
    assert found.inference_count and found.inference_stats.success.ns
    call("RepositoryModelUnload", model_name="images")
    states = {each.name: each.state for each in call("RepositoryIndex").models}
    assert states == {"encoder": "READY", "images": "UNAVAILABLE"}
    call("RepositoryModelLoad", model_name="images")
    assert call("ModelReady", name="images", version="1").ready


@pytest.mark.parametrize("is_raw", (True, False))
def test_grpc_answers_have_the_bits_of_a_call(call: Any, is_raw: bool) -> None:
    ids = np.concatenate([tokens(5, 1), tokens(5, 2)])
    row: dict[str, Any] = {"name": "input_ids", "datatype": "INT64", "shape": ids.shape}
    if not is_raw:
        row["contents"] = {"int64_contents": ids.reshape(-1).tolist()}
    raw = {"raw_input_contents": [ids.tobytes()]} if is_raw else {}
    found = call("ModelInfer", model_name="encoder", id="nine", inputs=[row], **raw)
    assert found.id == "nine" and found.model_version == "1"
    expected = encoder()(input_ids=list(ids))
    by_name = dict(zip([each.name for each in found.outputs], found.raw_output_contents))
    assert by_name["sentence_embedding"] == expected["sentence_embedding"].tobytes()
    assert by_name["last_hidden_state"] == expected["last_hidden_state"].values.tobytes()


def test_grpc_errors_have_codes(call: Any) -> None:
    import grpc

    row = {"name": "input_ids", "datatype": "INT64", "shape": [1, 3]}
    for code, fields in (
        ("NOT_FOUND", {"model_name": "nothing"}),
        ("INVALID_ARGUMENT", {"model_name": "encoder"}),
        ("INVALID_ARGUMENT", {"model_name": "encoder", "inputs": [row],
                              "raw_input_contents": [b"123"]}),
        ("INVALID_ARGUMENT", {"model_name": "encoder",
                              "inputs": [{**row, "shape": [2**62, 2**62]}],
                              "raw_input_contents": [b""]}),
        ("INVALID_ARGUMENT", {"model_name": "encoder", "inputs": [{**row, "shape": [-1, 3]}],
                              "raw_input_contents": [b""]}),
        ("INVALID_ARGUMENT", {"model_name": "encoder",
                              "inputs": [{**row, "contents": {"int64_contents": [1, 2, 3]}}],
                              "raw_input_contents": [bytes(24)]}),
        ("INVALID_ARGUMENT", {"model_name": "encoder", "inputs": [row], "id": "a" * 1_000_000,
                              "raw_input_contents": [bytes(24)]}),
        ("NOT_FOUND", {"model_name": "a" * 1_000_000}),
    ):  # fmt: skip
        with pytest.raises(grpc.RpcError) as caught:
            call("ModelInfer", **fields)
        assert caught.value.code().name == code, (fields, caught.value.details())


def test_tritonclient_runs_unmodified(server: Any) -> None:
    http = pytest.importorskip("tritonclient.http")
    client = http.InferenceServerClient(f"127.0.0.1:{server.port}")
    ids = tokens(6)
    given = http.InferInput("input_ids", list(ids.shape), "INT64")
    given.set_data_from_numpy(ids)
    found = client.infer("encoder", [given]).as_numpy("sentence_embedding")
    assert np.array_equal(found, encoder()(input_ids=list(ids))["sentence_embedding"])
