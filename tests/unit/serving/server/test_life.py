"""Promise: a server starts, survives what happens to its files, and ends after its requests."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.cli import main
from tests.unit.serving.models import encoder, scaled, tokens
from tests.unit.serving.server.running import SOURCE, running
from tests.unit.serving.server.test_protocol import INFER, arrays, binary

for _package in ("starlette", "uvicorn", "httptools", "grpc"):
    pytest.importorskip(_package)
import grpc  # noqa: E402

from anydim.serving.server import run  # noqa: E402

Start = Callable[..., tuple[int, str]]


@pytest.fixture
def started(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """The exit status and the error text of a server that does not start, in this process."""
    monkeypatch.setattr(run, "bound_the_allocator", lambda: None)
    monkeypatch.setattr(logging, "raiseExceptions", True)
    root, interval = logging.getLogger(), sys.getswitchinterval()
    handlers = root.handlers[:]

    def made(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as caught:
            main(["serve", "--port", "0", *words, "--no-grpc"])
        return int(str(caught.value.code)), capsys.readouterr().err

    yield made
    root.handlers[:] = handlers
    sys.setswitchinterval(interval)


def test_mistakes_end_the_start_with_a_reason(folder: Path, tmp_path: Path, started: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        status, text = started(str(folder), "--port", str(taken.getsockname()[1]))
        assert status == 2 and "cannot be bound: Address already in use" in text
    status, text = started(str(folder), "--host", "no.such.host.invalid")
    assert status == 2 and "no.such.host.invalid, port 0 cannot be bound" in text
    for host in ("a..b", "a" * 80 + ".invalid"):
        status, text = started(str(folder), "--host", host)
        assert status == 2 and f"{host}, port 0 cannot be bound" in text
    status, text = started(str(tmp_path / "nothing.anydim"))
    assert status == 2 and "there is no file or folder" in text
    status, text = started(str(tmp_path))
    assert status == 2 and "holds no model" in text
    status, text = started(str(folder), f"encoder={folder / 'images.anydim'}")
    assert status == 2 and "two models are called 'encoder'" in text
    status, text = started(str(folder), "--memory", "10MiB")
    assert status == 2 and "the process with its models takes" in text
    encoder = folder / "encoder.anydim"
    for words, said in (
        (("a/b=",), "'a/b' is no name of a model"),
        (("=",), "'' is no name of a model"),
        (("", "--batch", "encodr=batch"), "--batch: there is no model 'encodr'"),
        (("", "--tokenizer", f"encodr={encoder}"), "--tokenizer: there is no model 'encodr'"),
        (("", "--tokenizer", "encoder=no.json"), "--tokenizer encoder: there is no file no.json"),
        (("", "--dim", "seq=1..9"), "--dim: all models are saved, and it is for ONNX files"),
        (("", "--decoder", f"encoder={encoder}"), "a model and a decoder are called 'encoder'"),
    ):
        status, text = started(f"{words[0]}{encoder}", *words[1:])
        assert status == 2 and said in text, text
    status, text = started(str(folder), "--batch", "later=batch", "--memory", "10MiB")
    assert '"ignored", "option": "--batch", "reason": "there is no model \'later\'"' in text
    (tmp_path / "bad.anydim").write_bytes(b"nothing")
    status, text = started(str(tmp_path / "bad.anydim"))
    assert status == 2 and "Traceback" not in text


def test_versions_and_a_file_that_is_overwritten_under_load(tmp_path: Path) -> None:
    first = tmp_path / "encoder" / "1"
    first.mkdir(parents=True)
    encoder().save(first / "model.anydim")
    body, headers = binary(tokens(7))
    alone = encoder()(input_ids=[tokens(7)[0]])["sentence_embedding"]
    with running(str(tmp_path), "--no-grpc", "--memory", "600MiB") as server:
        wrong, stop = list[Any](), threading.Event()

        def load() -> None:
            while not stop.is_set():
                status, answered, text = server.request("POST", INFER, body, headers)
                if status != 200:
                    wrong.append(text)
                elif not np.array_equal(arrays(answered, text)[1]["sentence_embedding"], alone):
                    wrong.append("other bits")

        threads = [threading.Thread(target=load) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(4):
            path = first / "model.anydim"
            data = path.read_bytes()
            path.write_bytes(data[: len(data) // 2])  # in place, damaged
            assert server.json("POST", "/v2/repository/models/encoder/load", {})[0] == 400
            path.write_bytes(data)
            assert server.json("POST", "/v2/repository/models/encoder/load", {})[0] == 200
        stop.set()
        for thread in threads:
            thread.join(30)
        assert not wrong
        shutil.copytree(first, tmp_path / "encoder" / "12")
        assert server.json("POST", "/v2/repository/models/encoder/load", {})[0] == 200
        assert server.json("GET", "/v2/models/encoder")[1]["versions"] == ["12"]
        rows = server.json("POST", "/v2/repository/index", {})[1]
        assert [row["state"] for row in rows] == ["UNAVAILABLE", "READY"]


def test_a_load_reads_the_tokenizer_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    monkeypatch.setattr(run, "start_log", lambda _: logging.getLogger("anydim.server"))
    file = tmp_path / "tokenizer.json"

    def written(number: int) -> None:
        words = tokenizers.models.WordLevel({"a": number, "b": 1 - number}, unk_token="b")
        tokenizers.Tokenizer(words).save(str(file))

    written(0)
    model = tmp_path / "scaled.anydim"
    scaled().save(model)
    served = run._Served(run.Settings(
        [str(model)], 1 << 28, 1, "127.0.0.1", 0, None, 8, 1, {"scaled": str(file)}, {}, {}, 0, {},
        False,
    ))  # fmt: skip
    found = []
    for number in (0, 1):
        written(number)
        loaded = served._repository.load("scaled")
        found.append(served._tokenizers.of(loaded).encode("a").ids)
    assert found == [[0], [1]]


def floats(shape: tuple[int, ...]) -> tuple[bytes, dict[str, str]]:
    """A request with an input x of ones, and its headers."""
    data = np.ones(shape, np.float32)
    row = {"name": "x", "datatype": "FP32", "shape": list(shape),
           "parameters": {"binary_data_size": data.nbytes}}  # fmt: skip
    head = json.dumps({"inputs": [row], "outputs": [{"name": "total"}]}).encode()
    return head + data.tobytes(), {"inference-header-content-length": str(len(head))}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_after_the_requests_that_are_there(tmp_path: Path, number: int) -> None:
    scaled().save(tmp_path / "scaled.anydim")
    path, (body, headers) = "/v2/models/scaled/infer", floats((40, 90_000))
    with running(str(tmp_path), "--no-grpc") as server:
        client = HTTPConnection("127.0.0.1", server.port, timeout=30)
        client.request(
            "POST", path, iter([body[:1000]]), {**headers, "content-length": str(len(body))}
        )
        threading.Event().wait(0.3)
        server.process.send_signal(number)  # in the middle of a request
        threading.Event().wait(0.3)
        with pytest.raises(ConnectionError):
            server.json("GET", "/v2/health/ready")
        client.send(body[1000:])
        assert client.getresponse().status == 200
        client.close()
        assert server.stop() == 0
        events = [line.get("event") for line in server.lines]
        assert "stopping" in events and events[-1] == "stopped"


def test_nohup_keeps_it(tmp_path: Path) -> None:
    scaled().save(tmp_path / "scaled.anydim")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # processes inherit it
    try:
        with running(str(tmp_path), "--no-grpc") as server:
            server.process.send_signal(signal.SIGHUP)
            threading.Event().wait(0.3)
            assert server.json("GET", "/v2/health/ready")
            assert server.stop() == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_ends_streams_and_idle_connections(folder: Path) -> None:
    """A stream that waits for a message would hold up the end."""
    from anydim.serving.server.messages import SERVICE, message

    ids = tokens(7)
    row = {"name": "input_ids", "datatype": "INT64", "shape": ids.shape}
    asked = message("ModelInferRequest")(
        model_name="encoder", inputs=[row], raw_input_contents=[ids.tobytes()]
    )
    with running(str(folder)) as server, ExitStack() as stack:
        client = HTTPConnection("127.0.0.1", server.port, timeout=30)
        client.request("GET", "/v2")
        assert client.getresponse().read()
        channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}"))
        given: SimpleQueue[Any] = SimpleQueue()
        found = channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer", lambda each: each.SerializeToString(),
            message("ModelStreamInferResponse").FromString,
        )(iter(given.get, None))  # fmt: skip
        given.put(asked)
        assert not next(found).error_message
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert "the server stops" in next(found).error_message
        assert next(found, None) is None
        assert server.stop() == 0 and time.monotonic() - begin < 10
        given.put(None)
        client.close()


def test_a_second_signal_ends_requests_that_are_there(tmp_path: Path) -> None:
    scaled().save(tmp_path / "scaled.anydim")
    body, headers = floats((4, 90_000))
    with running(str(tmp_path)) as server:
        client = HTTPConnection("127.0.0.1", server.port, timeout=30)
        client.request(
            "POST", "/v2/models/scaled/infer", iter([body[:1000]]),
            {**headers, "content-length": str(len(body))},
        )  # fmt: skip
        time.sleep(0.1)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert server.process.poll() is None
        assert server.stop() == 0 and time.monotonic() - begin < 10
        client.close()


def test_what_does_not_fit_gets_413_with_bytes_and_sizes(tmp_path: Path) -> None:
    g = ad.Builder("wide")
    x = g.input("x", ad.float32, (g.dim("rows"), g.dim("n")))
    g.output("total", x[..., None] * np.ones(64, np.float32))
    ad.compile(g, ragged={"n": "rows"}, threads=1).save(tmp_path / "wide.anydim")
    with running(str(tmp_path), "--no-grpc", "--memory", "192MiB") as server:
        path = "/v2/models/wide/infer"
        status, _, text = server.request("POST", path, *floats((2, 300_000)))
        assert status == 413 and "wide at rows = 2, n.total = 600000" in json.loads(text)["error"]
        status, _, text = server.request("POST", path, *floats((90, 300_000)))
        assert status == 413 and "the body has 108000" in json.loads(text)["error"]
        assert server.request("POST", path, *floats((2, 300)))[0] == 200


def test_answers_do_not_wait_for_acknowledgements() -> None:
    async def listen() -> list[int]:
        found = list[int]()

        def connected(reader: Any, writer: asyncio.StreamWriter) -> None:
            accepted = writer.get_extra_info("socket")
            found.append(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        (made,) = run._bind_sockets("127.0.0.1", 0)
        with made as bound:
            server = await asyncio.start_server(connected, sock=bound)
            reader, writer = await asyncio.open_connection(*bound.getsockname())
            await reader.read()
            writer.close()
            server.close()
        return found

    assert asyncio.run(listen()) == [1]


def test_two_servers_that_start_together() -> None:
    (first,) = run._bind_sockets("127.0.0.1", 0)
    port = first.getsockname()[1]
    second = run._bind_sockets("127.0.0.1", port)  # before the first one listens
    settings: Any = SimpleNamespace(host="127.0.0.1", port=port, queue=1)
    with first:
        first.listen()
        server = run._Server(None, settings, SimpleNamespace(log=None, clients=None))  # type: ignore[arg-type]
        with pytest.raises(ad.OptionError, match=f"port {port} cannot be bound: Address already"):
            asyncio.run(server.serve(second))
    for each in second:
        each.close()


ADDRESSES = ("127.0.0.1", "127.0.0.2", "127.0.0.1", "192.0.2.1")  # one twice, one of no machine


def resolved(addresses: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each host have these addresses."""

    def found(host: str, port: int, **options: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (each, port))
                for each in addresses]  # fmt: skip

    monkeypatch.setattr(socket, "getaddrinfo", found)


def test_all_addresses_of_a_host_are_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved(ADDRESSES, monkeypatch)
    made = run._bind_sockets("several", 0)
    names = [each.getsockname() for each in made]
    assert [host for host, _ in names] == ["127.0.0.1", "127.0.0.2"]
    assert len({port for _, port in names}) == 1
    made[1].listen()
    made[0].close()
    with pytest.raises(ad.OptionError, match=r"several, port .* Address already in use"):
        run._bind_sockets("several", names[0][1])
    made[1].close()
    again = run._bind_sockets("several", names[0][1])  # the error left no socket behind
    for each in again:
        each.close()
    resolved(ADDRESSES[3:], monkeypatch)
    with pytest.raises(ad.OptionError, match="Cannot assign requested address"):
        run._bind_sockets("none", 0)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_addresses_of_ipv6_stand_in_brackets(folder: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6")
    with running(str(folder), "--host", "::1") as server:
        assert server.grpc_port
        urls = [line["url"] for line in server.lines if line.get("event") == "ready"]
        assert urls == [f"http://[::1]:{server.port}/"]
        client = HTTPConnection("::1", server.port, timeout=30)
        client.request("GET", "/v2/health/ready")
        assert client.getresponse().status == 200
        client.close()


def test_an_onnx_file_is_compiled_with_ragged_rows(tmp_path: Path) -> None:
    from tests.unit.serving.models import encoder_file

    (tmp_path / "encoder.onnx").write_bytes(encoder_file())
    with running(str(tmp_path / "encoder.onnx"), "--no-grpc", "--dim", "seq=1..20",
                 "--threads", "1") as server:  # fmt: skip
        body, headers = binary(tokens(9))
        status, answered, text = server.request("POST", INFER, body, headers)
        alone = encoder()(input_ids=[tokens(9)[0]])["sentence_embedding"]
        assert status == 200
        assert np.array_equal(arrays(answered, text)[1]["sentence_embedding"], alone)
        assert server.json("GET", "/v2/models/encoder")[1]["parameters"]["dims"]["seq"] == [1, 20]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_for_the_log_is_no_end(folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open("/dev/full", "w", encoding="utf-8") as full:
        process = subprocess.Popen(
            [sys.executable, "-m", "anydim", "serve", str(folder), "--no-grpc", f"--port={port}"],
            stderr=full, env={**os.environ, "PYTHONPATH": str(SOURCE)},
        )  # fmt: skip
    try:
        body, headers = binary(tokens(5))
        for _ in range(600):
            try:
                client = HTTPConnection("127.0.0.1", port, timeout=30)
                client.request("POST", INFER, body, headers)
                break
            except ConnectionError:
                assert process.poll() is None
                time.sleep(0.1)
        assert client.getresponse().status == 200
        client.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()


def test_a_model_that_does_not_fit_beside_the_others_is_not_loaded(tmp_path: Path) -> None:
    g = ad.Builder("weights")
    x = g.input("x", ad.float32, (g.dim("n"), 3000))
    w = np.random.default_rng(0).standard_normal((3000, 3000)).astype(np.float32)
    g.output("y", g.matmul(x, g.constant(w)))
    ad.compile(g, threads=1).save(tmp_path / "weights.anydim")  # 36 MB
    with running(str(tmp_path), "--no-grpc", "--memory", "170MiB") as server:
        for name in ("a", "b", "c"):
            shutil.copy(tmp_path / "weights.anydim", tmp_path / f"{name}.anydim")
        statuses = [server.json("POST", f"/v2/repository/models/{name}/load", {}) for name in "abc"]
        assert statuses[-1][0] == 503 and "the model of" in statuses[-1][1]["error"], statuses
        assert server.json("POST", "/v2/repository/models/weights/unload", {})[0] == 200
        assert server.json("POST", "/v2/repository/models/c/load", {})[0] == 200
