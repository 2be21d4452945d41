"""Promise: models of every type are served, and one that cannot be loaded leaves others alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

import anydim as ad
from anydim.base.dtypes import bfloat16
from anydim.serving.server.answers import elements
from anydim.serving.server.arrivals import Target, request_bytes
from anydim.serving.server.tensors import parse_request
from tests.unit.serving.server.running import SOURCE, running

for _package in ("starlette", "uvicorn", "httptools", "grpc", "google.protobuf"):
    pytest.importorskip(_package)

HEAD = "inference-header-content-length"
VALUES = {
    "FP16": np.array([1.5, -2], np.float16), "BF16": np.array([1.5, -2], bfloat16.numpy),
    "FP32": np.array([1.5, -2], np.float32), "FP64": np.array([0.1, -2]),
    "INT8": np.array([3, -2], np.int8), "UINT64": np.array([1 << 62, 2], np.uint64),
}  # fmt: skip


def doubled(datatype: str) -> ad.Model:
    """y = x + x, with rows that share calls."""
    g = ad.Builder(datatype)
    kinds = (ad.float16, ad.bfloat16, ad.float32, ad.float64, ad.int8, ad.uint64)
    kind = next(each for each in kinds if each.numpy == VALUES[datatype].dtype)
    x = g.input("x", kind, (g.dim("rows"), g.dim("n", 0, 1000)))
    g.output("y", x + x)
    return ad.compile(g, ragged={"n": "rows"}, threads=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models of all types, and broken ones beside them."""
    path = tmp_path_factory.mktemp("models")
    for datatype in VALUES:
        doubled(datatype).save(path / f"{datatype}.anydim")
    (path / "broken.anydim").write_text("no model", "utf-8")
    (path / "other.onnx").write_bytes(b"\x08no model")
    (path / "empty" / "3").mkdir(parents=True)
    (path / "empty" / "3" / "model.onnx").touch()
    return path


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Any]:
    with running(str(folder)) as made:
        yield made


def test_broken_models_are_logged_and_listed(server: Any) -> None:
    failed = {line["model"]: line["reason"] for line in server.lines
              if line.get("event") == "not loaded"}  # fmt: skip
    assert set(failed) == {"broken", "other", "empty"}
    assert "is no saved model" in failed["broken"] and "not an ONNX model" in failed["other"]
    rows = {row["name"]: row for row in server.json("POST", "/v2/repository/index")[1]}
    assert {name for name, row in rows.items() if row["state"] == "READY"} == set(VALUES)
    assert all(rows[name]["reason"] for name in failed)
    assert server.json("GET", "/v2/health/ready")[0] == 200
    status, found = server.json("POST", "/v2/models/broken/infer", {"inputs": []})
    assert status == 404 and "there is no model 'broken'" in found["error"]


def test_a_broken_model_is_loaded_once_it_is_whole(server: Any, folder: Path) -> None:
    status, found = server.json("POST", "/v2/repository/models/broken/load")
    assert status == 400 and "is no saved model" in found["error"]
    (folder / "broken.anydim").write_bytes((folder / "FP32.anydim").read_bytes())
    assert server.json("POST", "/v2/repository/models/broken/load")[0] == 200
    assert server.json("GET", "/v2/models/broken/ready")[0] == 200
    assert server.json("POST", "/v2/repository/models/broken/unload")[0] == 200


def test_a_name_is_any_part_of_a_path(server: Any, folder: Path) -> None:
    name = "a%41 ü?#"
    (folder / f"{name}.anydim").write_bytes((folder / "FP32.anydim").read_bytes())
    assert server.json("POST", f"/v2/repository/models/{quote(name)}/load")[0] == 200
    row = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [2.5]}
    for path in (f"/v2/models/{quote(name)}", f"/v2/models/{quote(name)}/versions/1"):
        assert server.json("GET", path)[1]["name"] == name
        status, found = server.json("POST", f"{path}/infer", {"inputs": [row]})
        assert status == 200 and found["outputs"][0]["data"] == [5.0], found
    assert server.json("POST", f"/v2/repository/models/{quote(name)}/unload")[0] == 200
    (folder / f"{name}.anydim").unlink()


@pytest.mark.parametrize("words", (["broken.anydim", "FP32.anydim"], ["folder"]), ids=str)
def test_a_named_model_and_a_folder_of_broken_ones_are_errors(
    folder: Path, tmp_path: Path, words: list[str]
) -> None:
    for word in words:
        path = tmp_path / (f"folder/{word}.onnx" if word == "folder" else word)
        path.parent.mkdir(exist_ok=True)
        good = folder / word
        path.write_bytes(good.read_bytes() if word == "FP32.anydim" else b"no model")
    made = subprocess.run(
        [sys.executable, "-m", "anydim", "serve", *words, "--port", "0", "--no-grpc"],
        env={**os.environ, "PYTHONPATH": str(SOURCE)}, capture_output=True, cwd=tmp_path,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert made.returncode == 2
    assert "is no saved model" in made.stderr or "not an ONNX model" in made.stderr


@pytest.mark.parametrize("datatype", VALUES)
def test_every_type_over_both_protocols(server: Any, datatype: str) -> None:
    from anydim.serving.server.messages import SERVICE, message
    from anydim.serving.server.tensors import raw

    array = VALUES[datatype][None]
    want = (array + array).tobytes()
    data = request_bytes(Target("x", 1, datatype), {"x": array}, {"x": datatype})
    head, body = data.split(b"\r\n\r\n", 1)
    length = next(line.split(b": ")[1] for line in head.split(b"\r\n") if HEAD.encode() in line)
    status, headers, answer = server.request(
        "POST", f"/v2/models/{datatype}/infer", body, {HEAD: length.decode()}
    )
    assert status == 200 and answer[int(headers[HEAD]) :] == want
    row = {"name": "x", "shape": [1, 2], "datatype": datatype}
    status, found = server.json(
        "POST", f"/v2/models/{datatype}/infer", {"inputs": [{**row, "data": array.tolist()[0]}]}
    )
    assert status == 200 and found["outputs"][0]["datatype"] == datatype
    assert np.array(found["outputs"][0]["data"]).astype(array.dtype).tobytes() == want
    import grpc

    given = message("ModelInferRequest")(
        model_name=datatype, inputs=[row], raw_input_contents=[bytes(raw(array))]
    )
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = channel.unary_unary(
            f"/{SERVICE}/ModelInfer", lambda each: each.SerializeToString(),
            message("ModelInferResponse").FromString,
        )  # fmt: skip
        assert call(given, timeout=30).raw_output_contents[0] == want


def test_results_of_types_that_the_protocol_has_no_name_for() -> None:
    """As JSON they are numbers."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for kind in (ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16):
        text = b"".join(elements(np.array([1, 2], kind)))
        assert json.loads(b"[" + text + b"]") == [1, 2]


@pytest.mark.parametrize("name", ("shared_memory_region", "classification"))
def test_parameters_that_change_results_are_refused(server: Any, name: str) -> None:
    row = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}
    named = {"parameters": {name: 1}}
    for given in ({"inputs": [{**row, **named}]},
                  {"inputs": [row], "outputs": [{"name": "y", **named}]}):  # fmt: skip
        status, found = server.json("POST", "/v2/models/FP32/infer", given)
        assert status == 400 and f"the parameter '{name}' is not supported" in found["error"]
        with pytest.raises(ad.InputError, match=name):
            parse_request(given, memoryview(b""))


def test_parameters_over_grpc_are_refused(server: Any) -> None:
    import grpc

    from anydim.serving.server.messages import SERVICE, message

    row: dict[str, Any] = {"name": "x", "shape": [1, 1], "datatype": "FP32",
                           "contents": {"fp32_contents": [1]}}  # fmt: skip
    named = {"parameters": {"shared_memory_region": {"string_param": "a"}}}
    infer = message("ModelInferRequest")
    load = message("RepositoryModelLoadRequest")
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        for path, given in (
            ("ModelInfer", infer(model_name="FP32", inputs=[{**row, **named}])),
            ("ModelInfer",
             infer(model_name="FP32", inputs=[row], outputs=[{"name": "y", **named}])),
            ("RepositoryModelLoad",
             load(model_name="FP32", parameters={"config": {"string_param": "{}"}})),
        ):  # fmt: skip
            call = channel.unary_unary(f"/{SERVICE}/{path}", type(given).SerializeToString, bytes)
            with pytest.raises(grpc.RpcError) as caught:
                call(given, timeout=30)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "parameter" in caught.value.details()


def test_a_load_takes_no_other_files(server: Any) -> None:
    path = "/v2/repository/models/FP32/load"
    for given in ({"config": "{}"}, {"file:1/model.onnx": "AAAA"}, [1]):
        status, found = server.json("POST", path, {"parameters": given})
        assert status == 400 and "takes no parameter" in found["error"]
    assert server.json("POST", path, {"parameters": {}})[0] == 200
