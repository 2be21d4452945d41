"""Promise: Triton's Python backend serves a saved model, grouped and with the bits of a call.

Triton's own module exists inside Triton only: `Utils` has what its documentation describes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import anydim as ad
from anydim.serving.server.triton import model_class
from tests.unit.serving.models import encoder, images, same, tokens

MODEL = """
from anydim.serving.server.triton import model_class

TritonPythonModel = model_class(__file__)
"""


class Tensor:
    def __init__(self, name: str, array: np.ndarray) -> None:
        assert isinstance(array, np.ndarray)
        self._name, self._array = name, array

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray:
        return self._array


class TritonError:
    INTERNAL, UNAVAILABLE, INVALID_ARG = "internal", "unavailable", "invalid"

    def __init__(self, text: str, code: str) -> None:
        self.text, self.code = text, code


class InferenceResponse:
    def __init__(self, output_tensors: Any = (), error: TritonError | None = None) -> None:
        self.arrays = {each.name(): each.as_numpy() for each in output_tensors}
        self.error = error


class Logger:
    lines: list[str] = []

    @classmethod
    def log_error(cls, text: str) -> None:
        cls.lines.append(text)


class Request:
    def __init__(self, outputs: list[str], timeout: int = 0, **given: np.ndarray) -> None:
        self.tensors = {name: Tensor(name, array) for name, array in given.items()}
        self._outputs, self._timeout = outputs, timeout

    def requested_output_names(self) -> list[str]:
        return self._outputs

    def timeout(self) -> int:
        return self._timeout


class Config:
    """The configuration that Triton lets a model complete."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.size: int | None = None

    def set_max_batch_size(self, size: int) -> None:
        self.size = size

    def add_input(self, row: dict[str, Any]) -> None:
        assert set(row) <= {"name", "data_type", "dims", "optional"}
        self.inputs.append(row)

    def add_output(self, row: dict[str, Any]) -> None:
        self.outputs.append(row)


@pytest.fixture(autouse=True)
def utils(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = ModuleType("triton_python_backend_utils")
    made.Tensor, made.TritonError, made.Logger = Tensor, TritonError, Logger
    made.InferenceResponse = InferenceResponse
    made.get_input_tensor_by_name = lambda request, name: request.tensors.get(name)
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", made)


def started(folder: Path, made: Any, **parameters: str) -> Any:
    """A model as Triton starts it: model.py is imported, and one object initialized."""
    version = folder / "model" / "1"
    version.mkdir(parents=True)
    made.save(version / "model.anydim")
    (version / "model.py").write_text(MODEL, "utf-8")
    spec = spec_from_file_location("model", version / "model.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    rows = {name: {"string_value": value} for name, value in parameters.items()}
    model.initialize({"model_config": json.dumps({"parameters": rows}), "model_version": "1"})
    return model


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Any]:
    made = started(tmp_path, encoder(), memory="64 MiB", threads="1")
    yield made
    made.finalize()


def test_requests_of_unlike_sizes_are_grouped(model: Any) -> None:
    names = ["sentence_embedding", "last_hidden_state"]
    counts = (1, 20, 7, 7, 13)
    requests = [Request(names, input_ids=tokens(n)) for n in counts]
    mask = np.ones((1, 9), np.int64)
    mask[0, 5:] = 0
    requests.append(Request(names[:1], input_ids=tokens(9), attention_mask=mask))
    found = model.execute(requests)
    for count, each in zip(counts, found):
        assert each.error is None
        alone = encoder()(input_ids=list(tokens(count)))
        alone["last_hidden_state"] = np.stack(list(alone["last_hidden_state"]))
        assert same(each.arrays, {name: alone[name] for name in names})
    alone = encoder()(input_ids=[tokens(9)[0, :5]])["sentence_embedding"]
    assert same(found[-1].arrays, {"sentence_embedding": alone})


def test_each_request_fails_alone(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name = ["sentence_embedding"]
    found = model.execute([
        Request(name, input_ids=tokens(3)), Request(name, input_ids=tokens(21)), Request(name),
        Request(["nothing"], input_ids=tokens(3)), Request(name, 1, input_ids=tokens(3)),
        Request(name, input_ids=np.full((1, 2), 10**6)), Request(name, input_ids=tokens(4)),
    ])  # fmt: skip
    codes = [None if each.error is None else each.error.code for each in found]
    assert codes[:4] == [None, "invalid", "invalid", "invalid"] and codes[5:] == ["invalid", None]
    assert codes[4] in (None, "unavailable")  # of a microsecond
    assert "'seq' is 21" in found[1].error.text
    form = next(iter(model._batcher.engine.models.values())).form
    monkeypatch.setattr(form, "run", lambda items: 1 // 0)
    (found,) = model.execute([Request(name, input_ids=tokens(3))])
    assert found.error.code == "internal" and "division" not in found.error.text
    assert "ZeroDivisionError" in Logger.lines[-1]


def test_the_configuration_is_completed(tmp_path: Path) -> None:
    encoder().save(tmp_path / "encoder.anydim")
    config = Config()
    made = model_class(str(tmp_path / "model.py"))
    assert made.auto_complete_config(config) is config and config.size == 0
    ids, mask = config.inputs
    assert ids == {"name": "input_ids", "data_type": "TYPE_INT64", "dims": [-1, -1]}
    assert mask["name"] == "attention_mask" and mask["optional"]
    assert config.outputs[1] == {
        "name": "sentence_embedding", "data_type": "TYPE_FP32", "dims": [-1, 24]
    }  # fmt: skip
    images().save(tmp_path / "images.anydim")
    with pytest.raises(ad.OptionError, match="has 2 files"):
        made.auto_complete_config(config)


def test_a_model_without_ragged_dims_shares_calls_along_a_dim(tmp_path: Path) -> None:
    model = started(tmp_path, images(), batch="batch")
    x = np.random.default_rng(0).standard_normal((3, 3, 5)).astype(np.float32)
    found = model.execute([Request(["y"], x=x[n : n + 1]) for n in range(3)])
    for number, each in enumerate(found):
        assert same(each.arrays, images()(x[number : number + 1]))
    model.finalize()
