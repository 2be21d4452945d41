"""Promise: /v1/completions streams the tokens that a decoder chooses alone."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.serving import Decoder, sampled
from anydim.serving.sampling import uniform_numbers
from bench.networks.sequences import decoder
from tests.unit.serving.server.test_hostile import changed

WORDS = 60
PATH = "/v1/completions"
NAMES = [f"w{n}" for n in range(WORDS)]


@pytest.fixture(scope="module")
def network() -> bytes:
    return decoder(2, 2, 8, WORDS, places=600).SerializeToString()


@pytest.fixture(scope="module")
def alone(network: bytes) -> Iterator[Any]:
    with Decoder(ad.cached(network, ragged="auto", threads=1)) as made:
        yield made


@pytest.fixture(scope="module")
def server(network: bytes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    for package in ("starlette", "uvicorn", "httptools", "grpc", "google.protobuf"):
        pytest.importorskip(package)
    tokenizers = pytest.importorskip("tokenizers")
    from tests.unit.serving.server.running import running

    folder: Path = tmp_path_factory.mktemp("decoder")
    (folder / "writer.onnx").write_bytes(network)
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({name: n for n, name in enumerate(NAMES)}, unk_token="w0")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    made.save(str(folder / "tokenizer.json"))
    with running(
        "--decoder", f"writer={folder / 'writer.onnx'}", "--memory", "600MiB",
        "--cache-memory", "1MiB", "--threads", "1",
    ) as found:  # fmt: skip
        yield found


def prompt(count: int) -> list[int]:
    return np.random.default_rng(count).integers(0, WORDS, count).tolist()


def streamed(server: Any, given: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a stream, without the last one."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", PATH, json.dumps({**given, "stream": True}))
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.getheader("content-type", "").startswith("text/event-stream")
    *events, done, rest = answer.read().decode().split("\n\n")
    connection.close()
    assert done == "data: [DONE]" and not rest
    return [json.loads(event.removeprefix("data: ")) for event in events]


@pytest.mark.parametrize("count", (1, 7, 200))
def test_tokens_of_tokens(server: Any, alone: Any, count: int) -> None:
    expected = list(alone.generate(np.array(prompt(count)), 12))
    given = {"model": "writer", "prompt": prompt(count), "max_tokens": 12}
    status, found = server.json("POST", PATH, given)
    assert status == 200, found
    (choice,) = found["choices"]
    assert choice["token_ids"] == expected and choice["finish_reason"] == "length"
    assert found["usage"] == {"prompt_tokens": count, "completion_tokens": 12,
                              "total_tokens": count + 12}  # fmt: skip
    events = streamed(server, {**given, "stream_options": {"include_usage": True}})
    assert [event["choices"][0]["token_ids"] for event in events[:-1]] == [[t] for t in expected]
    reasons = [event["choices"][0]["finish_reason"] for event in events[:-1]]
    assert reasons == [None] * 11 + ["length"]
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 12
    assert len({event["id"] for event in events}) == 1


def test_texts_and_several_prompts(server: Any, alone: Any) -> None:
    texts = [" ".join(NAMES[n] for n in prompt(count)) for count in (3, 9)]
    given = {"prompt": texts, "max_tokens": 8}
    found = server.json("POST", PATH, given)[1]
    for count, choice in zip((3, 9), found["choices"]):
        expected = list(alone.generate(np.array(prompt(count)), 8))
        assert choice["token_ids"] == expected
        assert choice["text"].split() == [NAMES[n] for n in expected]
    pieces = ["", ""]
    for event in streamed(server, given):
        (choice,) = event["choices"]
        pieces[choice["index"]] += choice["text"]
    assert pieces == [choice["text"] for choice in found["choices"]]


def test_stops(server: Any, alone: Any) -> None:
    expected = list(alone.generate(np.array(prompt(5)), 30))
    last = expected.index(expected[6])
    given: dict[str, Any] = {"prompt": prompt(5), "max_tokens": 30}
    choice = server.json("POST", PATH, {**given, "stop_token_ids": [expected[6]]})[1]["choices"][0]
    assert choice["token_ids"] == expected[: last + 1] and choice["finish_reason"] == "stop"
    word = NAMES[expected[6]]
    choice = server.json("POST", PATH, {**given, "stop": f" {word} "})[1]["choices"][0]
    whole = " ".join(NAMES[n] for n in expected)
    at = whole.find(f" {word} ")
    assert choice["text"] == (whole if at < 0 else whole[:at])
    assert choice["finish_reason"] == ("length" if at < 0 else "stop")


def test_seeds_decide_what_is_drawn(server: Any, alone: Any) -> None:
    given = {"prompt": prompt(4), "max_tokens": 20, "temperature": 0.9, "top_p": 0.8, "seed": 3}
    one, two = (server.json("POST", PATH, given)[1]["choices"][0]["token_ids"] for _ in range(2))
    choose = sampled(0.9, 0.8, 3)
    assert one == two == list(alone.generate(np.array(prompt(4)), 20, choose=choose))
    other = server.json("POST", PATH, {**given, "seed": 4})[1]["choices"][0]["token_ids"]
    assert other != one


@pytest.mark.parametrize("given, status, said", [
    ({}, 400, "'prompt'"), ({"prompt": []}, 400, "0 prompts"),
    ({"prompt": [1, "a"]}, 400, "no text"),
    ({"prompt": [1], "model": "other"}, 404, "no decoder 'other'"),
    ({"prompt": [1], "model": 3}, 400, "expected a name"),
    ({"prompt": [WORDS]}, 400, ""), ({"prompt": [2**70]}, 400, "no number of a token"),
    ({"prompt": [1], "max_tokens": 0}, 400, "'max_tokens'"),
    ({"prompt": [1], "max_tokens": 10**6}, 413, "above the limit"),
    ({"prompt": [1], "temperature": -1}, 400, "temperature"),
    ({"prompt": [1], "temperature": 10**400}, 400, "temperature"),
    ({"prompt": [1], "top_p": 0}, 400, "top_p"), ({"prompt": [1], "seed": "a"}, 400, "'seed'"),
    ({"prompt": [1], "stop": ["a"] * 5}, 400, "'stop'"),
    ({"prompt": [1], "stop": ""}, 400, "'stop'"),
    ({"prompt": [1], "stop_token_ids": "a"}, 400, "'stop_token_ids'"),
    ({"prompt": [1], "n": 99}, 400, "'n' is 99"), ({"prompt": [1], "echo": True}, 400, "'echo'"),
])  # fmt: skip
@pytest.mark.parametrize("stream", (False, True))
def test_wrong_requests(
    server: Any, given: dict[str, Any], status: int, said: str, stream: bool
) -> None:
    found, body = server.json("POST", PATH, {**given, "stream": stream})
    assert found == status and said in body["error"]["message"], body


def test_mutated_requests_have_an_answer_with_a_reason(server: Any) -> None:
    random, statuses = np.random.default_rng(0), set[int]()
    for number in range(120):
        given = {"prompt": prompt(4), "max_tokens": 3, "stop": "w7", "stream": number % 2 > 0}
        status, _, text = server.request("POST", PATH, changed(json.dumps(given).encode(), random))
        statuses.add(status)
        assert status == 200 or (400 <= status < 500 and json.loads(text)["error"]), text
    assert {200, 400} <= statuses


def test_an_error_behind_the_first_token_is_an_event(server: Any) -> None:
    long = {"prompt": [1] * 595, "max_tokens": 40}  # 600 places
    events = streamed(server, long)
    assert events[0]["choices"] and events[-1]["error"]["code"] == 400
    assert server.json("POST", PATH, long)[0] == 400


def test_clients_that_leave_end_their_sequences(server: Any) -> None:
    body = json.dumps({"prompt": [1], "max_tokens": 500, "stream": True}).encode()
    head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    for _ in range(12):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
            client.sendall(head + body)
            client.recv(10)
    end = time.monotonic() + 10
    while time.monotonic() < end:
        text = server.request("GET", "/metrics")[2].decode()
        if 'anydim_decoder_rows{model="writer"} 0' in text:
            break
        time.sleep(0.1)
    assert 'anydim_decoder_rows{model="writer"} 0' in text
    assert 'anydim_decoder_waiting{model="writer"} 0' in text
    tokens = next(line for line in text.splitlines() if line.startswith("anydim_decoder_tokens"))
    assert int(tokens.rpartition(" ")[2]) < 12 * 500


def test_a_client_of_http_1_0_gets_a_stream_as_a_whole(server: Any) -> None:
    body = json.dumps({"prompt": [1], "max_tokens": 3, "stream": True}).encode()
    head = f"POST {PATH} HTTP/1.0\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(head + body)
        head, _, text = b"".join(iter(lambda: client.recv(1 << 16), b"")).partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(text) in head and b"chunked" not in head
    assert text.count(b"data: ") == 4 and text.endswith(b"data: [DONE]\n\n")


def test_many_clients_at_once(server: Any, alone: Any) -> None:
    expected = {n: list(alone.generate(np.array(prompt(n)), 10)) for n in range(1, 13)}
    wrong = list[Any]()

    def work(n: int) -> None:
        status, found = server.json("POST", PATH, {"prompt": prompt(n), "max_tokens": 10})
        if status != 200 or found["choices"][0]["token_ids"] != expected[n]:
            wrong.append(found)

    threads = [threading.Thread(target=work, args=(n,)) for n in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_grpc_streams_tokens(server: Any, alone: Any) -> None:
    import grpc

    from anydim.serving.server.messages import SERVICE, message

    made = message("ModelInferRequest")
    expected = list(alone.generate(np.array(prompt(6)), 9))
    tokens = np.array(prompt(6), np.int64)
    row = {"name": "ids", "datatype": "INT64", "shape": [6]}
    raw = [tokens.tobytes()]
    good = made(model_name="writer", id="a", inputs=[row], raw_input_contents=raw)
    good.parameters["max_tokens"].int64_param = 9
    bad = made(model_name="writer", id="b", inputs=[{**row, "shape": [2, 3]}],
               raw_input_contents=raw)  # fmt: skip
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer", lambda each: each.SerializeToString(),
            message("ModelStreamInferResponse").FromString,
        )  # fmt: skip
        found = list(call(iter([bad, good])))
    assert found[0].infer_response.id == "b" and "a prompt is one input" in found[0].error_message
    got = [np.frombuffer(each.infer_response.raw_output_contents[0], np.int64)[0]
           for each in found[1:-1]]  # fmt: skip
    assert got == expected
    last = found[-1].infer_response
    assert last.parameters["triton_final_response"].bool_param and last.id == "a"


def test_models_and_readiness(server: Any) -> None:
    (found,) = server.json("GET", "/v1/models")[1]["data"]
    assert found["id"] == "writer" and found["owned_by"] == "anydim" and found["created"] > 0
    assert server.json("GET", "/v1/models/writer")[1] == found
    for name, hint in (("nope", "models: 'writer'"), ("writre", "did you mean 'writer'?")):
        status, missing = server.json("GET", f"/v1/models/{name}")
        assert status == 404 and hint in missing["error"]["message"]
    assert server.json("GET", "/v2/health/ready")[0] == 200
    assert server.request("GET", "/")[0] == 200 and server.json("GET", "/status")[0] == 200


def test_the_openai_client_runs_unmodified(server: Any, alone: Any) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none")
    given = prompt(5)
    expected = list(alone.generate(np.array(given), 6))
    found = client.completions.create(model="writer", prompt=given, max_tokens=6)
    assert found.choices[0].text.split() == [NAMES[token] for token in expected]
    assert found.usage.completion_tokens == 6 and found.choices[0].finish_reason == "length"
    parts = client.completions.create(model="writer", prompt=given, max_tokens=6, stream=True)
    text = "".join(part.choices[0].text for part in parts)
    assert text.split() == [NAMES[token] for token in expected]
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        client.completions.create(model="writer", prompt=given, max_tokens=0)


# ---- texts and choices ---------------------------------------------------------------------------


def test_numbers_of_a_seed_are_those_of_the_reference() -> None:
    """Vigna's splitmix64.c from 1234567."""
    found, words = uniform_numbers(1234567), (6457827717110365317, 3203168211198807973)
    assert [next(found) for _ in words] == [(word >> 11) / 2**53 for word in words]


def test_sampling() -> None:
    logits = np.log(np.float32([0.5, 0.3, 0.15, 0.05]))
    assert sampled(0.0)(logits) == 0
    counts = np.zeros(4)
    choose = sampled(1.0, seed=1)
    for _ in range(4000):
        counts[choose(logits)] += 1
    assert np.abs(counts / 4000 - [0.5, 0.3, 0.15, 0.05]).max() < 0.03
    choose = sampled(1.0, 0.79, seed=1)
    assert {choose(logits) for _ in range(500)} == {0, 1}
    choose = sampled(1.0, 0.4, seed=1)
    assert {choose(logits) for _ in range(50)} == {0}
    choose = sampled(1e-6, seed=1)
    assert {choose(logits) for _ in range(50)} == {0}
    for wrong in ((-1.0, 1.0), (float("nan"), 1.0), (1.0, 0.0), (1.0, 1.5)):
        with pytest.raises(ad.OptionError):
            sampled(*wrong)
