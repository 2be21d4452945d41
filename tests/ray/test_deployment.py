"""Promise: replicas on a Ray cluster answer with the bits of a call, by the least work."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from ray import serve

import anydim as ad
import anydim.serving.ray
from anydim.serving.predictor import Predictor
from anydim.serving.ray.routing import WorkRouter
from tests.unit.serving.models import encoder, tokens

RESULT = "sentence_embedding"
PORT = 8643
URL = f"http://127.0.0.1:{PORT}/v2/models/encoder"


@pytest.fixture(scope="module")
def handle(cluster: Any, folder: Path) -> Iterator[Any]:
    serve.start(http_options={"port": PORT})
    app = anydim.serving.ray.deployment(folder / "encoder.anydim", memory="600 MiB", num_replicas=2)
    yield serve.run(app, route_prefix="/v2/models/encoder")
    serve.shutdown()


def alone(count: int, seed: int) -> np.ndarray:
    return encoder()(input_ids=list(tokens(count, seed)))[RESULT]


def test_requests_have_the_bits_of_a_call_and_errors_their_kind(handle: Any) -> None:
    cases = [(count, seed) for seed in range(4) for count in (1, 20, 7, 13, 2)]
    sent = [handle.remote({"input_ids": tokens(*case)}, outputs=[RESULT]) for case in cases]
    for case, each in zip(cases, sent):
        assert np.array_equal(each.result()[RESULT], alone(*case))
    with pytest.raises(ad.DimError, match="'seq' is 21"):
        handle.remote({"input_ids": tokens(21)}).result()
    with pytest.raises(ad.InputError, match="no result 'nothing'"):
        handle.remote({"input_ids": tokens(2)}, outputs=["nothing"]).result()


def test_http_speaks_protocol_v2(handle: Any) -> None:
    ids = tokens(5)
    row = {"name": "input_ids", "datatype": "INT64", "shape": [1, 5], "data": ids.tolist()}
    with urlopen(f"{URL}/infer", json.dumps({"inputs": [row]}).encode()) as answer:
        found = {each["name"]: each for each in json.load(answer)["outputs"]}
    assert np.array_equal(np.float32([found[RESULT]["data"]]), alone(5, 0))
    row = {**row, "parameters": {"binary_data_size": ids.nbytes}}
    del row["data"]
    outputs = [{"name": RESULT, "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": [row], "outputs": outputs}).encode()
    name = "Inference-Header-Content-Length"
    request = Request(f"{URL}/infer", head + ids.tobytes(), {name: str(len(head))})
    with urlopen(request) as answer:
        body = answer.read()[int(answer.headers[name]) :]
    assert body == alone(5, 0).tobytes()
    with urlopen(URL) as answer:
        assert json.load(answer)["parameters"]["dims"]["seq"] == [1, 20]
    with pytest.raises(HTTPError) as error:
        urlopen(f"{URL}/infer", b"{}")
    assert error.value.code == 400 and "'inputs'" in json.load(error.value)["error"]


def test_a_replica_that_is_killed_is_replaced(handle: Any) -> None:
    before = processes("ServeReplica:default:encoder")
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    answered = 0
    for number in range(60):
        try:
            found = handle.remote({"input_ids": tokens(3, number)}, outputs=[RESULT]).result()
        except Exception as error:  # the request that the dead one had
            assert "Actor" in type(error).__name__, error
            continue
        assert np.array_equal(found[RESULT], alone(3, number))
        answered += 1
    assert answered >= 58
    end = time.monotonic() + 60
    while len(set(processes("ServeReplica:default:encoder")) - {before[0]}) < 2:
        assert time.monotonic() < end, "there is no other replica"
        time.sleep(0.5)


def processes(name: str) -> list[int]:
    """The processes of this machine's cluster whose title begins so."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            title = (path / "cmdline").read_text("utf-8").strip("\0")
        except OSError:
            continue
        if title.startswith(f"ray::{name}"):
            found.append(int(path.name))
    return found


class Named:
    """A replica or a request as a router sees it."""

    def __init__(self, name: str, given: Any = None, **more: Any) -> None:
        self.replica_id = self.internal_request_id = name
        self.metadata = self.routing_context = self.future = self
        self.args, self.kwargs, self.routing_stats = [given], {}, more
        self.is_cancelled = False

    def cancelled(self) -> bool:
        return self.is_cancelled


def router() -> Any:
    made = WorkRouter.__new__(WorkRouter)
    made.initialize_state(Predictor(encoder()).text())
    return made


async def chosen(made: Any, replicas: list[Named], request: Named) -> str:
    best = (await made.choose_replicas(replicas, request))[0][0]
    made.on_request_routed(request, best.replica_id, None)
    return str(best.replica_id)


def run(made: Any) -> Any:
    return asyncio.run(made)


def test_a_request_goes_to_the_replica_with_the_least_work() -> None:
    made, replicas = router(), [Named("a"), Named("b")]

    async def script() -> list[str]:
        long = await chosen(made, replicas, Named("long", {"input_ids": tokens(20)}))
        short = [await chosen(made, replicas, Named(f"{n}", {"input_ids": tokens(1)}))
                 for n in range(2)]  # fmt: skip
        made.on_request_completed(long, "long")
        return [long, *short, await chosen(made, replicas, Named("5", {"input_ids": tokens(1)}))]

    long, *short, last = run(script())
    assert long not in short and last == long
    seconds = made._predictor.seconds
    assert seconds({"input_ids": tokens(20)}) > 2 * seconds({"input_ids": tokens(1)})


def test_slow_replicas_have_less_work_and_callers_that_left_none() -> None:
    made, replicas = router(), [Named("fast", ratio=1.0), Named("slow", ratio=3.0)]

    async def script() -> tuple[list[str], Any]:
        names = [await chosen(made, replicas, Named(f"{n}", {"input_ids": tokens(9)}))
                 for n in range(40)]  # fmt: skip
        made._sent.clear()
        left = Named("left", {"input_ids": tokens(20)})
        await made.choose_replicas(replicas, left)
        left.is_cancelled = True
        return names, made._work()

    names, work = run(script())
    assert 28 <= names.count("fast") <= 32 and work == {}


def test_requests_over_http_count_by_their_bytes() -> None:
    made = router()

    class Scoped:
        def __init__(self, headers: list[tuple[bytes, bytes]]) -> None:
            self.scope = {"headers": headers}

    def work(*headers: tuple[bytes, bytes]) -> float:
        return float(made._predict_seconds(Named("x", Scoped(list(headers)))))

    assert work((b"content-length", b"2000")) == 2 * work((b"content-length", b"1000")) > 0
    assert work() == work((b"content-length", b"-1")) == 0.0
    assert made._predict_seconds(Named("x", {"input_ids": "no tokens"})) == 0.0


def test_wrong_arguments(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ad.OptionError, match="num_replicas"):
        anydim.serving.ray.deployment(folder / "encoder.anydim", num_replicas=0)
    (tmp_path / "x.anydim").write_bytes(b"nothing")
    with pytest.raises(ad.ArtefactError):
        anydim.serving.ray.deployment(tmp_path / "x.anydim")
